"""The connection to a real server: lost, refused, overrun.  The rest is in test_transport_contract.py."""

import asyncio
import os
import signal
import socket
import time

import pytest

from bus.rig import GIVE_UP_S, Inbox, barrier, connected, linux, until
from duologue.bus import nats as bus_nats
from duologue.bus.nats import NatsTransport, without_secrets
from duologue.bus.server import EmbeddedServer
from duologue.bus.transport import Entry, RequestTimeout, StoreUnavailable, TransportError

pytestmark = pytest.mark.bus


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_no_server_is_a_clear_error_within_five_seconds() -> None:
    async def main() -> None:
        url = f"nats://somebody:secret@127.0.0.1:{free_port()}"
        started = time.monotonic()
        with pytest.raises(TransportError) as raised:
            await NatsTransport(url, name="test", on_closed=closed.append).connect()
        assert time.monotonic() - started < 6
        assert url.replace("somebody:secret@", "") in str(raised.value)
        assert "nats-server -js" in str(raised.value)
        assert "duologue[embedded]" in str(raised.value)
        assert "secret" not in str(raised.value)

    closed: list[str] = []
    asyncio.run(main())
    assert closed == []


def test_a_server_that_says_nothing_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        silent = await asyncio.start_server(lambda reader, writer: writers.append(writer), "127.0.0.1", 0)
        url = "nats://{}:{}".format(*silent.sockets[0].getsockname())
        with pytest.raises(TransportError, match=url):
            await NatsTransport(url, name="test").connect()
        for writer in writers:
            writer.close()
        silent.close()
        await silent.wait_closed()

    monkeypatch.setattr(bus_nats, "CONNECT_S", 0.5)
    writers: list[asyncio.StreamWriter] = []
    asyncio.run(main())
    assert writers


def test_wrong_credentials_are_told_at_once(server: EmbeddedServer) -> None:
    async def main() -> None:
        url = without_secrets(server.url)
        started = time.monotonic()
        with pytest.raises(TransportError, match="refuses these credentials") as raised:
            await NatsTransport(url, name="test", user="duologue", password="wrong").connect()
        assert time.monotonic() - started < bus_nats.CONNECT_S
        assert url in str(raised.value)

    asyncio.run(main())


def test_credentials_may_come_beside_the_url(server: EmbeddedServer, root: str) -> None:
    async def main() -> None:
        user, password = server.url.removeprefix("nats://").partition("@")[0].split(":")
        a = NatsTransport(without_secrets(server.url), name="test", user=user, password=password)
        async with connected(a):
            await barrier(a, a, root)

    asyncio.run(main())


@pytest.mark.parametrize("url", ["nats://", "nats://host:port", "nats://user:secret@host:99999"])
def test_what_is_no_url_is_a_clear_error(url: str) -> None:
    async def main() -> None:
        with pytest.raises(TransportError) as raised:
            await NatsTransport(url, name="test").connect()
        assert "secret" not in str(raised.value)

    asyncio.run(main())


