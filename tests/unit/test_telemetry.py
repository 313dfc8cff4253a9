"""The metrics, and their documentation: what is written down is there, and what is there is written down."""

import re
from pathlib import Path

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from duologue import telemetry
from duologue.bus.connection import Stats
from duologue.models import MODELS, manifest
from duologue.telemetry import Connections, described, markdown

pytestmark = pytest.mark.unit

PAGE = Path(__file__).resolve().parents[2] / "docs/metrics.md"
UNIT_SHAPED = (
    telemetry.STAGE_SECONDS,
    telemetry.QUEUE_SECONDS,
    telemetry.STEP_SECONDS,
    telemetry.ANSWER_SECONDS,
)
PER_SESSION = frozenset({"sid", "session", "worker", "pod", "unit", "key", "trace"})
"""What a label must not be: it would have more values the longer a process lives."""


def exposed() -> set[str]:
    """Names of all of our metrics as `/metrics` has them, those without a value yet included."""
    names = set()
    for collector in list(REGISTRY._collector_to_names):
        describe = getattr(collector, "describe", collector.collect)
        names |= {f"{f.name}_total" if f.type == "counter" else f.name for f in describe()}
    return {name for name in names if name.startswith("duo_")}


def test_the_page_has_every_metric_and_no_other() -> None:
    documented = re.findall(r"^\| `(duo_\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(documented) > 40
    assert len(documented) == len(set(documented))
    assert set(documented) == exposed()


def test_the_page_is_the_generated_one() -> None:
    assert PAGE.read_text() == markdown() + "\n", "python -m duologue.telemetry > docs/metrics.md"


def test_every_metric_says_what_it_means() -> None:
    for each in described():
        assert each.meaning, each.name
        assert not PER_SESSION & set(each.labels), each
        assert each.kind in ("counter", "gauge", "histogram")


@pytest.mark.parametrize("model", MODELS)
def test_buckets_fit_the_unit_of_each_model(model: str) -> None:
    """A histogram must tell who kept the unit, and by how much: another unit length needs other edges."""
    unit_s = manifest(model).unit_s
    assert unit_s in telemetry.UNITS_S
    for metric in UNIT_SHAPED:
        edges = metric._upper_bounds if hasattr(metric, "_upper_bounds") else metric._kwargs["buckets"]
        for ratio in (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0):
            assert min(abs(edge - ratio * unit_s) for edge in edges) <= 0.05 * ratio * unit_s, (ratio, edges)
        assert unit_s in edges


def test_a_made_up_role_is_other() -> None:
    assert telemetry.role("llm") == "llm"
    assert telemetry.role("root") == "api"
    assert telemetry.role("llm2") == telemetry.role("") == "other"


def test_all_connections_are_counted_when_asked() -> None:
    found, first, second = Connections(), Stats(), Stats(reconnects=1)

    def values() -> dict[str, float]:
        return {s.name: s.value for family in found.collect() for s in family.samples}

    assert set(values().values()) == {0}
    found.watch(first)
    found.watch(second)
    first.dropped, first.slow_consumers, second.reconnects = 3, 2, 4
    second.published = second.delivered = second.bytes = 7
    assert values() == {
        "duo_bus_published_total": 7,
        "duo_bus_delivered_total": 7,
        "duo_bus_bytes_total": 7,
        "duo_bus_dropped_total": 3,
        "duo_bus_reconnects_total": 4,
        "duo_bus_slow_consumers_total": 2,
    }


def test_every_metric_of_the_module_is_used() -> None:
    """One that nobody counts with would be documented, and always zero."""
    root = Path(__file__).resolve().parents[2]
    code = "\n".join(
        path.read_text()
        for top in ("shared", "services")
        for path in (root / top).rglob("*.py")
        if path.name != "telemetry.py"
    )
    names = [name for name, value in vars(telemetry).items() if isinstance(value, MetricWrapperBase)]
    assert len(names) > 40
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


@given(st.lists(st.one_of(st.sampled_from([0.0, 1.0, 2.5, 10.0]), st.floats(-5.0, 1e6)), max_size=30))
def test_our_histogram_says_what_prometheus_own_does(observed: list[float]) -> None:
    pages = []
    for kind in (telemetry.Histogram, prometheus_client.Histogram):
        registry = CollectorRegistry()
        labelled = kind("h", "With a label.", ["x"], buckets=(0.0, 1.0, 2.5, 10.0), registry=registry)
        plain = kind("p", "Without.", buckets=(1.0, 2.0), registry=registry)
        for number, amount in enumerate(observed):
            labelled.labels(str(number % 2)).observe(amount)
            plain.observe(amount)
        pages.append([line for line in generate_latest(registry).splitlines() if b"_created" not in line])
    assert pages[0] == pages[1]


def test_an_observation_may_count_several_times() -> None:
    registry = CollectorRegistry()
    histogram = telemetry.Histogram("h", "One.", buckets=(1.0, 2.0), registry=registry)
    histogram.observe_times(1.5, 4)
    values = {
        line.partition(b" ")[0]: line.partition(b" ")[2] for line in generate_latest(registry).splitlines()
    }
    assert (values[b'h_bucket{le="1.0"}'], values[b'h_bucket{le="2.0"}']) == (b"0.0", b"4.0")
    assert (values[b"h_count"], values[b"h_sum"]) == (b"4.0", b"6.0")
