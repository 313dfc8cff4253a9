"""The parrot's encoder: a DC blocker, and who is active (DESIGN §8)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from duologue.bus.messages import Features, Start
from duologue.models import ROOT
from duologue.models.parrot import UNIT_SAMPLES, Cost, Floats, array, attempt, one_pole, rms
from duologue.stage.model import Footprint, History, Result, SessionError, StageModel, Unit

POLE = 0.995
LOUD = 0.01
"""A unit is loud above this root mean square."""
HANGOVER = 2
"""Units that stay active after a loud one."""
SETTLE = 8
"""Units after which a filter that began from nothing is as good as one that heard all.

In exact arithmetic the state depends on every sample before.  The two differ by at most |x| + 0.995 |y| < 3 where
the younger begins (the impulse response's absolute sum is 2), and by 3 * 0.995**(1920 * 8) = 1.1e-33 < 2**-106 after
8 units: that is lost in the rounding of any sample above 2**-53, and 28 orders of magnitude below one LSB.  So the
horizon is approximate by the letter, and exact for the loudness and for every int16 sample that comes of it.
"""
FIELD = SETTLE + HANGOVER
"""Units on which a state depends: those of the hangover must have been judged by a settled filter."""


@dataclass(slots=True)
class State:
    x: float = 0.0
    y: float = 0.0
    hangover: int = 0
    next: int = 0


class Encoder:
    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    def open(self, start: Start, history: History) -> Iterator[State | None]:
        """A missing input within the horizon is a `SessionError`; before it, the filter begins anew after it."""
        state = State()

        def advance(unit: Unit) -> None:
            if ROOT not in unit.inputs and unit.number < start.begin - FIELD:
                state.x, state.y, state.hangover = 0.0, 0.0, 0
                return
            result = self._advance([(state, unit)])[0]
            if isinstance(result, SessionError):
                raise result

        yield from self._cost.fold(history.units, advance)
        state.next = start.begin
        yield state

    def step(self, batch: Sequence[tuple[State, Unit]]) -> Sequence[Result | SessionError]:
        with self._cost.step(len(batch)):
            return self._advance(batch)

    def horizon(self, state: State) -> int:
        return max(0, state.next - FIELD)

    def close(self, state: State) -> None:
        del state

    def footprint(self) -> Footprint:
        return self._cost.footprint()

    def _advance(self, batch: Sequence[tuple[State, Unit]]) -> list[Result | SessionError]:
        heard = [attempt(_samples, unit) for _, unit in batch]
        rows = [row for row, x in enumerate(heard) if not isinstance(x, SessionError)]
        if not rows:
            return [x for x in heard if isinstance(x, SessionError)]
        states = [batch[row][0] for row in rows]
        x = np.stack([x for x in heard if not isinstance(x, SessionError)])
        before = np.concatenate([np.array([[state.x] for state in states]), x[:, :-1]], axis=1)
        y = one_pole(x - before, POLE, np.array([state.y for state in states]))
        loud = rms(y) > LOUD
        results: dict[int, Result] = {}
        for i, row in enumerate(rows):
            state, unit = batch[row]
            active = bool(loud[i]) or state.hangover > 0
            state.hangover = HANGOVER if loud[i] else max(0, state.hangover - 1)
            state.x, state.y, state.next = float(x[i, -1]), float(y[i, -1]), unit.number + 1
            results[row] = Result({"llm": Features.of({"feature": y[i]}) if active else Features()})
        return [x if isinstance(x, SessionError) else results[row] for row, x in enumerate(heard)]


def _samples(unit: Unit) -> Floats:
    pcm = array(unit, ROOT, "pcm", "<i2", (UNIT_SAMPLES,))
    return np.zeros(UNIT_SAMPLES) if pcm is None else pcm / 32768.0


def load(options: Mapping[str, Any]) -> StageModel[State]:
    """`options` as `worker_options` returns them, and `sleep`, see `Cost`."""
    return Encoder(Cost(options))