def test_a_server_may_be_missing_at_first(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transport that failed to connect can be told to try again."""

    async def main() -> None:
        server = EmbeddedServer()
        async with server:
            a = NatsTransport(server.url, name="test")
            await server.kill()
            with monkeypatch.context() as patch:
                patch.setattr(bus_nats, "CONNECT_S", 0.5)
                with pytest.raises(TransportError):
                    await a.connect()
            await server.start()
            async with connected(a):
                await barrier(a, a, root)

    asyncio.run(main())


def test_a_killed_server_comes_back(root: str) -> None:
    async def main() -> None:
        server, inbox, closed = EmbeddedServer(), Inbox(), list[str]()
        async with server:
            a = NatsTransport(server.url, name="a", on_closed=closed.append)
            b = NatsTransport(server.url, name="b")
            async with connected(a, b):
                await b.subscribe(f"{root}.x", inbox)
                bucket = await a.bucket(root)
                revision = await bucket.put("key", b"kept")
                await until(lambda: min(a.settled_s, b.settled_s) > 0.3)
                a.publish(f"{root}.x", b"before")
                await inbox.count(1)
                pending = asyncio.create_task(b.request(f"{root}.x", b"is no answer", 3600))
                await inbox.count(2)

                await server.kill()
                await until(lambda: not (a.connected or b.connected))
                assert (a.settled_s, b.settled_s) == (0.0, 0.0)
                with pytest.raises(RequestTimeout):
                    await pending
                with pytest.raises(RequestTimeout):
                    await a.request(f"{root}.x", b"", 3600)
                with pytest.raises(StoreUnavailable):
                    await bucket.get("key")
                for n in range(10):
                    a.publish(f"{root}.x", b"%d" % n)
                assert a.stats.dropped == 10

                await server.start()
                await until(lambda: a.connected and b.connected)
                assert 0.0 < a.settled_s < GIVE_UP_S
                a.publish(f"{root}.x", b"after")
                await inbox.count(3)
                assert inbox.data == [b"before", b"is no answer", b"after"]
                assert (a.stats.reconnects, b.stats.reconnects) == (1, 1)
                assert await bucket.get("key") == Entry(b"kept", revision)
                assert await bucket.update("key", b"newer", revision) > revision
            assert closed == []

    asyncio.run(main())


def test_settled_counts_from_the_reconnect(root: str) -> None:
    async def main() -> None:
        now = 100.0
        server = EmbeddedServer()
        async with server:
            a = NatsTransport(server.url, name="a", clock=lambda: now)
            async with connected(a):
                now = 107.0
                assert a.settled_s == 7.0
                await server.restart()
                await until(lambda: a.stats.reconnects == 1)
                now = 108.5
                assert a.settled_s == 1.5

    asyncio.run(main())


@linux
def test_nothing_stale_is_sent_after_a_reconnect(root: str) -> None:
    """A server that no longer reads: the socket is full, then nats-py's buffer, then ours.  Both buffers would go
    out seconds later, over the next connection."""

    async def main() -> None:
        server, inbox = EmbeddedServer(), Inbox()
        async with server:
            a, b = NatsTransport(server.url, name="a"), NatsTransport(server.url, name="b")
            async with connected(a, b):
                await b.subscribe(f"{root}.x", inbox)
                os.kill(server.pid, signal.SIGSTOP)
                while not a.stats.dropped:
                    a.publish(f"{root}.x", bytes(50_000))
                    await asyncio.sleep(0)
                await server.kill()
                await until(lambda: not (a.connected or b.connected))
                assert a.stats.dropped > bus_nats.OUTGOING_BYTES // 50_000
                await server.start()
                await until(lambda: a.connected and b.connected)
                a.publish(f"{root}.x", b"after")
                await barrier(a, b, root)
                assert inbox.data == [b"after"]

    asyncio.run(main())


def test_a_subscription_made_during_the_outage_lives_after_it(root: str) -> None:
    async def main() -> None:
        server, inbox = EmbeddedServer(), Inbox()
        async with server:
            a = NatsTransport(server.url, name="a")
            async with connected(a):
                await server.kill()
                await until(lambda: not a.connected)
                await a.subscribe(f"{root}.x", inbox)
                await server.start()
                await until(lambda: a.connected)
                a.publish(f"{root}.x", b"1")
                assert await inbox.count(1) == [b"1"]

    asyncio.run(main())


def test_the_outgoing_buffer_is_bounded(
    server: EmbeddedServer, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        a, b, inbox = (
            NatsTransport(server.url, name="a"),
            NatsTransport(server.url, name="b"),
            Inbox(),
        )
        async with connected(a, b):
            await b.subscribe(f"{root}.x", inbox)
            for n in range(10):  # no await: the writer can't run in between
                a.publish(f"{root}.x", b"%d" % n)
            assert a.stats.dropped == 6
            await barrier(a, b, root)
            for _ in range(3):
                a.publish(f"{root}.x", bytes(600))
            assert a.stats.dropped == 8
            await barrier(a, b, root)
        assert [len(data) for data in inbox.data] == [1, 1, 1, 1, 600]
        assert inbox.data[:4] == [b"0", b"1", b"2", b"3"]

    monkeypatch.setattr(bus_nats, "OUTGOING_MESSAGES", 4)
    monkeypatch.setattr(bus_nats, "OUTGOING_BYTES", 1000)
    asyncio.run(main())


def test_a_slow_consumer_is_counted(server: EmbeddedServer, root: str) -> None:
    """nats-py takes all messages of one read before any handler runs: beyond the limit they are lost."""

    async def main() -> None:
        a, inbox = NatsTransport(server.url, name="a", pending_messages=4), Inbox()
        async with connected(a):
            await a.subscribe(f"{root}.x", inbox)
            for n in range(500):
                a.publish(f"{root}.x", b"%d" % n)
            await barrier(a, a, f"{root}.other")
            await until(lambda: a.stats.slow_consumers + len(inbox.data) == 500)
            assert a.stats.slow_consumers > 0
            assert inbox.data == sorted(inbox.data, key=int)
            assert a.connected

    asyncio.run(main())


def test_an_error_of_the_server_closes_for_good_and_is_told(server: EmbeddedServer, root: str) -> None:
    async def main() -> None:
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        a = NatsTransport(server.url, name="a", on_closed=told.set_result)
        async with connected(a):
            # A protocol violation, which nats-py itself never commits.
            a._nc._transport.write(b"NONSENSE\r\n")  # type: ignore[union-attr]
            assert "unknown protocol operation" in await asyncio.wait_for(told, GIVE_UP_S)
            assert not a.connected
            a.publish(f"{root}.x", b"")
            assert a.stats.dropped == 1

    asyncio.run(main())


def test_closing_tells_nobody(server: EmbeddedServer) -> None:
    async def main() -> None:
        a = NatsTransport(server.url, name="a", on_closed=closed.append)
        await a.connect()
        await a.close()
        await a.close()

    closed: list[str] = []
    asyncio.run(main())
    assert closed == []


def test_no_task_is_left_after_closing(server: EmbeddedServer, root: str) -> None:
    async def main() -> None:
        a = NatsTransport(server.url, name="a")
        async with connected(a):
            await a.subscribe(f"{root}.x", lambda _: None)
            await (await a.bucket(root)).put("key", b"")
        for _ in range(3):  # what was cancelled ends in the next rounds of the loop
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_one_of_several_servers_will_do(server: EmbeddedServer) -> None:
    async def main() -> None:
        nobody = "nats://127.0.0.1:9"
        transport = NatsTransport(f"{nobody},{server.url}", name="test")
        async with connected(transport):
            assert transport.connected

    asyncio.run(main())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://user:secret@host:4222", "nats://host:4222"),
        ("tls://token@host", "tls://host"),
        ("user:secret@host:4222", "nats://host:4222"),
        ("nats://host:4222", "nats://host:4222"),
        ("nats://user:secret@host,nats://other:secret@there:4222", "nats://host,nats://there:4222"),
        ("nats://host,nats://other:secret@there", "nats://host,nats://there"),
        ("user:secret@host,other:secret@there", "nats://there"),
        ("nats://user:se,cr,et@host", "nats://host"),
        ("one:4222,two:4222", "nats://one:4222,nats://two:4222"),
    ],
)
def test_secrets_stay_out_of_messages(url: str, expected: str) -> None:
    assert without_secrets(url) == expected
