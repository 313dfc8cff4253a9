"""All metrics of all processes (Prometheus).  `python -m duologue.telemetry` writes `docs/metrics.md`.

All models share one set of buckets, since histograms of different buckets can't be added up: it has an edge at a
quarter, half, whole, one and a half, two and four times each of the unit lengths in `UNITS_S`.

No label has values without a bound: roles, stages and models are those of this installation, everything else comes
from our own code.  What a message names goes through `role` first.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import prometheus_client
from prometheus_client import REGISTRY, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

UNITS_S = (0.080, 1.0)
"""The unit lengths that buckets are shaped for."""

_FAST = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048)
_UNIT = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.12, 0.16, 0.25, 0.32, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
_START = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_BACKLOG = (0.0, 0.08, 0.16, 0.32, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
_SILENCE = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_BATCH = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)


class Histogram(prometheus_client.Histogram):
    """As prometheus_client's, at a sixth of its cost, which counts at ten observations a unit: it takes no lock, since
    one thread observes, the event loop's.  Who reads meanwhile may find a sum without its last observation."""

    def _metric_init(self) -> None:
        self._counts = [0] * len(self._upper_bounds)
        self._total = 0.0

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        self._counts[bisect_left(self._upper_bounds, amount)] += 1
        self._total += amount

    def observe_times(self, amount: float, times: int) -> None:
        """The same amount several times."""
        self._counts[bisect_left(self._upper_bounds, amount)] += times
        self._total += amount * times

    def _child_samples(self) -> Iterable[Sample]:
        below = 0
        for edge, count in zip(self._upper_bounds, list(self._counts), strict=True):
            below += count
            edge_as_text = floatToGoString(edge)  # type: ignore[no-untyped-call]
            yield Sample("_bucket", {"le": edge_as_text}, float(below), None, None)
        yield Sample("_count", {}, float(below), None, None)
        yield Sample("_sum", {}, self._total, None, None)


# ---------------------------------------------------------------- the bus, of every process

BUNDLES = Counter("duo_bundles_sent", "Messages of units sent", ["role", "to"])
UNITS = Counter("duo_units_sent", "Units sent, those sent again included", ["role", "to"])
RESENT = Counter(
    "duo_units_resent",
    "Units sent again: `overdue`, no acknowledgement came in time; `repair`, the receiver asked, or is a new one",
    ["role", "reason"],
)
ARRIVED = Counter("duo_units_arrived", "Units that arrived, by what became of them", ["role", "verdict"])
DROPPED = Counter("duo_messages_dropped", "What arrived and could not be used", ["role", "reason"])
HOP_SECONDS = Histogram(
    "duo_hop_seconds",
    "From a unit's sending to its arrival, by the wall clocks of both ends, for those accepted",
    ["role", "to"],
    buckets=_FAST,
)
GATHER_SECONDS = Histogram(
    "duo_gather_seconds", "Wait of a bundle's first unit for others", ["role"], buckets=_FAST
)
RING_BYTES = Gauge("duo_ring_bytes", "Units kept for repair, in all rings of the process", ["role"])
DRAINING = Gauge("duo_draining", "1 while the process takes no more sessions", ["role"])

# ---------------------------------------------------------------- a stage

STAGE_SECONDS = Histogram(
    "duo_stage_seconds",
    "From a unit's being ready to its outputs' leaving: queue and step",
    ["stage", "model"],
    buckets=_UNIT,
)
QUEUE_SECONDS = Histogram(
    "duo_queue_seconds",
    "From a unit's being ready to its step's beginning",
    ["stage", "model"],
    buckets=_UNIT,
)
STEP_SECONDS = Histogram("duo_step_seconds", "Time of a batched step", ["stage", "model"], buckets=_UNIT)
BATCH_UNITS = Histogram("duo_batch_units", "Units of a batched step", ["stage", "model"], buckets=_BATCH)
DEADLINE_MISSES = Counter(
    "duo_deadline_misses",
    "Units that took the stage longer than a unit, from their being ready on",
    ["stage", "model"],
)
DUE_AGE = Gauge("duo_due_age_seconds", "Wait so far of the oldest unit that is ready", ["stage", "model"])
OWNERS = Gauge("duo_owners", "Sessions owned", ["stage", "model"])
PLACES = Gauge("duo_places_free", "Raw free places", ["stage", "model"])
FIXED_BYTES = Gauge("duo_fixed_bytes", "Memory of the stage without a session", ["stage", "model"])
SESSION_BYTES = Gauge("duo_session_bytes", "Memory of each session at the stage", ["stage", "model"])
CLAIMS = Counter("duo_claims", "Claims, by answer", ["stage", "state"])

