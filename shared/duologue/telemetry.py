"""All metrics of all processes (Prometheus).  Buckets are shaped by the unit of 80 ms and that of 1 s."""

from prometheus_client import Counter, Gauge, Histogram

_FAST = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048)
_UNIT = (0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
_BATCH = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)

BUNDLES = Counter("duo_bundles_sent", "Messages of units sent", ["role", "to"])
UNITS = Counter("duo_units_sent", "Units sent, those sent again included", ["role", "to"])
ARRIVED = Counter("duo_units_arrived", "Units that arrived, by what became of them", ["role", "verdict"])
DROPPED = Counter("duo_messages_dropped", "What arrived and could not be used", ["role", "reason"])
HOP_SECONDS = Histogram(
    "duo_hop_seconds",
    "From sending to arrival, by the wall clocks of both ends",
    ["role", "to"],
    buckets=_FAST,
)
GATHER_SECONDS = Histogram(
    "duo_gather_seconds", "Wait of a bundle's first unit for others", ["role"], buckets=_FAST
)

STEP_SECONDS = Histogram("duo_step_seconds", "Time of a batched step", ["stage"], buckets=_UNIT)
BATCH_UNITS = Histogram("duo_batch_units", "Units of a batched step", ["stage"], buckets=_BATCH)
QUEUE_SECONDS = Histogram(
    "duo_queue_seconds", "From a unit's being ready to its step's beginning", ["stage"], buckets=_UNIT
)
OWNERS = Gauge("duo_owners", "Sessions owned", ["stage", "model"])
PLACES = Gauge("duo_places_free", "Raw free places", ["stage", "model"])
CLAIMS = Counter("duo_claims", "Claims, by answer", ["stage", "state"])

SESSIONS = Gauge("duo_live_sessions", "Live sessions of this pod", ["model"])
STARTED = Counter("duo_sessions_started", "Sessions that became active", ["model"])
REFUSED = Counter("duo_sessions_refused", "Sessions refused at their start", ["code"])
CLOSED = Counter("duo_sessions_closed", "Sessions that ended after they were active", ["model", "reason"])
UNITS_IN = Counter("duo_session_units_in", "Input units framed", ["model"])
UNITS_OUT = Counter("duo_session_units_out", "Output units delivered", ["model"])
UNITS_SHED = Counter("duo_session_units_shed", "Input units replaced by silence", ["model"])
ANSWER_SECONDS = Histogram(
    "duo_unit_answer_seconds",
    "From a unit's last input sample to its output at the root",
    ["model"],
    buckets=_UNIT,
)
START_SECONDS = Histogram(
    "duo_session_start_seconds", "From session.start to session.started", ["model"], buckets=_UNIT
)
STORE_ERRORS = Counter(
    "duo_store_errors", "Writes to the store that failed (durability is degraded)", ["bucket"]
)
EVENT_ERRORS = Counter("duo_live_errors", "error events sent to clients", ["code"])
