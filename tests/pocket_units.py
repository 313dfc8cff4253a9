"""The pocket model's talker and codec in a row, unit by unit, as a session has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from duologue.bus.messages import AnyBody, Condition, Start
from duologue.models import ROOT
from duologue.models.pocket import MANIFEST
from duologue.stage.model import History, Result, StageModel, Unit
from duologue_talker.pocket_hibari import Spelling

UNIT = MANIFEST.output_samples
Pcm = npt.NDArray[np.int16]


def spell(clause: str) -> Spelling:
    """A phoneme for every letter."""
    words = clause.split()
    ids = np.array([ord(letter) for letter in clause if letter.isascii() and letter.isalnum()], np.int64)
    return Spelling(ids, [sum(map(len, words[:n])) for n in range(len(words))])


def opened(model: StageModel[Any], start: Start | None = None, history: Sequence[Unit] = ()) -> Any:
    *pauses, state = model.open(start or Start(seed=1), History(history))
    assert pauses == [None] * len(pauses)
    return state


def stepped(model: StageModel[Any], state: Any, unit: Unit) -> Result:
    (result,) = model.step([(state, unit)])
    assert isinstance(result, Result), result
    return result


def condition(text: str = "", end: bool = False, stop: bool = False) -> Condition:
    arrays: dict[str, npt.NDArray[Any]] = {}
    if text:
        arrays["text"] = np.frombuffer(text.encode(), np.uint8)
    for name, given in (("end", end), ("stop", stop)):
        if given:
            arrays[name] = np.array(1, np.uint8)
    return Condition.of(arrays) if arrays else Condition()


def samples(body: AnyBody) -> Pcm:
    """int16 [1920] of a codec's body for the root."""
    return np.zeros(UNIT, np.int16) if body.marker else body.arrays()["pcm"]


@dataclass
class Run:
    """What came of a session of talker and codec."""

    codes: list[AnyBody] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    horizons: list[tuple[int, int]] = field(default_factory=list)
    """Talker's and codec's after each unit."""

    @property
    def pcm16(self) -> Pcm:
        return np.concatenate([samples(result.out[ROOT]) for result in self.results])

    @property
    def texts(self) -> list[str]:
        return [result.text for result in self.results]

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def left(self) -> list[int]:
        return [left_of(result.out["llm"]) for result in self.results]


def left_of(body: AnyBody) -> int:
    return 0 if body.marker else int(body.arrays()["left"])


def say(
    talker: StageModel[Any],
    codec: StageModel[Any],
    told: Mapping[int, Condition],
    *,
    seed: int = 1,
    most: int = 12_000,
) -> Run:
    """Steps both until everything that the llm `told`, by unit, is said."""
    run = Run()
    start = Start(seed)
    states = opened(talker, start), opened(codec, start)
    for number in range(most):
        spelled = stepped(talker, states[0], Unit(number, {"llm": told.get(number, Condition())}))
        codes = spelled.out["codec"]
        run.codes.append(codes)
        run.results.append(stepped(codec, states[1], Unit(number, {"talker": codes})))
        run.horizons.append((talker.horizon(states[0]), codec.horizon(states[1])))
        done = run.results[-1].out["llm"].marker and run.horizons[-1] == (number + 1, number + 1)
        if done and number >= max(told, default=0):
            return run
    raise AssertionError(f"still talking after {most} units")