# ---------------------------------------------------------------- sessions, of an API pod

SESSIONS = Gauge("duo_live_sessions", "Live sessions of this pod", ["model"])
STARTED = Counter("duo_sessions_started", "Sessions that became active", ["model"])
REFUSED = Counter("duo_sessions_refused", "Sessions refused at their start", ["code"])
SUSPENDED = Counter(
    "duo_sessions_suspended", "Times that a session lost a stage and waited for it", ["model"]
)
TAKEOVERS = Counter(
    "duo_takeovers",
    "Owners replaced by an heir, by why: worker `gone`, or `silent` (its step never ends, too), session `failed` or "
    "`unknown` there, `hole`: its ring lacked units that another heir needs",
    ["stage", "reason"],
)
TAKEOVER_SECONDS = Histogram(
    "duo_takeover_seconds",
    "From a session's first lost owner to its heirs' being let step",
    ["stage"],
    buckets=_START,
)
REPLAYED = Counter("duo_units_replayed", "Units that heirs step again under their records", ["stage"])
LEDGER_BYTES = Gauge("duo_ledger_bytes", "Audio that roots keep for takeovers, of all sessions of the pod")
LEDGER_BEHIND = Gauge(
    "duo_ledger_behind_seconds",
    "What the store does not have yet of the pod's session that lacks most: it would be lost with the pod",
)
LEDGER_DROPPED = Counter("duo_ledger_units_dropped", "Units that the store was away for too long to be given")
SEGMENTS = Counter("duo_segments_written", "Values of sessions' ledgers and recordings written", ["bucket"])
STORE_LOSSES = Counter(
    "duo_store_losses",
    "Times that a session found the store without what it had, and wrote record and context anew",
)
CLOSED = Counter("duo_sessions_closed", "Sessions that ended after they were active", ["model", "reason"])
UNITS_IN = Counter("duo_session_units_in", "Input units framed", ["model"])
UNITS_OUT = Counter("duo_session_units_out", "Output units delivered", ["model"])
UNITS_SPOKEN = Counter("duo_session_units_spoken", "Of these, units in which the model spoke", ["model"])
UNITS_LATE = Counter(
    "duo_session_units_late",
    "Of these, units answered more than a unit after their last input sample",
    ["model"],
)
UNITS_SHED = Counter("duo_session_units_shed", "Input units replaced by silence", ["model"])
ANSWER_SECONDS = Histogram(
    "duo_unit_answer_seconds",
    "From a unit's last input sample to its output at the root",
    ["model"],
    buckets=_UNIT,
)
START_SECONDS = Histogram(
    "duo_session_start_seconds", "From session.start to session.started", ["model"], buckets=_START
)
FIRST_AUDIO_SECONDS = Histogram(
    "duo_session_first_audio_seconds",
    "From a session's first input audio to its first output audio",
    ["model"],
    buckets=_START,
)
BACKLOG_SECONDS = Histogram(
    "duo_session_backlog_seconds",
    "Input that waits to be sent, of each session each second",
    ["model"],
    buckets=_BACKLOG,
)
SILENCE_SECONDS = Histogram(
    "duo_session_silence_seconds",
    "Session time since the model spoke last, of each session each second",
    ["model"],
    buckets=_SILENCE,
)
OUTPUT_BACKLOG_SECONDS = Histogram(
    "duo_output_backlog_seconds",
    "Output audio that waits for its reader, whenever more is added",
    buckets=_BACKLOG,
)
OUTPUT_DROPPED_SECONDS = Counter("duo_output_dropped_seconds", "Output audio dropped for slow readers")
EPISODES = Counter(
    "duo_backlog_episodes",
    "Times that a session began to shed `input` or to drop `output`",
    ["direction"],
)
STORE_ERRORS = Counter(
    "duo_store_errors", "Writes to the store that failed (durability is degraded)", ["bucket"]
)
EVENT_ERRORS = Counter("duo_live_errors", "error events sent to clients", ["code"])
TRACES = Counter(
    "duo_traces",
    "Units traced: `sampled`, `late`; and those late ones that were not, beyond the limit: `skipped`",
    ["why"],
)

