"""The parrot's llm: collects what it hears and, once that ends, says it again (DESIGN §8).

What it decides anew and what a record makes it do go through the same `_take`, so that a state that was forced
through the records of another run, with the same inputs, is that run's state.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from duologue.bus.messages import WIRE, Condition, Features, Start, Tensor
from duologue.models.parrot import (
    INTERRUPT,
    LISTEN,
    SPEAK,
    UNIT_SAMPLES,
    Cost,
    array,
    opened_with,
    parity,
    tensor,
    trim,
)
from duologue.stage.model import Footprint, History, Result, SessionError, StageModel, Unit

INTERRUPTS_AFTER = 3
"""Active units in a row that interrupt."""
ENDS_AFTER = 5
"""Inactive units in a row that end an utterance."""
UNKNOWN = Tensor.of(np.zeros(UNIT_SAMPLES))
"""The feature of a unit that a record repeats and no input brought."""


class Heard(NamedTuple):
    unit: int
    feature: Tensor
    """float64 [1920], passed on as it came."""


class Decision(NamedTuple):
    kind: int
    m: int
    context_start: int


@dataclass(slots=True)
class State:
    """Speaking is: `queue` is not empty.  Both lists are in unit order and within the context, which bounds them."""

    loop: bool
    budget: int
    context_start: int
    next: int
    heard: list[Heard] = field(default_factory=list)
    queue: list[Heard] = field(default_factory=list)
    active_run: int = 0
    inactive_run: int = 0
    last: Heard | None = None
    """What the unit before this one repeated, if it was spoken."""
    first: int = -1
    started: int = -1
    """Oldest unit of the utterance spoken last and the unit in which that began, -1 once `started` has left the
    context."""


class Llm:
    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    def open(self, start: Start, history: History) -> Iterator[State | None]:
        """Records of the history are followed; a unit without input is taken for an inactive one.

        The history may begin before `start.context_start`, in units that were decided under an older start (their
        records name it): the newer one applies from `start.begin` on.
        """
        options = opened_with(start.options)
        known = (_decision(unit) for unit in history.units)
        older = next((decision.context_start for decision in known if decision), start.context_start)
        state = State(
            loop=options["loop"],
            budget=options["context_units"],
            context_start=min(older, start.context_start),
            next=start.begin,
        )

        def advance(unit: Unit) -> None:
            _step(state, Unit(unit.number, {"encoder": Features(), **unit.inputs}, unit.record))

        yield from self._cost.fold(history.units, advance)
        _forget(state, start.context_start)
        state.next = start.begin
        yield state

    def step(self, batch: Sequence[tuple[State, Unit]]) -> Sequence[Result | SessionError]:
        results: list[Result | SessionError] = []
        with self._cost.step(len(batch)):
            for state, unit in batch:
                try:
                    results.append(_step(state, unit))
                except SessionError as error:
                    results.append(error)
        return results

    def horizon(self, state: State) -> int:
        """What was collected lies within the context; how much of it is said already shows only from the first unit
        of the utterance in question on.  No run of before the context matters: each is counted from a unit that was
        collected."""
        return state.context_start if state.started < 0 else min(state.context_start, state.first)

    def close(self, state: State) -> None:
        state.heard.clear()
        state.queue.clear()

    def footprint(self) -> Footprint:
        return self._cost.footprint()


def _step(state: State, unit: Unit) -> Result:
    record = _decision(unit)
    if record is None:
        _forget(state, trim(state.context_start, unit.number, state.budget))
    else:
        _forget(state, record.context_start)
    _hear(state, unit)
    decision = record or _decide(state, unit)
    condition, text = Condition(), ""
    if decision.kind == SPEAK:
        said, first = _take(state, unit.number, decision.m)
        condition = Condition(WIRE, {"feature": said.feature, "first": Tensor.of(np.array(first))})
        text = f" u{decision.m}"
    else:
        state.queue.clear()
        state.last = None
    state.next = unit.number + 1
    used = (state.next - state.context_start) / state.budget
    return Result({"talker": condition}, list(decision), text, used)


def _forget(state: State, context_start: int) -> None:
    if context_start <= state.context_start:
        return
    state.context_start = context_start
    state.heard = [heard for heard in state.heard if heard.unit >= context_start]
    state.queue = [heard for heard in state.queue if heard.unit >= context_start]
    if state.started < context_start:
        state.first = state.started = -1


def _hear(state: State, unit: Unit) -> None:
    """The runs stop where nothing more depends on them, so that a state tells no more than its horizon."""
    feature = tensor(unit, "encoder", "feature", "<f8", (UNIT_SAMPLES,))
    if feature is None:
        state.active_run, state.inactive_run = 0, min(state.inactive_run + 1, ENDS_AFTER)
    else:
        state.heard.append(Heard(unit.number, feature))
        state.active_run, state.inactive_run = min(state.active_run + 1, INTERRUPTS_AFTER), 0


def _decide(state: State, unit: Unit) -> Decision:
    if state.queue:
        if state.active_run >= INTERRUPTS_AFTER:
            return Decision(INTERRUPT, 0, state.context_start)
        said = state.last if state.loop and _again(state, unit) else None
        return Decision(SPEAK, (said or state.queue[0]).unit, state.context_start)
    if state.heard and state.inactive_run >= ENDS_AFTER:
        return Decision(SPEAK, state.heard[0].unit, state.context_start)
    return Decision(LISTEN, 0, state.context_start)


def _again(state: State, unit: Unit) -> bool:
    """In the loop, an odd draw of the talker's in the unit before repeats what that unit said, while the context
    still has it."""
    if state.last is None or state.last.unit < state.context_start:
        return False
    d = array(unit, "talker", "d", "<f8", ())
    if d is None:
        raise SessionError(f"unit {unit.number}: the talker did not say what it was told to")
    return parity(float(d)) == 1


def _take(state: State, unit: int, m: int) -> tuple[Heard, bool]:
    """Moves the queue to what is said in `unit`, the feature of unit `m`: once more, or the next, or the first of
    what was heard; returns it, and whether an utterance begins with it.  A record may name an `m` of which no input is
    known: then it goes on with the utterance that was spoken, or begins one where nothing was spoken and an utterance
    had ended."""
    if state.last is not None and state.last.unit == m:
        return state.last, False
    queued = any(heard.unit == m for heard in state.queue)
    collected = any(heard.unit == m for heard in state.heard)
    ended = state.last is None and state.inactive_run >= ENDS_AFTER
    first = state.last is None
    if not queued and (collected or ended):
        state.queue, state.heard = state.heard, []
        first, state.first, state.started = True, m, unit
    said = Heard(m, UNKNOWN)
    while state.queue and state.queue[0].unit <= m:
        front = state.queue.pop(0)
        if front.unit == m:
            said = front
    state.last = said
    return said, first


def _decision(unit: Unit) -> Decision | None:
    """The record `[kind, m, context_start]` of a unit, if it has one.  Raises `SessionError`."""
    match unit.record:
        case None:
            return None
        case [int(kind), int(m), int(context_start)] if kind in (LISTEN, SPEAK, INTERRUPT):
            return Decision(kind, m, context_start)
    raise SessionError(f"{unit.record!r} is no record of a parrot's llm (unit {unit.number})")


def load(options: Mapping[str, Any]) -> StageModel[State]:
    """`options` as `worker_options` returns them, and `sleep`, see `Cost`."""
    return Llm(Cost(options))
