"""The delivery protocol under loss, repetition, reordering, delay and reconnects of every edge (CONTINUITY §1): the real
pod, root, shells and parrot over the bus in memory.  Whatever the network does, each unit is answered exactly once, in
order, with the very samples of an undisturbed run, and nothing hangs."""

import asyncio
import random
from dataclasses import dataclass
from functools import cache
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duologue.bus import endpoint
from duologue.bus.memory import DELIVER, Fate, MemoryBus, Passage
from duologue.inprocess import InProcess
from duologue.testing.parrot_reference import reference
from duologue.testing.signals import bursts
from duologue.virtual import run_virtual
from recorder import Recorder, config

pytestmark = pytest.mark.unit

UNITS = 16
LATEST_S = 0.5
"""Nothing takes longer on its way."""
SCHEDULES = 2_000


@dataclass(frozen=True)
class Weather:
    """How likely a message of an edge, or its acknowledgement, is lost, repeated, late, overtaken; and when whose
    connection breaks for how long.  After `calm_s` the weather is fine."""

    seed: int
    loss: float
    repeat: float
    delay: float
    reorder: float
    blinks: tuple[tuple[int, float, float], ...]
    calm_s: float
    pace_s: float
    """Between two units of a client.  0: all at once, as after a reconnect."""
    window_s: float


weathers = st.builds(
    Weather,
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.05, 0.3, 0.7]),
    repeat=st.sampled_from([0.0, 0.2]),
    delay=st.sampled_from([0.0, 0.3]),
    reorder=st.sampled_from([0.0, 0.3]),
    blinks=st.lists(
        st.tuples(st.integers(0, 5), st.floats(0.0, 1.2), st.sampled_from([0.01, 0.06, 0.4])), max_size=3
    ).map(tuple),
    calm_s=st.floats(0.3, 1.8),
    pace_s=st.sampled_from([0.0, 0.04]),
    window_s=st.sampled_from([0.32, 2.0]),
)


class Fates:
    """Decides over bundles of units and acknowledgements alike; other messages pass."""

    def __init__(self, weather: Weather, begun: float) -> None:
        self._weather, self._begun = weather, begun
        self._rng = random.Random(weather.seed)
        self.touched = 0

    def __call__(self, passage: Passage) -> Fate:
        now = asyncio.get_running_loop().time() - self._begun
        w, draw = self._weather, self._rng.random
        kind = passage.subject.split(".")[2] if passage.subject.startswith("duo.") else ""
        if kind not in ("in", "ack") or now > w.calm_s:
            return DELIVER
        if draw() < w.loss:
            self.touched += 1
            return Fate(())
        late = draw() < w.reorder
        copies = 2 if draw() < w.repeat else 1
        slow = draw() < w.delay
        self.touched += late or slow or copies > 1
        return Fate(
            tuple(self._rng.uniform(0.0002, LATEST_S if slow else 0.004) for _ in range(copies)), late
        )


@cache
def recording() -> np.ndarray:
    return bursts([(0.2, True), (0.7, False), (0.16, True), (0.22, False)], 5)[: UNITS * 1920]


@cache
def expected(loop: bool) -> bytes:
    return reference(recording(), 11, loop=loop).pcm16.tobytes()


async def converse(weather: Weather, loop: bool, sessions: int, workers: int) -> int:
    with mock.patch.object(endpoint, "WINDOW_S", weather.window_s):
        return await _converse(weather, loop, sessions, workers)


async def _converse(weather: Weather, loop: bool, sessions: int, workers: int) -> int:
    bus = MemoryBus()
    async with InProcess(
        "parrot",
        session_options={"loop": loop},
        seed=11,
        bus=bus,
        workers=dict.fromkeys(("encoder", "llm", "talker", "codec"), workers),
    ) as deployment:
        clients = [Recorder() for _ in range(sessions)]
        roots = [deployment.pod.connect(client) for client in clients]
        for root in roots:
            root.start(config(deployment.pod), None)
        for client in clients:
            await client.until(lambda client=client: client.started)
        running = asyncio.get_running_loop()
        fates = bus.fate = Fates(weather, running.time())
        for who, at, down in weather.blinks:
            transport = deployment.transports[who % len(deployment.transports)]
            running.call_later(at, transport.blink, down)
        pcm = recording().tobytes()
        for unit in range(UNITS):
            for root in roots:
                root.append(pcm[3840 * unit : 3840 * (unit + 1)], None)
            await asyncio.sleep(weather.pace_s)
        for client in clients:
            await client.until(lambda client=client: len(client.units) >= UNITS)
        await asyncio.sleep(LATEST_S)
        assert not deployment.fatal
        for client, root in zip(clients, roots, strict=True):
            assert not client.errors
            assert len(client.units) == UNITS == root.units_out
            assert b"".join(client.units) == expected(loop)
            root.request_close(None)
        for client in clients:
            await client.until(lambda client=client: client.ended is not None)
            assert client.ended == (1000, "close_requested")
        return fates.touched


@given(weather=weathers, loop=st.booleans(), sessions=st.integers(1, 2), workers=st.integers(1, 2))
@settings(
    max_examples=SCHEDULES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_unit_arrives_once_and_in_order(
    weather: Weather, loop: bool, sessions: int, workers: int
) -> None:
    run_virtual(converse(weather, loop, sessions, workers), limit_s=120.0)


def test_the_weather_touches_messages() -> None:
    """The schedules above would prove nothing if their faults missed the messages."""
    storm = Weather(1, 0.3, 0.2, 0.3, 0.3, ((0, 0.5, 0.06),), 3.0, 0.04, 0.32)
    assert run_virtual(converse(storm, True, 2, 2), limit_s=120.0) > 2 * UNITS
