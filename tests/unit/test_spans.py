"""The spans of a unit, from a whole deployment in virtual time: one tree over five services, also of a unit that turned
out late, and times that fit each other."""

import asyncio

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from duologue.bus.memory import LATENCY_S
from duologue.inprocess import InProcess
from duologue.models import STAGES
from duologue.spans import Spans
from duologue.telemetry import SPANS
from duologue.tracing import LATE_PER_S, Ids, Tracing
from duologue.virtual import run_virtual
from recorder import Recorder, config

pytestmark = pytest.mark.unit

UNIT_S, UNITS = 0.080, 25
SID = "live_traced"
NAMES = {
    "unit",
    "hop root encoder",
    "hop encoder llm",
    "hop llm talker",
    "hop talker codec",
    "hop codec root",
    *(f"{stage}{part}" for stage in STAGES for part in ("", " queue", " step")),
}


class Traced:
    """What a session of 2 s, sent at its pace, left: spans by service, and the units' answers."""

    def __init__(self, ratio: float, **worker_options: float) -> None:
        self.exporters: dict[str, InMemorySpanExporter] = {}
        run_virtual(self._converse(ratio, worker_options))

    async def _converse(self, ratio: float, worker_options: dict[str, float]) -> None:
        clock = asyncio.get_running_loop().time

        def tracing(service: str) -> Tracing:
            exporter = self.exporters[service] = InMemorySpanExporter()
            spans = Spans(SimpleSpanProcessor(exporter), service=service, instance=f"{service}.1")
            return Tracing(spans, ratio=ratio, clock=clock, wall=clock)

        deployment = InProcess("parrot", worker_options=worker_options, tracing=tracing, gather_s=0.0)
        async with deployment:
            deployment.pod._new_sid = lambda: SID
            client = Recorder()
            root = deployment.pod.connect(client)
            root.start(config(deployment.pod), None)
            await client.until(lambda: client.started)
            for _ in range(UNITS):
                root.append(b"\1\0" * 1920, None)
                await asyncio.sleep(UNIT_S)
            root.request_close(None)
            await client.until(lambda: client.ended is not None)
            assert len(client.units) == UNITS
            # What the owners were asked is on its way.
            await asyncio.sleep(1.0)
            root.disconnected()
            assert not deployment.fatal

    def of_unit(self, unit: int) -> dict[str, tuple[str, ReadableSpan]]:
        """Name → (service, span)."""
        trace = Ids.of(SID, unit).trace
        found: dict[str, tuple[str, ReadableSpan]] = {}
        for service, exporter in self.exporters.items():
            for span in exporter.get_finished_spans():
                if span.context.trace_id == trace:
                    assert span.name not in found, "made twice"
                    found[span.name] = service, span
        return found

    @property
    def traces(self) -> set[int]:
        return {
            span.context.trace_id
            for exporter in self.exporters.values()
            for span in exporter.get_finished_spans()
        }


def times(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1e9, span.end_time / 1e9


def assert_whole(tree: dict[str, tuple[str, ReadableSpan]], unit: int) -> None:
    """All spans are there, each by the process that knows, under the right one, and in the right order."""
    assert set(tree) == NAMES
    first = tree["unit"][1]
    assert first.parent is None
    assert first.context.span_id == Ids.of(SID, unit).span
    assert first.attributes is not None
    assert first.attributes["duo.session"] == SID
    assert first.attributes["duo.unit"] == unit
    for name, (service, span) in tree.items():
        stage = name.removeprefix("hop ").split()[0 if not name.startswith("hop") else 1]
        assert service == ("api" if stage in ("unit", "root") else stage)
        assert span.resource.attributes["service.name"] == service
        assert span.resource.attributes["service.instance.id"] == f"{service}.1"
        if name != "unit":
            under = tree[stage][1] if name.endswith((" queue", " step")) else first
            assert span.parent is not None
            assert span.parent.span_id == under.context.span_id
    way = ["hop root encoder", *(name for stage in STAGES for name in (stage, _hop(stage)))]
    at = times(first)[0]
    for name in way:
        start, end = times(tree[name][1])
        assert start >= at - 1e-6, name
        assert end >= start
        at = end
    assert at == pytest.approx(times(first)[1], abs=1e-6)


def _hop(stage: str) -> str:
    to = (*STAGES, "root")[STAGES.index(stage) + 1]
    return f"hop {stage} {to}"


def test_a_sampled_unit_has_a_span_of_everything_that_happened_to_it() -> None:
    traced = Traced(1.0, batch_ms=3.0)
    assert len(traced.traces) == UNITS
    for unit in range(UNITS):
        assert_whole(traced.of_unit(unit), unit)
    tree = traced.of_unit(7)
    for stage in STAGES:
        start, end = times(tree[f"{stage} step"][1])
        assert end - start == pytest.approx(0.003, abs=1e-6)
        attributes = tree[f"{stage} step"][1].attributes
        assert attributes is not None
        assert attributes["duo.batch"] == 1
        start, end = times(tree[_hop(stage)][1])
        assert end - start == pytest.approx(LATENCY_S, abs=1e-6)
    assert tree["unit"][1].attributes is not None
    assert tree["unit"][1].attributes["duo.late"] is False


def test_spans_that_are_made_are_counted() -> None:
    """Those that a full queue drops were in no metric: now they are what is missing of `sent` and `lost`."""
    before = SPANS.labels("made")._value.get()
    traced = Traced(1.0)
    made = sum(len(exporter.get_finished_spans()) for exporter in traced.exporters.values())
    assert made == UNITS * len(NAMES)
    assert SPANS.labels("made")._value.get() == before + made


def test_without_sampling_and_in_time_there_is_none() -> None:
    assert Traced(0.0, batch_ms=3.0).traces == set()


def test_each_late_unit_has_the_same_spans_within_the_limit() -> None:
    """30 ms in each of four stages are more than a unit in all, but less than one in each: nothing piles up."""
    traced = Traced(0.0, batch_ms=30.0)
    whole = [unit for unit in range(UNITS) if traced.of_unit(unit)]
    for unit in whole:
        tree = traced.of_unit(unit)
        assert_whole(tree, unit)
        assert tree["unit"][1].attributes is not None
        assert tree["unit"][1].attributes["duo.late"] is True
    assert len(whole) + 1 >= LATE_PER_S * 2
    assert len(whole) <= UNITS
    assert whole[:10] == list(range(10))


def test_a_unit_that_is_sampled_and_late_is_traced_once() -> None:
    traced = Traced(1.0, batch_ms=30.0)
    for unit in range(UNITS):
        assert_whole(traced.of_unit(unit), unit)
        first = traced.of_unit(unit)["unit"][1]
        assert first.attributes is not None
        assert first.attributes["duo.late"] is True
