"""The only worker of a stage dies, or is full: sessions go on, and others start, as soon as there is a place, and no place
is lost to clients that vanish."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from deployment import Deployment, deployment, eventually
from duologue.models import STAGES
from duologue.testing.signals import speechlike
from live_client import UNIT, LiveSession, connected, converse, started
from parrot_answers import Settings, assert_exact

pytestmark = pytest.mark.faults

SETTINGS = Settings(seed=7)
RECORDING = speechlike(9.0, 28)
BRIEF = speechlike(2.0, 5)
PLACES = 3


@pytest.fixture(scope="module")
def served() -> Iterator[Deployment]:
    with deployment(seed=SETTINGS.seed) as served:
        yield served


@pytest.fixture(scope="module")
def narrow() -> Iterator[Deployment]:
    """With few places, and openings that take a moment."""
    env = {"DUO_PLACES": str(PLACES)}
    with deployment(seed=SETTINGS.seed, options={"open_ms": 30}, env=env) as served:
        yield served


# ---------------------------------------------------------------- dead


@pytest.mark.parametrize("stage", STAGES)
def test_sessions_of_the_only_worker_wait_for_the_next_one(served: Deployment, stage: str) -> None:
    async def scenario() -> None:
        async with started(served.live_url) as one, started(served.live_url) as two:
            sessions = one, two
            talking = [
                asyncio.create_task(live.stream(RECORDING, chunk_bytes=1920, pace=1.0)) for live in sessions
            ]
            for live in sessions:
                await live.answered(6 * UNIT)
            os.kill(served.worker(stage).pid, signal.SIGKILL)
            await asyncio.gather(*talking)
            for live in sessions:
                await live.finish()
        for live in sessions:
            assert_exact(live, RECORDING, SETTINGS)
        await eventually(served.ready)
        assert_exact(await converse(served.live_url, BRIEF), BRIEF, SETTINGS)

    asyncio.run(scenario())


# ---------------------------------------------------------------- full


@asynccontextmanager
async def taken(served: Deployment, count: int) -> AsyncIterator[list[LiveSession]]:
    """So many sessions, which end when this is left."""
    async with asyncio.TaskGroup() as group:
        enough, opened = asyncio.Event(), asyncio.Semaphore(0)
        sessions: list[LiveSession] = []

        async def hold() -> None:
            async with started(served.live_url) as live:
                sessions.append(live)
                opened.release()
                await enough.wait()
                await live.close()

        for _ in range(count):
            group.create_task(hold())
        for _ in range(count):
            await opened.acquire()
        try:
            yield sessions
        finally:
            enough.set()


async def refused(served: Deployment) -> float:
    """Asserts that no session can start; returns the seconds from `session.start` to the close."""
    async with connected(served.live_url) as live:
        began = time.monotonic()
        await live.start()
        await live.ended()
        took = time.monotonic() - began
        assert [error["code"] for error in live.errors] == ["session_limit_reached"]
        assert [error["type"] for error in live.errors] == ["rate_limit_error"]
        assert (live.started, live.closed, live.close_code) == (None, None, 1013)
        return took


def test_one_too_many_is_refused_until_one_leaves(narrow: Deployment) -> None:
    async def scenario() -> None:
        async with taken(narrow, PLACES - 1):
            async with taken(narrow, 1) as [last]:
                took = [await refused(narrow) for _ in range(5)]
                print("refused after", ", ".join(f"{1000 * each:.0f} ms" for each in took))
                assert max(took) < 1.0
                # Those who are in are not disturbed.
                await last.stream(BRIEF)
                await last.answered(len(BRIEF) // UNIT * UNIT)
            assert_exact(last, BRIEF, SETTINGS)
            assert_exact(await converse(narrow.live_url, BRIEF), BRIEF, SETTINGS)

    asyncio.run(scenario())


# ---------------------------------------------------------------- vanished


async def vanish(served: Deployment, how: int) -> LiveSession:
    """A client that is gone without a word: before, while and after its session starts."""
    async with connected(served.live_url) as live:
        if how > 0:
            await live.start()
        if how == 2:
            # The claims are out, the openings take 30 ms a stage.
            await asyncio.sleep(0.015)
        if how > 2:
            await live.until(lambda: live.started or live.errors)
        if how == 4 and live.started:
            await live.append(BRIEF.tobytes())
        return live


async def freed(served: Deployment) -> None:
    """Waits until no process holds a session any more."""

    def held() -> dict[str, float]:
        owners = {stage: served.metrics(stage).total("duo_owners") for stage in STAGES}
        return {**owners, "api": served.metrics("api").total("duo_live_sessions")}

    await eventually(lambda: not any(held().values()))


def test_clients_that_vanish_leave_no_place_taken(narrow: Deployment) -> None:
    async def scenario() -> None:
        sessions: list[LiveSession] = []
        for number in range(0, 51, PLACES):
            sessions += await asyncio.gather(*(vanish(narrow, (number + each) % 5) for each in range(PLACES)))
        assert sum(live.started is not None for live in sessions) > 5
        await freed(narrow)
        for stage in STAGES:
            assert narrow.metrics(stage).total("duo_places_free") == PLACES
        async with taken(narrow, PLACES):
            await refused(narrow)
        await freed(narrow)

    asyncio.run(scenario())
