"""The parrot's codec: a one-pole low-pass that rings out into exact zeros (DESIGN §8)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from duologue.bus.messages import Speech, Start
from duologue.models import ROOT
from duologue.models.parrot import UNIT_SAMPLES, Cost, Floats, array, attempt, one_pole
from duologue.stage.model import Footprint, History, Result, SessionError, StageModel, Unit

POLE, DRIVE = 0.7, 0.3
LSB = 1 / 32768
FIELD = 1
"""Units on which a state depends.  0.7**1920 = 4e-298: the carry of the unit before the last is far below half an
ulp of any sample that could round to something else than 0, so every int16 sample is exact."""


@dataclass(slots=True)
class State:
    z: float = 0.0
    next: int = 0


class Codec:
    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    def open(self, start: Start, history: History) -> Iterator[State | None]:
        """A missing input within the horizon is a `SessionError`; before it, the filter begins anew after it."""
        state = State()

        def advance(unit: Unit) -> None:
            if "talker" not in unit.inputs and unit.number < start.begin - FIELD:
                state.z = 0.0
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
        results: list[Result | SessionError] = []
        rows: list[int] = []
        drive: list[Floats] = []
        for row, (state, unit) in enumerate(batch):
            spoken = attempt(_samples, unit)
            if isinstance(spoken, SessionError):
                results.append(spoken)
                continue
            results.append(Result({ROOT: Speech()}))
            state.next = unit.number + 1
            if spoken is None and abs(state.z) < LSB:
                state.z = 0.0
                continue
            rows.append(row)
            drive.append(np.zeros(UNIT_SAMPLES) if spoken is None else spoken)
        if not rows:
            return results
        z = one_pole(DRIVE * np.stack(drive), POLE, np.array([batch[row][0].z for row in rows]))
        pcm = np.clip(np.rint(z * 32768), -32768, 32767).astype(np.int16)
        for i, row in enumerate(rows):
            batch[row][0].z = float(z[i, -1])
            results[row] = Result({ROOT: Speech.of({"pcm": pcm[i]})})
        return results


def _samples(unit: Unit) -> Floats | None:
    return array(unit, "talker", "samples", "<f8", (UNIT_SAMPLES,))


def load(options: Mapping[str, Any]) -> StageModel[State]:
    """`options` as `worker_options` returns them, and `sleep`, see `Cost`."""
    return Codec(Cost(options))
