"""Looking at the bus over a real server: what it sees, and that it hides nothing from those who work."""

import asyncio
import time

import pytest

from bus.rig import Bus, Inbox, connected, until
from duologue.bus import nats as bus_nats
from duologue.bus import subjects
from duologue.bus.messages import WIRE
from duologue.bus.nats import NatsTransport
from duologue.bus.server import EmbeddedServer
from duologue.bus.tape import Copy, Tap, Taped
from duologue.bus.transport import NoResponders

pytestmark = pytest.mark.bus


def test_a_tap_sees_all_and_suppresses_no_503(bus: Bus, root: str) -> None:
    """With a subscription to everything, a nats-server sends no 503 any more."""
    gone, sender = f"llm.{root}-1", f"api.{root}-2"

    async def main() -> None:
        seen: list[Copy] = []
        looking, working = bus.transport("tap"), Taped(bus.transport("worker"), clock=time.monotonic)
        async with connected(looking):
            tap = Tap(
                looking, subjects.KINDS, lambda copy: seen.append(copy) if root in copy.subject else None
            )
            await tap.start()
            async with connected(working):
                acks = Inbox()
                await working.subscribe(subjects.acks(sender), acks)
                working.publish(subjects.inbox(gone), b"unit", subjects.acks(sender))
                await acks.count(1)
                assert acks.messages[0].no_responders
                assert acks.messages[0].subject == subjects.inbox(gone)
                with pytest.raises(NoResponders):
                    await working.request(subjects.claims(gone), b"claim", 5.0)
                working.publish(subjects.heartbeat(sender), b"beat")
                await until(lambda: len(seen) == 5)
            await tap.stop()
        assert seen == [
            Copy(WIRE, subjects.inbox(gone), subjects.acks(sender), b"unit"),
            Copy(WIRE, subjects.inbox(gone), no_responders=True),
            Copy(WIRE, subjects.claims(gone), data=b"claim"),
            Copy(WIRE, subjects.claims(gone), no_responders=True),
            Copy(WIRE, subjects.heartbeat(sender), data=b"beat"),
        ]

    bus.run(main())


def test_a_tap_outlives_its_server(root: str) -> None:
    async def main() -> None:
        seen: list[bytes] = []
        async with EmbeddedServer() as server:
            looking = NatsTransport(server.url, name="tap")
            nats = NatsTransport(server.url, name="worker")
            working = Taped(nats, clock=asyncio.get_running_loop().time)
            async with connected(looking, working):
                tap = Tap(looking, ["in"], lambda copy: seen.append(copy.data))
                await tap.start()
                await server.kill()
                await until(lambda: not (looking.connected or working.connected))
                await server.start()
                await until(lambda: looking.connected and working.connected)

                def sees() -> bool:
                    working.publish(subjects.inbox(root), b"again")
                    return bool(seen)

                await until(sees)
                await tap.stop()
        assert set(seen) == {b"again"}

    asyncio.run(main())


def test_a_buffer_tells_how_full_it_is(
    server: EmbeddedServer, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_nats, "OUTGOING_MESSAGES", 4)
    monkeypatch.setattr(bus_nats, "OUTGOING_BYTES", 1000)

    async def main() -> None:
        transport = NatsTransport(server.url, name="a")
        async with connected(transport):
            assert transport.backlog == 0
            transport.publish(f"{root}.x", b"")  # no await: the writer can't run in between
            assert transport.backlog == 0.25
            transport.publish(f"{root}.x", bytes(900))
            assert transport.backlog == 0.9
            await until(lambda: transport.backlog == 0)

    asyncio.run(main())
