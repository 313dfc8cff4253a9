"""A worker that stands still for a while: no output meanwhile, and everything, in order, once it goes on."""

import asyncio
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from deployment import Deployment, deployment
from duologue.testing.signals import speechlike
from live_client import LiveSession, started
from parrot_answers import Settings, assert_exact

pytestmark = pytest.mark.faults

SETTINGS = Settings(seed=7)
RECORDING = speechlike(7.5, 28)
STOPS_S = (1.5, 2.5)
UNDER_WAY_S = 0.6
"""What has passed the stage when it stops still comes out."""


@pytest.fixture(scope="module")
def served() -> Iterator[Deployment]:
    with deployment(seed=SETTINGS.seed) as served:
        yield served


@pytest.mark.parametrize("stage", ["encoder", "llm", "talker", "codec"])
def test_a_stopped_stage_stops_the_output_and_loses_nothing(served: Deployment, stage: str) -> None:
    pid = served.worker(stage).pid

    async def stand_still(live: LiveSession, stop_s: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(UNDER_WAY_S)
            sent, answered = live.samples_in, len(live.units)
            await asyncio.sleep(stop_s - UNDER_WAY_S)
            assert live.samples_in > sent, "the client talks on"
            assert len(live.units) == answered, "there is output that no worker made"
        finally:
            os.kill(pid, signal.SIGCONT)
        await live.until(lambda: len(live.units) > answered)

    async def scenario() -> LiveSession:
        async with started(served.live_url) as live:
            talking = asyncio.create_task(live.stream(RECORDING, chunk_bytes=960, pace=1.0))
            for stop_s in STOPS_S:
                # Not before it has caught up with what was said meanwhile.
                await live.until(lambda: live.units and live.samples_in - live.samples_out < 0.4 * 24_000)
                await asyncio.sleep(0.4)
                await stand_still(live, stop_s)
            await talking
            await live.finish()
            return live

    live = asyncio.run(scenario())
    assert_exact(live, RECORDING, SETTINGS)
    assert np.any(live.pcm16)