SPANS = Counter(
    "duo_spans",
    "Spans `made`, and of these `sent` to the receiver of traces, or `lost` for it was away; what is in neither waits to "
    "be sent, or was dropped because more of them were made than are sent",
    ["result"],
)

# ---------------------------------------------------------------- connections to NATS


class Stats(Protocol):
    """Counters of one connection, as a transport keeps them."""

    published: int
    delivered: int
    bytes: int
    dropped: int
    reconnects: int
    slow_consumers: int


class Connections(Collector):
    """Reads the connections' own counters when it is asked, so that a message costs nothing more."""

    _SUMS = (
        ("published", "Messages published"),
        ("delivered", "Messages delivered"),
        ("bytes", "Payload of both directions"),
        ("dropped", "Messages given up: no connection, or more than its buffer takes"),
        ("reconnects", "Connections made anew"),
        ("slow_consumers", "Messages that came in faster than they were handled, and were dropped"),
    )

    def __init__(self) -> None:
        self._all: tuple[Stats, ...] = ()

    def watch(self, stats: Stats) -> None:
        """From now on they count; to be called once a connection of the process."""
        self._all = (*self._all, stats)

    def collect(self) -> Iterable[Metric]:
        for field, meaning in self._SUMS:
            total = sum(getattr(stats, field) for stats in self._all)
            yield CounterMetricFamily(f"duo_bus_{field}", meaning, value=total)


CONNECTIONS = Connections()
REGISTRY.register(CONNECTIONS)


ROLES = {role: role for role in ("api", "encoder", "llm", "talker", "codec")} | {"root": "api"}


def role(name: str) -> str:
    """The label of a role or of an end of an edge; `other` for one that a message made up."""
    return ROLES.get(name, "other")


# ---------------------------------------------------------------- documentation


class Described(NamedTuple):
    """A metric as `/metrics` shows it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def described() -> Iterator[Described]:
    """All metrics, in the order of their definition."""
    for value in list(globals().values()):
        if isinstance(value, MetricWrapperBase):
            # prometheus_client shows label names only once there are values.
            families, labels = value.describe(), value._labelnames
        elif isinstance(value, Connections):
            families, labels = value.collect(), ()
        else:
            continue
        for family in families:
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield Described(name, family.type, tuple(labels), family.documentation)


def markdown() -> str:
    """`docs/metrics.md`."""
    units = " and ".join(f"{1000 * unit_s:g} ms" for unit_s in UNITS_S)
    lines = [
        "# Metrics",
        "",
        "`/metrics` of the API (`GET /metrics`) and of each worker (`--metrics-port`). Written by",
        "`python -m duologue.telemetry`; a test holds it to the code.",
        "",
        f"Times are in seconds. Buckets are shaped by the unit, with edges at fractions and multiples of {units},",
        "and are the same for all models, so that they can be added up: `le` equal to the model's unit is there.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
        *(
            f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.meaning} |"
            for each in described()
        ),
        "",
        "`role` is `api` or a stage. No label has values without a bound: there are no session ids here; those are in",
        "[traces](running.md#traces) and logs.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
