"""Who answers a session from which unit on: routes and claims."""

from typing import Any

from duologue.bus.subjects import Address
from duologue.bus.tensor import Struct
from duologue.bus.units import Epoch, Number


class Inflow(Struct, frozen=True):
    """Where an endpoint's input over one edge comes from: `entries` (epoch, from unit) in unit order.
    `next` is the first unit wanted, for an edge that is new to the endpoint."""

    entries: list[tuple[Epoch, int]]
    next: int = 0


class Outflow(Struct, frozen=True):
    """One addressee of an endpoint's output over one edge: units `start` ≤ unit < `until` (-1: no end)."""

    address: Address
    epoch: Epoch
    start: int = 0
    until: int = -1


Told = dict[str, list[tuple[Address, Epoch, int]]]
"""The session's route: stage → (worker's address, epoch, from unit)."""


class Wiring(Struct, frozen=True):
    """An owner's part of the route.  `version` orders wirings; an older one is ignored.  `go` lets it step."""

    version: tuple[int, int]
    go: bool
    inflows: dict[str, Inflow]
    outflows: dict[str, list[Outflow]]
    told: Told = {}


class Start(Struct, frozen=True):
    """What a stage is opened with: the model's options, the sampling seed, the first unit to be stepped, the
    first unit of the context, and known records by unit and stage.  `decided` says by stage before which unit its
    decisions are known: one without a record was none."""

    seed: int
    options: dict[str, Any] = {}
    begin: Number = 0
    context_start: int = 0
    records: dict[int, dict[str, Any]] = {}
    decided: dict[str, int] = {}


class Claim(Struct, frozen=True):
    """Request to `subjects.claims(worker)`: own stage `stage` of `sid` under `epoch`; answered by `Claimed`.
    Asking again is harmless and tells how far the opening is."""

    v: int
    ledger: int
    sid: str
    stage: str
    model: str
    epoch: Epoch
    root: Address
    start: Start
    wiring: Wiring
    resumable: bool = False


OPENING, OPEN, FULL, FAILED, GONE, REFUSED = "opening", "open", "full", "failed", "gone", "refused"
"""States of a `Claimed`: still opening; open; no place; the model could not open it; closed before; other version
or model."""


class Claimed(Struct, frozen=True):
    v: int
    sid: str
    epoch: Epoch
    state: str
    message: str = ""
    root_epoch: int = 0
