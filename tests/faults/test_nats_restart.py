"""The bus goes away under talking sessions, as a whole or for one process: none of them ends, none loses a unit."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator

import pytest

from deployment import Deployment, deployment
from duologue.bus.server import EmbeddedServer
from duologue.testing.signals import speechlike
from live_client import LiveSession, converse, started
from nats_proxy import NatsProxy, nats_proxy
from parrot_answers import Settings, assert_exact

pytestmark = pytest.mark.faults

SETTINGS = Settings(seed=7, loop=True)
"""In the loop a lost message would be revealed by nothing that follows it."""
SESSIONS = 8
CUT_S = 0.3
BRIEF = speechlike(2.0, 5)

Fault = Callable[[], Awaitable[object]]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    server = EmbeddedServer()
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(scope="module")
def proxy(server: EmbeddedServer) -> Iterator[NatsProxy]:
    with nats_proxy(server.url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def joined(proxy: NatsProxy) -> Iterator[Deployment]:
    with deployment(seed=SETTINGS.seed, options=SETTINGS.options, nats_url=proxy.url) as served:
        yield served


async def talk_through(served: Deployment, seconds: float, *faults: Fault) -> None:
    """Talks with eight clients, lets the faults happen one after the other, wants everything as if none had."""
    recordings = [speechlike(seconds, seed) for seed in range(SESSIONS)]

    async def talk(live_url: str, number: int, sessions: list[LiveSession]) -> None:
        async with started(live_url) as live:
            sessions.append(live)
            await live.stream(recordings[number], chunk_bytes=960, pace=1.0, late_s=0.01 * number)
            await live.finish()
            assert_exact(live, recordings[number], SETTINGS)

    sessions: list[LiveSession] = []
    async with asyncio.TaskGroup() as group:
        for number in range(SESSIONS):
            group.create_task(talk(served.live_url, number, sessions))
        for fault in faults:
            await asyncio.sleep(0.8)
            assert len(sessions) == SESSIONS
            # Everybody is answered, and nobody is done.
            before = [live.samples_out for live in sessions]
            for live, samples in zip(sessions, before, strict=True):
                await live.answered(samples + 1)
                assert live.close_code is None
            await fault()


def test_a_killed_server_that_comes_back() -> None:
    with deployment(seed=SETTINGS.seed, options=SETTINGS.options) as served:
        assert served.nats_pid is not None

        async def kill() -> LiveSession:
            assert served.nats_pid is not None
            os.kill(served.nats_pid, signal.SIGKILL)
            # Who comes now waits, and is not refused.
            return await converse(served.live_url, BRIEF)

        async def scenario() -> LiveSession:
            newcomer: list[LiveSession] = []

            async def fault() -> None:
                newcomer.append(await kill())

            await talk_through(served, 6.0, fault)
            return newcomer[0]

        assert_exact(asyncio.run(scenario()), BRIEF, SETTINGS)
        assert any("nats-server ended; starting it anew" in line for line in served.log)
        assert served.ready()


def test_every_connection_cut(joined: Deployment, proxy: NatsProxy) -> None:
    async def cut() -> None:
        assert await proxy.cut(CUT_S) == 5

    asyncio.run(talk_through(joined, 4.5, cut, cut))


def test_each_process_cut_off_in_turn(joined: Deployment, proxy: NatsProxy) -> None:
    def cut(role: str) -> Fault:
        async def fault() -> None:
            assert await proxy.cut(CUT_S, f"duologue-{role}") == 1

        return fault

    roles = ("encoder", "llm", "talker", "codec", "api")
    asyncio.run(talk_through(joined, 9.0, *map(cut, roles)))
