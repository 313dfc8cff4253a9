"""What the metrics say of sessions whose times are known: a whole deployment in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from prometheus_client import REGISTRY

from duologue.bus.memory import DELIVER, DROP, Fate, MemoryBus, Passage
from duologue.inprocess import InProcess
from duologue.models import STAGES
from duologue.virtual import run_virtual
from duologue_api.live import events
from duologue_api.live.outbound import Outbound
from duologue_api.live.settings import EdgeSettings
from recorder import Recorder, config

pytestmark = pytest.mark.unit

UNIT_S, UNIT = 0.080, 1920
PARROT = {"model": "parrot"}
LOUD = b"\x00\x20\x00\xe0" * (UNIT // 2)


class Metrics:
    """What has changed since the last look."""

    def __init__(self) -> None:
        self._before = dict(self._samples())

    def _samples(self) -> Iterator[tuple[tuple[str, frozenset[tuple[str, str]]], float]]:
        for family in REGISTRY.collect():
            for sample in family.samples:
                yield (sample.name, frozenset(sample.labels.items())), sample.value

    def moved(self, name: str, **labels: str) -> float:
        key = name, frozenset(labels.items())
        return dict(self._samples()).get(key, 0.0) - self._before.get(key, 0.0)

    def mean(self, name: str, **labels: str) -> float:
        return self.moved(f"{name}_sum", **labels) / self.moved(f"{name}_count", **labels)


def converse(
    units: int,
    pcm: bytes = bytes(2 * UNIT),
    *,
    bus: MemoryBus | None = None,
    during: Callable[[InProcess], Awaitable[None]] | None = None,
    **worker_options: float,
) -> Recorder:
    """One session at real time; `during` runs when all is sent."""
    client = Recorder()

    async def scenario() -> None:
        async with InProcess("parrot", worker_options=worker_options, bus=bus) as deployment:
            root = deployment.pod.connect(client)
            root.start(config(deployment.pod), None)
            await client.until(lambda: client.started)
            for _ in range(units):
                root.append(pcm, None)
                await asyncio.sleep(UNIT_S)
            if during is not None:
                await during(deployment)
            root.request_close(None)
            await client.until(lambda: client.ended is not None)
            root.disconnected()
            assert not deployment.fatal

    run_virtual(scenario(), limit_s=600)
    return client


def test_a_session_that_keeps_up() -> None:
    metrics = Metrics()
    converse(25, batch_ms=5.0)
    for stage in STAGES:
        of = {"stage": stage, **PARROT}
        assert metrics.moved("duo_stage_seconds_count", **of) == 25
        assert metrics.mean("duo_step_seconds", **of) == pytest.approx(0.005)
        assert metrics.mean("duo_queue_seconds", **of) == pytest.approx(0.0, abs=1e-6)
        assert metrics.mean("duo_stage_seconds", **of) == pytest.approx(0.005, abs=1e-6)
        assert metrics.mean("duo_batch_units", **of) == 1
        assert metrics.moved("duo_deadline_misses_total", **of) == 0
    assert metrics.moved("duo_session_units_in_total", **PARROT) == 25
    assert metrics.moved("duo_session_units_out_total", **PARROT) == 25
    assert metrics.moved("duo_session_units_late_total", **PARROT) == 0
    assert metrics.moved("duo_unit_answer_seconds_bucket", le="0.04", **PARROT) == 25
    assert 0.020 < metrics.mean("duo_unit_answer_seconds", **PARROT) < 0.025
    assert metrics.moved("duo_session_first_audio_seconds_count", **PARROT) == 1
    assert 0.020 < metrics.moved("duo_session_first_audio_seconds_sum", **PARROT) < 0.025
    assert metrics.moved("duo_units_resent_total", role="api", reason="overdue") == 0


def test_a_stage_that_takes_longer_than_a_unit_misses_deadlines_and_makes_units_late() -> None:
    metrics = Metrics()
    converse(25, batch_ms=90.0)
    missed = {stage: metrics.moved("duo_deadline_misses_total", stage=stage, **PARROT) for stage in STAGES}
    assert missed == dict.fromkeys(STAGES, 25)
    assert metrics.moved("duo_session_units_late_total", **PARROT) == 25


def test_stages_that_take_longer_together_make_units_late_without_a_miss() -> None:
    metrics = Metrics()
    converse(25, batch_ms=30.0)
    assert metrics.moved("duo_session_units_late_total", **PARROT) == 25
    for stage in STAGES:
        assert metrics.moved("duo_deadline_misses_total", stage=stage, **PARROT) == 0


def test_speech_and_silence() -> None:
    metrics = Metrics()
    client = converse(10, LOUD, during=lambda deployment: listen(deployment, 40))
    spoken = metrics.moved("duo_session_units_spoken_total", **PARROT)
    heard = sum(any(unit) for unit in client.units)
    assert heard <= spoken <= heard + 1, "the tail of speech may end below one LSB"
    assert 10 <= spoken < metrics.moved("duo_session_units_out_total", **PARROT) == 50
    looks = metrics.moved("duo_session_silence_seconds_count", **PARROT)
    assert looks == int(50 * UNIT_S)
    assert 0 < metrics.moved("duo_session_silence_seconds_bucket", le="0.0", **PARROT) < looks


async def listen(deployment: InProcess, units: int) -> None:
    [root] = deployment.pod.roots.values()
    for _ in range(units):
        root.append(bytes(2 * UNIT), None)
        await asyncio.sleep(UNIT_S)


def test_input_that_waits_and_is_shed() -> None:
    """10 s at once, for a stage that takes half a second a unit: the bounds of all edges are met."""

    async def burst(deployment: InProcess) -> None:
        [root] = deployment.pod.roots.values()
        for _ in range(4):
            root.append(LOUD * 60, None)
            await asyncio.sleep(2.5)
        # Counted when it happens, not when the session is over.
        assert metrics.moved("duo_session_units_shed_total", **PARROT) > 0

    metrics = Metrics()
    converse(1, LOUD, during=burst, batch_ms=500.0)
    assert metrics.moved("duo_backlog_episodes_total", direction="input") == 1
    assert metrics.moved("duo_session_units_shed_total", **PARROT) > 0
    looks = metrics.moved("duo_session_backlog_seconds_count", **PARROT)
    within = metrics.moved("duo_session_backlog_seconds_bucket", le="5.0", **PARROT)
    nothing = metrics.moved("duo_session_backlog_seconds_bucket", le="0.0", **PARROT)
    assert looks == within > nothing


def test_units_sent_again() -> None:
    """Every third bundle to the llm is lost."""
    seen = 0

    def fate(passage: Passage) -> Fate:
        nonlocal seen
        if ".in.llm." not in passage.subject:
            return DELIVER
        seen += 1
        return DROP if seen % 3 == 0 else DELIVER

    metrics = Metrics()
    client = converse(25, bus=MemoryBus(fate))
    assert len(client.units) == 25
    again = {
        reason: metrics.moved("duo_units_resent_total", role="encoder", reason=reason)
        for reason in ("overdue", "repair")
    }
    sent = metrics.moved("duo_units_sent_total", role="encoder", to="llm")
    assert sum(again.values()) == sent - 25 > 0
    assert again["repair"] > 0
    assert metrics.moved("duo_units_resent_total", role="talker", reason="overdue") == 0


def test_rings_are_measured() -> None:
    async def look(deployment: InProcess) -> None:
        await asyncio.sleep(1.1)
        held = [
            ring.bytes
            for shell in deployment.shells
            if shell.stage == "encoder"
            for owner in shell.owners.values()
            for ring in owner.endpoint.rings.values()
        ]
        assert REGISTRY.get_sample_value("duo_ring_bytes", {"role": "encoder"}) == sum(held)
        assert "api" in {
            sample.labels["role"]
            for family in REGISTRY.collect()
            if family.name == "duo_ring_bytes"
            for sample in family.samples
        }

    converse(5, LOUD, during=look)


def test_output_that_is_dropped_for_a_slow_reader() -> None:
    metrics = Metrics()
    out = Outbound(EdgeSettings(output_backlog_s=1.0), lambda: 0.0)
    for _ in range(25):
        out.send(events.OutputAudioDelta(delta=bytes(2 * UNIT)))
    assert metrics.moved("duo_backlog_episodes_total", direction="output") == 1
    assert metrics.moved("duo_output_dropped_seconds_total") == pytest.approx(13 * UNIT_S)
    assert metrics.moved("duo_output_backlog_seconds_count") == 25
    assert metrics.moved("duo_output_backlog_seconds_bucket", le="1.0") < 25


def test_an_error_code_that_only_a_newer_worker_knows_is_other() -> None:
    metrics = Metrics()
    out = Outbound(EdgeSettings(), lambda: 0.0)
    out.send(events.error("from_the_future", "A worker said so."))
    assert metrics.moved("duo_live_errors_total", code="other") == 1
    assert REGISTRY.get_sample_value("duo_live_errors_total", {"code": "from_the_future"}) is None
