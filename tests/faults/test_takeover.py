"""Workers die or stand still under paced sessions, and the callers hear nothing of it but a gap: every sample is that of the
undisturbed answer."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from deployment import Deployment, deployment, eventually, marked
from duologue.models import STAGES
from duologue.testing.signals import speechlike
from live_client import LiveSession, started
from parrot_answers import Settings, assert_exact

pytestmark = pytest.mark.faults

SESSIONS = 6
SECONDS = 7.0
WORKERS = ",".join(f"{stage}=2" for stage in STAGES)


LOOPED, PLAIN = Settings(seed=7, loop=True), Settings(seed=7)


@pytest.fixture(scope="module")
def served() -> Iterator[Deployment]:
    arguments = ["--workers", WORKERS]
    with deployment(seed=LOOPED.seed, options=LOOPED.options, arguments=arguments) as served:
        yield served


def running(served: Deployment, stage: str) -> list[int]:
    """The processes of the workers of a stage, those started anew among them."""
    found = []
    for pid in marked(served.mark):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"worker" in words and stage.encode() in words:
            found.append(pid)
    return found


async def under_load(
    served: Deployment, settings: Settings, strike: Callable[[], Awaitable[None]]
) -> list[LiveSession]:
    """Paced sessions that are all exact in the end, though `strike` is called while they talk."""

    async def call(number: int) -> LiveSession:
        recording = speechlike(SECONDS, number)
        async with started(served.live_url) as live:
            ready.release()
            await live.stream(recording, chunk_bytes=1920, pace=1.0)
            await live.finish()
        assert_exact(live, recording, settings)
        return live

    ready = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(call(number)) for number in range(SESSIONS)]
        for _ in calls:
            await ready.acquire()
        await asyncio.sleep(2.0)
        await strike()
    return [each.result() for each in calls]


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_worker_is_not_heard(served: Deployment, stage: str) -> None:
    async def strike() -> None:
        os.kill(random.choice(running(served, stage)), signal.SIGKILL)
        await asyncio.sleep(2.0)
        os.kill(random.choice(running(served, stage)), signal.SIGKILL)

    asyncio.run(under_load(served, LOOPED, strike))
    whole(served)


@pytest.mark.parametrize(
    "stages", [("encoder", "llm"), ("llm", "talker"), ("talker", "codec"), STAGES], ids="+".join
)
def test_workers_of_several_stages_at_once(served: Deployment, stages: Sequence[str]) -> None:
    async def strike() -> None:
        for stage in stages:
            os.kill(random.choice(running(served, stage)), signal.SIGKILL)

    asyncio.run(under_load(served, LOOPED, strike))
    whole(served)


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_that_stands_still_is_replaced_and_its_old_words_are_not_heard(
    served: Deployment, stage: str
) -> None:
    async def strike() -> None:
        stopped = random.choice(running(served, stage))
        os.kill(stopped, signal.SIGSTOP)
        await asyncio.sleep(3.0)
        os.kill(stopped, signal.SIGCONT)

    asyncio.run(under_load(served, LOOPED, strike))
    whole(served)


def test_rings_that_hold_next_to_nothing_lose_nothing() -> None:
    """Whoever is killed, the stage before it must be made again from the ledger as well."""
    env = {"DUO_RING_BYTES": str(1 << 16)}
    arguments = ["--workers", WORKERS]
    with deployment(seed=PLAIN.seed, options=PLAIN.options, arguments=arguments, env=env) as served:
        for stage in STAGES:

            async def strike(stage: str = stage) -> None:
                os.kill(random.choice(running(served, stage)), signal.SIGKILL)

            asyncio.run(under_load(served, PLAIN, strike))
            whole(served)


def whole(served: Deployment) -> None:
    """Waits until every worker runs again."""
    asyncio.run(
        eventually(lambda: all(len(running(served, stage)) == 2 for stage in STAGES) and served.ready())
    )
