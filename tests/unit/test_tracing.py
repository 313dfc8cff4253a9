"""Which units are traced: the same everywhere, as many as the settings say, and of the late ones not without a bound."""

import re

import pytest
from opentelemetry.sdk.trace import SpanProcessor

from duologue.spans import Spans
from duologue.tracing import (
    LATE_PER_S,
    UNTRACED,
    Ids,
    Tracing,
    TracingError,
    TracingSettings,
    open_tracing,
)

pytestmark = pytest.mark.unit

UNITS = 5_000


def tracing(ratio: float, now: list[float] | None = None) -> Tracing:
    time = now or [0.0]
    spans = Spans(SpanProcessor(), service="test", instance="test")
    return Tracing(spans, ratio=ratio, clock=lambda: time[0], wall=lambda: 1e9 + time[0])


def test_a_unit_has_the_same_ids_wherever_it_is_asked_for() -> None:
    assert Ids.of("live_a", 7) == Ids.of("live_a", 7)
    others = [Ids.of("live_a", 8), Ids.of("live_b", 7), Ids.of("live_a7", 0)]
    assert len({ids.trace for ids in others} | {Ids.of("live_a", 7).trace}) == 4
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", Ids.of("live_a", 7).traceparent)


@pytest.mark.parametrize("ratio", [0.01, 0.3])
def test_as_many_are_sampled_as_was_set(ratio: float) -> None:
    it, another = tracing(ratio), tracing(ratio)
    sampled = [it.sampled("live_a", unit) for unit in range(UNITS)]
    spread = 4 * (UNITS * ratio * (1 - ratio)) ** 0.5
    assert abs(sum(map(bool, sampled)) - UNITS * ratio) < spread
    assert sampled == [another.sampled("live_a", unit) for unit in range(UNITS)]
    assert all(trace in ("", Ids.of("live_a", unit).traceparent) for unit, trace in enumerate(sampled))


def test_none_and_all_are_just_that() -> None:
    none, every = tracing(0.0), tracing(1.0)
    assert not any(none.sampled("live_a", unit) for unit in range(UNITS))
    assert all(every.sampled("live_a", unit) for unit in range(UNITS))


def test_late_units_are_traced_within_a_limit() -> None:
    now = [1000.0]
    it = tracing(0.0, now)
    burst = [it.late("live_a", unit) for unit in range(100)]
    assert burst == [Ids.of("live_a", unit).traceparent if unit < LATE_PER_S else "" for unit in range(100)]
    now[0] += 0.5
    assert sum(bool(it.late("live_a", unit)) for unit in range(100)) == LATE_PER_S / 2
    now[0] += 3600.0
    assert sum(bool(it.late("live_a", unit)) for unit in range(100)) == LATE_PER_S, "nothing is saved up"


def test_untraced_does_nothing() -> None:
    assert not UNTRACED.enabled
    assert UNTRACED.sampled("live_a", 1) == UNTRACED.late("live_a", 1) == ""
    UNTRACED.first("live_a", 1, "unit", 0.0, 1.0, {})
    assert UNTRACED.under(Ids.of("live_a", 1).traceparent, "step", 0.0, 1.0) == ""
    UNTRACED.close()
    assert open_tracing(TracingSettings(), service="a", instance="b", clock=lambda: 0.0) is UNTRACED


@pytest.mark.parametrize("trace", ["", "nonsense", "00-0-0-01", f"00-{0:032x}-{0:016x}-01", "é" * 55])
def test_a_traceparent_that_is_none_makes_no_span(trace: str) -> None:
    """It comes from the bus, where anything may come from."""
    assert tracing(1.0).under(trace, "step", 0.0, 1.0) == ""


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("", 1.1), "0 to 1, not 1.1"),
        (("", -1.0), "0 to 1, not -1"),
        (("", float("nan")), "0 to 1"),
        (("collector:4318", 0.5), "http:// or https:// address"),
    ],
)
def test_settings_that_can_t_be(given: tuple[str, float], says: str) -> None:
    with pytest.raises(TracingError, match=says):
        TracingSettings(*given)
