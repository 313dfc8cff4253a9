"""What the pocket model's encoder makes of recordings: words, turns, false alarms, delays, processor time."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from duologue.bus.messages import Audio, Heard, Start
from duologue.models import ROOT
from duologue.models.pocket import INPUT_RATE, UNIT_SAMPLES
from duologue.stage.loading import load
from duologue.stage.model import History, SessionError, StageModel, Unit
from duologue.testing.recordings import Spoken
from duologue.testing.words import word_errors, words

UNIT_S = UNIT_SAMPLES / INPUT_RATE
BEFORE_S, AFTER_S = 1.0, 2.5
"""Silence around a recording."""
LOUD = 0.08
"""From the first to the last sample above this part of the loudest one a recording is speech: recordings have noise."""

Pcm = npt.NDArray[np.int16]


@dataclass(slots=True)
class Turn:
    """What the model is given to answer, in unit `given`."""

    text: str
    first: int
    end: int
    given: int


@dataclass(slots=True)
class Overheard:
    """Of one session.  `onsets`: units in which speech began; `heard`: the transcript, with the unit that brought it."""

    seconds: float
    cpu_s: float = 0.0
    turns: list[Turn] = field(default_factory=list)
    onsets: list[int] = field(default_factory=list)
    heard: list[tuple[Heard, int]] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(turn.text for turn in self.turns)

    @property
    def transcript(self) -> str:
        return "".join(piece.text for piece, _ in self.heard)


def encoder(options: Mapping[str, Any] | None = None) -> StageModel[Any]:
    """Recognition is done within the step, so that what comes of a recording is always the same."""
    return load("encoder", "pocket", {"inline": True, **(options or {})})


def overhear(half: StageModel[Any], pcm: Pcm) -> Overheard:
    """int16 [n] at 16 kHz as a session of its own, a last partial unit left out.  Raises `SessionError`."""
    *_, state = half.open(Start(0), History())
    found, before, speech = Overheard(len(pcm) / INPUT_RATE), time.process_time(), False
    for number in range(len(pcm) // UNIT_SAMPLES):
        body = Audio.of({"pcm": pcm[number * UNIT_SAMPLES : (number + 1) * UNIT_SAMPLES]})
        (result,) = half.step([(state, Unit(number, {ROOT: body}))])
        if isinstance(result, SessionError):
            raise result
        arrays = result.out["llm"].arrays()
        if "speech" in arrays and not speech:
            found.onsets.append(number)
        speech = "speech" in arrays
        if "text" in arrays:
            first, end = arrays["span"].tolist()
            found.turns.append(Turn(bytes(arrays["text"]).decode(), first, end, number))
        found.heard += [(piece, number) for piece in result.heard]
        found.records.append(result.record)
    found.cpu_s = time.process_time() - before
    half.close(state)
    return found


@dataclass(slots=True)
class Recognition:
    """Over some recordings, each a session.  `delays_s`: from the end of the sound to the unit's end in which the model
    has the turn, waiting for recognition left out; `onsets_s`: likewise from its beginning to its being noticed."""

    words: int = 0
    errors: int = 0
    transcript_errors: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    delays_s: list[float] = field(default_factory=list)
    onsets_s: list[float] = field(default_factory=list)
    wrong: list[tuple[str, str, str]] = field(default_factory=list)
    """(name, what was said, what was understood)"""

    @property
    def word_error_rate(self) -> float:
        return self.errors / self.words


def recognition(half: StageModel[Any], recordings: Sequence[Spoken]) -> Recognition:
    found = Recognition()
    before, after = (np.zeros(round(s * INPUT_RATE), np.int16) for s in (BEFORE_S, AFTER_S))
    for spoken in recordings:
        overheard = overhear(half, np.concatenate([before, spoken.pcm, after]))
        said = words(spoken.text)
        errors = word_errors(said, words(overheard.text))
        found.words += len(said)
        found.errors += errors
        found.transcript_errors += word_errors(said, words(overheard.transcript))
        found.seconds += len(spoken.pcm) / INPUT_RATE
        found.cpu_s += overheard.cpu_s
        if errors:
            found.wrong.append((spoken.name, spoken.text, overheard.text))
        level = np.abs(spoken.pcm.astype(np.int32))
        loud = np.flatnonzero(level > LOUD * level.max())
        if len(loud) and overheard.turns:
            begins, ends = (BEFORE_S + at / INPUT_RATE for at in (loud[0], loud[-1] + 1))
            found.delays_s.append((overheard.turns[-1].given + 1) * UNIT_S - ends)
            found.onsets_s.append((overheard.onsets[0] + 1) * UNIT_S - begins)
    return found


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """What was taken for speech where there is none: `worst_minute` is the most of them within 60 s."""

    seconds: float
    onsets: int
    worst_minute: int
    texts: list[str]

    @property
    def per_minute(self) -> float:
        return 60 * self.onsets / self.seconds


def false_alarms(half: StageModel[Any], pcm: Pcm) -> FalseAlarms:
    found = overhear(half, pcm)
    minute = round(60 / UNIT_S)
    worst = max((sum(at <= other < at + minute for other in found.onsets) for at in found.onsets), default=0)
    return FalseAlarms(found.seconds, len(found.onsets), worst, [turn.text for turn in found.turns])
