"""The contract of a model half: what a stage service gives the shell (DESIGN §7).

A model half imports no NATS and no asyncio; the shell calls it from one thread.  A module
`duologue_<stage>.<model>` has one function `load(options) -> StageModel`; `options` are those of the worker
process (paths, device, the parrot's cost model), checked by the model's manifest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from duologue.bus.messages import AnyBody, Heard, Start

State = TypeVar("State")


class SessionError(Exception):
    """This session can't go on here; the process can.  `code` is a key of `duologue.errors.TABLE`.  The message is for
    the log: it must not quote what the client said."""

    def __init__(self, message: str, code: str = "session_failed") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit to be stepped: its inputs by sending stage (`"root"` for the encoder), and the decision already
    known for it, which the model must follow (`None`: it decides anew)."""

    number: int
    inputs: Mapping[str, AnyBody]
    record: Any = None


@dataclass(frozen=True, slots=True)
class Result:
    """A stepped unit: a body for every destination, the decision taken, transcript text gained."""

    out: Mapping[str, AnyBody]
    record: Any = None
    text: str = ""
    context_used: float | None = None
    """Share of the context budget in use after this unit, 0..1; `None` where the stage has no context."""
    heard: tuple[Heard, ...] = ()
    """What the user's transcript gains."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory in bytes: what the stage takes by itself, and for each session.  `free_bytes` is what its device has
    left once it is loaded; `None`: its memory is the host's.  `thread_share`: of the time of a thread beside the steps,
    which no measurement of steps sees, what a session takes at most."""

    fixed_bytes: int = 0
    session_bytes: int = 0
    free_bytes: int | None = None
    thread_share: float = 0.0


@dataclass(frozen=True, slots=True)
class History:
    """What is folded into a fresh state before it goes live: units in order, with whatever inputs are known."""

    units: Sequence[Unit] = field(default_factory=tuple)


class StageModel(Protocol[State]):
    """States are opaque to the shell."""

    def open(self, start: Start, history: History) -> Iterator[State | None]:
        """Yields `None` at least every quarter unit of work, so that others keep ticking, and last the state.
        Raises `SessionError`."""
        ...

    def step(self, batch: Sequence[tuple[State, Unit]]) -> Sequence[Result | SessionError]:
        """One batched pass; one result a row, in order.  Rows not in the batch stay as they are.  A row's
        `SessionError` ends that session; an exception raised ends the process."""
        ...

    def horizon(self, state: State) -> int:
        """The oldest unit on which the state still depends."""
        ...

    def close(self, state: State) -> None: ...

    def footprint(self) -> Footprint: ...
