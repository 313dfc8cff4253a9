"""Clients that do not keep to the pace: one that sends ten times too fast, one that does not read.  The server's memory
stays bounded, nothing is lost in silence, and others do not notice."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import numpy as np
import pytest

from bus_tap import tapped
from deployment import Deployment, deployment, eventually, resident_bytes
from duologue.testing.signals import speechlike
from live_client import RATE, UNIT, LiveSession, Pcm, connected, converse, started
from parrot_answers import Settings, assert_exact

pytestmark = pytest.mark.faults

SETTINGS = Settings(seed=7)
STEP_MS = 20.0
"""Of each stage, however many sessions there are: at most four units of a session in the time of one."""
CAP_BYTES = 32 << 20
"""By which the API process may grow.  Four backlogs of input are 1 MiB, five seconds of output as much."""
NORMAL = speechlike(6.0, 28)


@pytest.fixture(scope="module")
def served() -> Iterator[Deployment]:
    # Four such stages answer later than a unit, and would be given no second session.
    env = {"DUO_DEADLINE_UNITS": "100"}
    with deployment(seed=SETTINGS.seed, options={"batch_ms": STEP_MS}, env=env) as served:
        # What a first session loads does not count as growth.
        asyncio.run(converse(served.live_url, speechlike(1.0, 1)))
        yield served


@asynccontextmanager
async def memory_bounded(served: Deployment) -> AsyncIterator[None]:
    """Asserts that the API process does not grow by more than `CAP_BYTES`, not even for a while."""
    [pid] = served.api_pids
    before = most = resident_bytes(pid)

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, resident_bytes(pid))
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        print(f"the API process grew by {(most - before) / (1 << 20):.1f} MiB at most")
    assert most - before < CAP_BYTES


async def normal(served: Deployment) -> LiveSession:
    live = await converse(served.live_url, NORMAL, chunk_bytes=960, pace=1.0)
    assert_exact(live, NORMAL, SETTINGS)
    return live


def test_ten_times_too_fast(served: Deployment) -> None:
    long, burst = speechlike(56.0, 3), speechlike(12.0, 4)
    said = np.concatenate([long, burst])
    shed_before = served.metrics("api").total("duo_session_units_shed_total")

    async def scenario() -> tuple[LiveSession, set[int]]:
        async with tapped(served) as tap, memory_bounded(served), started(served.live_url) as live:
            assert live.started is not None
            sid = live.started["id"]
            flood = asyncio.create_task(live.stream(long, chunk_bytes=4800, pace=10.0))
            await live.until(lambda: live.errors)
            await normal(served)
            assert live.samples_out < len(long), "the fast one must have been there all the time"
            await flood
            await live.answered(len(long) // UNIT * UNIT)
            assert [error["code"] for error in live.errors] == ["input_backlog"], "one error an episode"
            first_episode = len(tap.shed[sid])
            assert first_episode > 100
            await live.append(burst.tobytes())
            await live.finish()
            assert len(tap.shed[sid]) > first_episode
            assert tap.shed[sid] & tap.meant[sid] == set(), "shed although the model may have heard it"
            assert tap.shed[sid] | tap.meant[sid] == set(range(len(live.units)))
            return live, tap.shed[sid]

    live, shed = asyncio.run(scenario())
    assert_exact(live, silenced(said, shed), SETTINGS, errors=["input_backlog"] * 2)
    assert served.metrics("api").total("duo_session_units_shed_total") - shed_before == len(shed)


def silenced(recording: Pcm, units: set[int]) -> Pcm:
    """The recording with those units replaced by silence."""
    padded = np.concatenate([recording, np.zeros(-len(recording) % UNIT, np.int16)])
    padded.reshape(-1, UNIT)[sorted(units)] = 0
    return padded[: len(recording)]


def test_a_client_that_does_not_read(served: Deployment) -> None:
    recording = speechlike(24.0, 6)

    async def scenario() -> LiveSession:
        async with memory_bounded(served), connected(served.live_url, sock=narrow(served.live_url)) as live:
            await live.start()
            await live.until(lambda: live.started)
            live.reading.clear()
            out = units_out(served)
            other = asyncio.create_task(normal(served))
            await live.stream(recording, chunk_bytes=960, pace=2.5)
            await other
            # The model has answered it all, whoever reads that.
            due = out + (len(recording) + len(NORMAL)) // UNIT
            await eventually(lambda: units_out(served) >= due, 60)
            live.reading.set()
            await live.until(lambda: live.errors)
            await live.close()
            return live

    live = asyncio.run(scenario())
    assert [error["code"] for error in live.errors] == ["output_backlog"]
    told = re.search(r"(\d+) ms of output audio were dropped", live.errors[0]["message"])
    assert told is not None
    dropped = int(told[1]) * RATE // 1000
    assert dropped > 0
    assert live.samples_out + dropped == len(recording), "what was dropped is told to the millisecond"
    assert live.closed is not None
    assert (live.closed["reason"], live.close_code) == ("close_requested", 1000)


def units_out(served: Deployment) -> float:
    return served.metrics("api").total("duo_session_units_out_total")


def narrow(live_url: str) -> socket.socket:
    """A connection whose kernel holds little for a reader that is slow."""
    parts = urlsplit(live_url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    client.connect((parts.hostname, parts.port))
    client.setblocking(False)
    return client
