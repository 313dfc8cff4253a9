"""Who is there, and how it stands: heartbeats, and notices for observers."""

from typing import Any

from duologue.bus.subjects import Address
from duologue.bus.tensor import Struct


class Places(Struct, frozen=True):
    """Raw free places for one model at a worker, and the sessions that it has.

    `stage_s` is how long nearly every unit takes there, from having its inputs to its result, while the `fresh` ones
    of the sessions do not yet show in it; `more_s` is what each further session adds at most.
    """

    free: int
    sessions: int
    stage_s: float = 0.0
    more_s: float = 0.0
    fresh: int = 0


class Heartbeat(Struct, frozen=True):
    """Every 250 ms.  Ages are in seconds, counted in the sender's own loop ticks: `due_age` of the oldest unit
    that waits to be stepped, `step_age` of the step that runs.  Medians of the last seconds: `step_ms` of a step,
    `queue_ms` of its oldest unit's wait for it.  `unit_ms` is the model's unit, `sessions` the live sessions, `behind` how
    many seconds the store lacks of the session that it lacks most of."""

    v: int
    ledger: int
    address: Address
    state: str
    models: dict[str, Places]
    due_age: float = 0.0
    step_age: float = 0.0
    step_ms: float = 0.0
    queue_ms: float = 0.0
    unit_ms: float = 0.0
    sessions: int = 0
    behind: float = 0.0


STARTING, READY, DRAINING = "starting", "ready", "draining"
"""States of a `Heartbeat`."""


class Event(Struct, frozen=True):
    """Notice about a session for observers."""

    v: int
    kind: str
    sid: str
    detail: dict[str, Any] = {}
