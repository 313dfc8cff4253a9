"""Traces of a real deployment, as a collector gets them: a unit's spans come from five processes and are one tree."""

import asyncio

import pytest

from deployment import deployment, eventually
from duologue.testing.signals import speechlike
from duologue.tracing import Ids
from live_client import converse
from otlp_receiver import Receiver, Span, receiver

pytestmark = pytest.mark.e2e

SECONDS, UNITS = 2.0, 25
STAGES = ("encoder", "llm", "talker", "codec")
SERVICES = {"duologue-api", *(f"duologue-{stage}" for stage in STAGES)}
SPANS = 1 + 5 + 3 * len(STAGES)
"""The unit, five hops, and of each stage the whole, queue and step."""

SOON = {"OTEL_BSP_SCHEDULE_DELAY": "500", "NO_PROXY": "127.0.0.1"}


def environment(collector: Receiver, ratio: str) -> dict[str, str]:
    return {"DUO_OTLP_ENDPOINT": collector.url, "DUO_TRACE_RATIO": ratio} | SOON


def first(spans: list[Span]) -> Span:
    [found] = [span for span in spans if not span.parent]
    return found


def test_each_units_trace_has_spans_from_five_processes() -> None:
    with receiver() as collector, deployment(env=environment(collector, "1")) as served:
        asyncio.run(converse(served.live_url, speechlike(SECONDS, 1), pace=1.0))

        def complete() -> list[list[Span]]:
            return [spans for spans in collector.traces().values() if len(spans) == SPANS]

        asyncio.run(eventually(lambda: len(complete()) == UNITS))
        instances = {f"{worker.stage}.{worker.id}" for worker in served.workers}
    assert len(collector.traces()) == UNITS
    sessions, units = set(), set()
    for spans in complete():
        root = first(spans)
        assert {span.service for span in spans} == SERVICES
        assert {span.instance for span in spans if span.service != "duologue-api"} == instances
        assert len({span.instance for span in spans}) == 5
        assert (root.name, root.service) == ("unit", "duologue-api")
        ids = {span.id: span for span in spans}
        assert len(ids) == SPANS
        assert all(span.parent in ids for span in spans if span is not root)
        sid, unit = root.attributes["duo.session"], root.attributes["duo.unit"]
        assert (root.trace, root.id) == (f"{Ids.of(sid, unit).trace:032x}", f"{Ids.of(sid, unit).span:016x}")
        for stage in STAGES:
            [step] = [span for span in spans if span.name == f"{stage} step"]
            assert ids[step.parent].name == stage
            assert ids[step.parent].parent == root.id
            assert root.start_ns < step.start_ns < step.end_ns < root.end_ns
        sessions.add(sid)
        units.add(unit)
    assert len(sessions) == 1
    assert units == set(range(UNITS))


def test_a_late_unit_is_traced_though_it_was_not_sampled() -> None:
    """30 ms in each stage are more than a unit in all."""
    options = {"batch_ms": 30}
    with (
        receiver() as collector,
        deployment(env=environment(collector, "0"), options=options) as served,
    ):
        asyncio.run(converse(served.live_url, speechlike(SECONDS, 1), pace=1.0))

        def complete() -> list[list[Span]]:
            return [spans for spans in collector.traces().values() if len(spans) == SPANS]

        asyncio.run(eventually(complete))
    for spans in complete():
        assert {span.service for span in spans} == SERVICES
        assert first(spans).attributes["duo.late"] is True


def test_a_receiver_that_is_away_costs_nobody_anything() -> None:
    """Nobody listens at the endpoint: sessions go on, and everything ends as soon as ever."""
    env = {"DUO_OTLP_ENDPOINT": "http://127.0.0.1:9", "DUO_TRACE_RATIO": "1"} | SOON
    with deployment(env=env) as served:
        live = asyncio.run(converse(served.live_url, speechlike(SECONDS, 1), pace=1.0))
        assert len(live.units) == UNITS
        assert served.metrics("api").total("duo_traces_total", why="sampled") == UNITS
        asyncio.run(eventually(lambda: served.metrics("api").total("duo_spans_total", result="lost")))
    told = [line.partition("]")[0] for line in served.log if "traces can't be sent" in line]
    assert len(told) == len(set(told)), "each process says so once"
    assert not [line for line in served.log if "Transient error" in line]
