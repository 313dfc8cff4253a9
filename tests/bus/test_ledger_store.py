"""Sessions' ledgers in a real nats-server: restarted, wiped, away, slow."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bus.rig import raw, until
from duologue.bus.nats import NatsTransport
from duologue.bus.nats_store import NatsBucket
from duologue.bus.server import EmbeddedServer
from duologue.bus.transport import NoBucket, TransportError
from duologue.models import STAGES, manifest
from duologue.session.record import BUCKET, CLOSED
from duologue.session.recording import complete
from duologue.session.segments import AUDIO, LEDGERS, STORE, gaps
from duologue.session.stored import NoSession, Stored, records, stored
from duologue.stage.engine import InlineEngine
from duologue.stage.loading import load
from duologue.stage.shell import Shell, ShellSettings
from duologue_api.house import Limits
from duologue_api.pod import Pod
from kept_sessions import SEED, speech
from recorder import Recorder, config

pytestmark = pytest.mark.bus


class Real:
    """Workers of the parrot in this process and a pod on a real server, and somebody who looks at its store."""

    def __init__(self, server: EmbeddedServer, pod: Pod, looker: NatsTransport) -> None:
        self.server, self.pod, self.looker = server, pod, looker

    async def call(self, **fields: Any) -> tuple[Recorder, Any]:
        client = Recorder()
        root = self.pod.connect(client)
        root.start(config(self.pod, **fields), None)
        await client.until(lambda: client.started or client.ended is not None)
        assert client.started, client.errors
        return client, root

    async def read(self, sid: str) -> Stored:
        async with asyncio.timeout(20):
            while True:
                try:
                    return await stored(self.looker, sid)
                except (TransportError, NoSession):
                    await asyncio.sleep(0.1)

    async def keys(self, bucket: str) -> list[str]:
        return await (await self.looker.bucket(bucket, make=False)).keys()


@asynccontextmanager
async def real(server: EmbeddedServer) -> AsyncIterator[Real]:
    loop = asyncio.get_running_loop()
    found = manifest("parrot")
    transports = [NatsTransport(server.url, name=name) for name in STAGES]
    of_pod = NatsTransport(server.url, name="api")
    looker = NatsTransport(server.url, name="looker")
    for transport in (*transports, of_pod, looker):
        await transport.connect()
    processes: list[Any] = []
    for stage, transport in zip(STAGES, transports, strict=True):
        engine = InlineEngine(loop)
        model = load(stage, "parrot", {**found.worker_options({}), "sleep": engine.sleep})
        processes.append(
            Shell(
                stage,
                found,
                model,
                transport,
                engine,
                clock=loop.time,
                settings=ShellSettings(),
                fatal=pytest.fail,
            )
        )
    pod = Pod(
        of_pod,
        {"parrot": found},
        options={"parrot": found.session_options({})},
        clock=loop.time,
        limits=Limits(seed=SEED),
    )
    for process in (*processes, pod):
        await process.start()
    try:
        await until(lambda: not pod.roster.lacking("parrot"))
        yield Real(server, pod, looker)
    finally:
        for process in (pod, *processes):
            await process.stop()
        for transport in (*transports, of_pod, looker):
            await transport.close()


async def say(root: Any, units: int, first: int = 0, seconds: float = 0.08) -> None:
    data = speech(400).tobytes()
    for unit in range(first, first + units):
        root.append(data[3840 * unit : 3840 * (unit + 1)], None)
        await asyncio.sleep(seconds)


async def caught_up(root: Any) -> None:
    await until(lambda: root.behind_s == 0)


def run(main: Callable[[EmbeddedServer], Awaitable[None]], store_dir: Path | None = None) -> None:
    async def on_its_own_server() -> None:
        async with EmbeddedServer(store_dir) as server:
            async with asyncio.timeout(90):
                await main(server)

    asyncio.run(on_its_own_server())


def test_a_recorded_session_is_there_and_a_live_one_is_not_afterwards() -> None:
    async def main(server: EmbeddedServer) -> None:
        async with real(server) as it:
            kept = await it.call(store=True)
            left = await it.call()
            client, root = kept
            await asyncio.gather(say(root, 40), say(left[1], 40))
            await client.until(lambda: len(client.units) >= 40)
            assert len(await it.keys(AUDIO)) >= 2
            for each in (kept, left):
                each[1].request_close(None)
                await each[0].until(lambda each=each: each[0].ended is not None)
                each[1].disconnected()
            await until(lambda: not it.pod._writes)
            assert [(await it.keys(LEDGERS)), (await it.keys(AUDIO))] == [[], []]
            there = await it.read(root.sid)
            recording = complete(there.record, there.back)
            assert recording.units == 40
            put_out = [recording.said[unit].pcm or bytes(3840) for unit in range(40)]
            assert put_out == client.units
            assert recording.input16.tobytes() == speech(400)[: 40 * 1920].tobytes()
            listed = {record.sid: (record.state, record.kept) for record in await records(it.looker)}
            assert listed == {root.sid: (CLOSED, True), left[1].sid: (CLOSED, False)}
            with pytest.raises(NoSession):
                await stored(it.looker, "live_nobody")

    run(main)


@pytest.mark.parametrize("away_s", [0.0, 5.0])
def test_a_server_that_comes_back_is_caught_up_with(away_s: float, tmp_path: Path) -> None:
    async def main(server: EmbeddedServer) -> None:
        async with real(server) as it:
            client, root = await it.call(store=True)
            await say(root, 25)
            await server.kill()
            await asyncio.sleep(away_s)
            await server.start()
            await say(root, 50, 25)
            await client.until(lambda: len(client.units) >= 75 or client.ended is not None)
            assert client.ended is None
            await caught_up(root)
            there = await it.read(root.sid)
            assert gaps(there.back.decided, 0, 75) == []
            assert gaps(there.back.said, 0, 75) == []
            root.disconnected()

    run(main, tmp_path)


def test_a_store_that_was_wiped_gets_record_and_context_anew() -> None:
    """All streams are deleted while the session talks, as an operator might, or a server that lost its volume."""

    async def main(server: EmbeddedServer) -> None:
        async with real(server) as it, raw(server.url) as client_:
            client, root = await it.call()
            await say(root, 30)
            js = client_.jetstream()
            for name in (BUCKET, LEDGERS, AUDIO):
                await js.delete_stream(f"KV_{name}")
            await say(root, 40, 30)
            await client.until(lambda: len(client.units) >= 70 or client.ended is not None)
            assert client.ended is None
            async with asyncio.timeout(20):
                while True:
                    there = await it.read(root.sid)
                    if gaps(there.back.decided, 0, 70) == gaps(there.back.heard, 0, 70) == []:
                        break
                    await asyncio.sleep(0.2)
            assert there.record.units >= 25
            root.disconnected()

    run(main)


def test_old_segments_go_by_subject_and_sequence() -> None:
    """`purge` with a revision leaves what came later, and other sessions alone."""

    async def main(server: EmbeddedServer) -> None:
        transport = NatsTransport(server.url, name="a")
        await transport.connect()
        bucket = await transport.bucket("things")
        revisions = [await bucket.put(f"a.1.{number}", b"x") for number in range(4)]
        await bucket.put("b.1.0", b"x")
        await bucket.purge("a.", revisions[2])
        assert sorted(await bucket.keys()) == ["a.1.2", "a.1.3", "b.1.0"]
        await bucket.purge("a.")
        assert await bucket.keys() == ["b.1.0"]
        await transport.close()

    run(main)


def test_a_bucket_has_its_limits() -> None:
    async def main(server: EmbeddedServer) -> None:
        async with raw(server.url) as client:
            transport = NatsTransport(server.url, name="a")
            await transport.connect()
            await transport.bucket("things", max_age_s=3600.0, max_bytes=1 << 20)
            info = await client.jetstream().stream_info("KV_things")
            assert (info.config.max_age, info.config.max_bytes) == (3600.0, 1 << 20)
            await transport.close()

    run(main)


def test_a_slow_store_holds_no_session_up(monkeypatch: pytest.MonkeyPatch) -> None:
    put = NatsBucket.put
    delay_s = 1.2

    async def slow(self: NatsBucket, key: str, value: bytes) -> int:
        await asyncio.sleep(delay_s)
        return await put(self, key, value)

    monkeypatch.setattr(NatsBucket, "put", slow)

    async def main(server: EmbeddedServer) -> None:
        nonlocal delay_s
        async with real(server) as it:
            client, root = await it.call()
            await say(root, 60)
            await client.until(lambda: len(client.units) >= 60 or client.ended is not None)
            assert client.ended is None
            assert root.behind_s > 0
            delay_s = 0.0
            await caught_up(root)
            there = await it.read(root.sid)
            assert gaps(there.back.decided, 0, 60) == []
            root.disconnected()

    run(main)


def test_many_sessions_leave_nothing_behind() -> None:
    async def main(server: EmbeddedServer) -> None:
        async with real(server) as it:
            for _ in range(4):
                calls = await asyncio.gather(*(it.call() for _ in range(10)))
                await asyncio.gather(*(say(root, 15, seconds=0.04) for _, root in calls))
                await asyncio.sleep(0.7)
                for number, (_, root) in enumerate(calls):
                    if number % 2:
                        root.request_close(None)
                await asyncio.sleep(0.2)
                for _, root in calls:
                    root.disconnected()
            await until(lambda: not it.pod._writes)
            assert [await it.keys(LEDGERS), await it.keys(AUDIO)] == [[], []]
            assert len(await it.keys(BUCKET)) == 40
            with pytest.raises(NoBucket):
                await it.keys(STORE)

    run(main)
