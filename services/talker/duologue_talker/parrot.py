"""The parrot's talker: a gain that rises over the utterance, times a draw (DESIGN §8)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duologue.bus.messages import Codes, Start
from duologue.draws import draw
from duologue.models.parrot import UNIT_SAMPLES, Cost, Floats, array, feedback, opened_with
from duologue.stage.model import Footprint, History, Result, SessionError, StageModel, Unit

FIELD = 5
"""Units on which a state depends: so many spoken ones raise the gain to its full height."""


@dataclass(slots=True)
class State:
    seed: int
    loop: bool
    next: int
    k: int = 0
    """Units spoken of the utterance so far, counted up to `FIELD`; 0 while listening."""


class Talker:
    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    def open(self, start: Start, history: History) -> Iterator[State | None]:
        """A missing input within the horizon is a `SessionError`; before it, it counts as a listening unit."""
        state = State(start.seed, opened_with(start.options)["loop"], start.begin)

        def advance(unit: Unit) -> None:
            if "llm" not in unit.inputs and unit.number < start.begin - FIELD:
                state.k = 0
            else:
                _hear(state, unit)

        yield from self._cost.fold(history.units, advance)
        yield state

    def step(self, batch: Sequence[tuple[State, Unit]]) -> Sequence[Result | SessionError]:
        with self._cost.step(len(batch)):
            return [_row(state, unit) for state, unit in batch]

    def horizon(self, state: State) -> int:
        return max(0, state.next - FIELD)

    def close(self, state: State) -> None:
        del state

    def footprint(self) -> Footprint:
        return self._cost.footprint()


def gain(k: int, d: float) -> float:
    """Of the `k`-th spoken unit of an utterance, from 1, with the draw `d`."""
    return (0.5 + 0.5 * min(1, k / FIELD)) * (1 + 0.1 * (d - 0.5))


def _row(state: State, unit: Unit) -> Result | SessionError:
    try:
        feature = _hear(state, unit)
        d, codes = None, Codes()
        if feature is not None:
            d = _draw(state, unit)
            codes = Codes.of({"samples": feature * gain(state.k, d)})
    except SessionError as error:
        return error
    state.next = unit.number + 1
    return Result({"codec": codes, "llm": feedback(d)} if state.loop else {"codec": codes}, record=d)


def _hear(state: State, unit: Unit) -> Floats | None:
    """The feature of a spoken unit, float64 [1920], which is counted; `None` for a listening unit."""
    feature = array(unit, "llm", "feature", "<f8", (UNIT_SAMPLES,))
    first = array(unit, "llm", "first", "|b1", ())
    if feature is None or first is None:
        state.k = 0
        return None
    state.k = 1 if first else min(state.k + 1, FIELD)
    return feature


def _draw(state: State, unit: Unit) -> float:
    if unit.record is None:
        return draw(state.seed, unit.number, "talker", 0)
    if not isinstance(unit.record, float) or not 0 <= unit.record < 1:
        raise SessionError(f"{unit.record!r} is no record of a parrot's talker (unit {unit.number})")
    return unit.record


def load(options: Mapping[str, Any]) -> StageModel[State]:
    """`options` as `worker_options` returns them, and `sleep`, see `Cost`."""
    return Talker(Cost(options))
