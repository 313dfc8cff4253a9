"""What a root needs of its pod, and what it must keep to."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from duologue.bus.exchange import Exchange
from duologue.bus.transport import Transport
from duologue.models import Manifest
from duologue.session.retention import Retention
from duologue.tracing import Tracing
from duologue_api.admission import Admission
from duologue_api.live.config import SessionConfig
from duologue_api.placement import Roster
from duologue_api.seals import Seals

if TYPE_CHECKING:
    from duologue_api.root import Root


BacklogPolicy = Literal["drop_oldest", "close"]
DROP_OLDEST: BacklogPolicy = "drop_oldest"
"""The oldest input is replaced by silence."""
CLOSE: BacklogPolicy = "close"
"""The session ends."""


@dataclass(frozen=True)
class Limits:
    """`seed` fixes every session's.  `input_backlog_policy` says what becomes of input beyond `input_backlog_s`.
    `takeover_reserve`: places of each stage that no new session gets; "auto": as many as the largest worker has, where
    there are several.  `ledger_bytes`: audio that is
    kept of a session for takeovers.  `deadline_units`: a session starts only where units are expected to be answered within so many.
    `retention`: what the store keeps."""

    input_backlog_s: float = 5.0
    lifetime_s: float = 3600.0
    ledger_bytes: int = 64 << 20
    seed: int | None = None
    input_backlog_policy: BacklogPolicy = DROP_OLDEST
    takeover_reserve: int | Literal["auto"] = "auto"
    deadline_units: float = 1.0
    retention: Retention = field(default_factory=Retention)


class House(Protocol):
    """The pod, as a root sees it."""

    transport: Transport
    exchange: Exchange
    roster: Roster
    admission: Admission
    seals: Seals
    limits: Limits
    tracing: Tracing

    def clock(self) -> float: ...

    def manifest(self, model: str) -> Manifest: ...

    def options(self, config: SessionConfig) -> dict[str, Any]:
        """What a session's stages are opened with."""
        ...

    def forget(self, root: "Root") -> None: ...

    def leaves(self, writing: "asyncio.Task[None]") -> None:
        """What is still to be written of a session that is over."""
        ...
