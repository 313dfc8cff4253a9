"""The pocket model's encoder: voice activity, end of turn, recognition (`pocket_voice`, `pocket_hearing`,
`pocket_moonshine`).

A record is [probability of speech in ‰, first unit on whose record the state depends, and where a hypothesis came in
this unit, its first unit, its end and its text].
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from duologue.bus.messages import Features, Malformed, Start
from duologue.models import ROOT
from duologue.models.pocket import INPUT_RATE, UNIT_SAMPLES
from duologue.stage.background import Background, Lane
from duologue.stage.model import Footprint, History, Result, SessionError, StageModel, Unit
from duologue_encoder import pocket_moonshine, pocket_voice
from duologue_encoder.pocket_hearing import Hearing
from duologue_encoder.pocket_turn import LONGEST, LONGEST_TURN, Job, Kind, Recognised, Said
from duologue_encoder.pocket_voice import Ear, Voice

SETTLE = -(-int(pocket_voice.SETTLE_S * INPUT_RATE) // UNIT_SAMPLES)
"""Units after which the network judges as if it had heard all that was before."""
IN_PASSING_S = 0.6
"""What is recognised in passing may take so long, and comes after what is to be answered."""
PASSES = 2.5
"""What a talker takes of the recogniser's thread, in times of what it takes to recognise all that they say once: they also
pause, but what is recognised in passing comes on top, as far as nobody waits.  So that on two cores, where the other
processes take as much again, as many are let in as are answered within 2 s (docs/pocket.md)."""
FIXED_BYTES, SESSION_BYTES = 250_000_000, 1_000_000
"""Measured with all weights loaded; the sound of the longest segment, and what Python adds."""

SILENCE = np.zeros(UNIT_SAMPLES, np.int16)

Pcm = npt.NDArray[np.int16]
Recognise = Callable[[Pcm], str]


class Record(NamedTuple):
    per_mille: int
    since: int
    came: Recognised | None


@dataclass(slots=True)
class State:
    lane: Lane
    hearing: Hearing
    ear: Ear = field(default_factory=Ear)
    sound: dict[int, Pcm] = field(default_factory=dict)
    """Of the units from `hearing.needs` on."""
    asked: tuple[Job, Future[str]] | None = None


class Encoder:
    """`recognise` is called from one thread of its own, or with `inline` within `step`; `share` of
    that thread a session takes."""

    def __init__(
        self, voice: Voice, recognise: Recognise, *, inline: bool = False, share: float = 0.0
    ) -> None:
        self._voice, self._recognise, self._share = voice, recognise, share
        self._background = Background("recogniser", inline=inline)

    def open(self, start: Start, history: History) -> Iterator[State | None]:
        """Records, of the history or of units yet to be stepped, are followed, and nothing in them is recognised.  Units
        before those on whose records the state depends only settle the network; a missing input among the last ones is
        a `SessionError`."""
        units = history.units
        state = State(self._background.lane(1), Hearing(next=_first(start, units)))
        for unit in units:
            if ROOT not in unit.inputs and unit.number >= start.begin - SETTLE:
                raise SessionError(f"no input of unit {unit.number} to open from")
            p = self._heard(state.ear, _pcm(unit))
            state.sound[unit.number] = _pcm(unit)
            self._fold(state, unit, p, None)
            yield None
        yield state

    def step(self, batch: Sequence[tuple[State, Unit]]) -> Sequence[Result | SessionError]:
        results: dict[int, Result | SessionError] = {}
        heard: list[tuple[Ear, Pcm]] = []
        rows: list[int] = []
        for row, (state, unit) in enumerate(batch):
            try:
                heard.append((state.ear, _pcm(unit)))
                rows.append(row)
            except SessionError as error:
                results[row] = error
        for row, windows in zip(rows, self._voice.hear(heard), strict=True):
            state, unit = batch[row]
            try:
                state.sound[unit.number] = _pcm(unit)
                came = _arrived(state) if unit.record is None else None
                results[row] = self._fold(state, unit, float(np.mean(windows)), came)
                if unit.record is None:
                    self._ask(state)
            except SessionError as error:
                results[row] = error
        return [results[row] for row in range(len(batch))]

    def horizon(self, state: State) -> int:
        return max(0, min(state.hearing.since, state.hearing.needs, state.hearing.next - SETTLE))

    def close(self, state: State) -> None:
        state.lane.cancel()
        state.sound.clear()

    def footprint(self) -> Footprint:
        return Footprint(FIXED_BYTES, SESSION_BYTES, thread_share=self._share)

    def _heard(self, ear: Ear, pcm: Pcm) -> float:
        return float(np.mean(self._voice.hear([(ear, pcm)])[0]))

    def _fold(self, state: State, unit: Unit, p: float, came: Recognised | None) -> Result:
        hearing = state.hearing
        record = _record(unit)
        if unit.number < hearing.next:
            # It settles the network, and nobody wants what it sends.
            return Result({"llm": Features()}, unit.record)
        per_mille, came = (round(1000 * p), came) if record is None else (record.per_mille, record.came)
        words, said = hearing.step(
            per_mille / 1000, came, lambda first, end: _quietest(state.sound, first, end)
        )
        for old in [number for number in state.sound if number < hearing.needs]:
            del state.sound[old]
        if len(state.sound) > LONGEST_TURN + LONGEST:
            raise SessionError("recognition is a minute behind")
        decided = unit.record or [per_mille, hearing.since, *(came or ())]
        return Result({"llm": _features(hearing.speech, said)}, decided, heard=tuple(words))

    def _ask(self, state: State) -> None:
        wanted = state.hearing.wanted
        if state.asked is not None and state.asked[0] != wanted:
            state.lane.cancel()
            state.asked = None
        if wanted is None or state.asked is not None:
            return
        wait_s = IN_PASSING_S if wanted.kind is Kind.PARTIAL else 0.0
        if wait_s and self._background.behind:
            # Or else partial hypotheses, most of all the work, would keep others waiting for their answers.
            return
        units = range(wanted.first, wanted.end)
        pcm = np.concatenate([state.sound.get(unit, SILENCE) for unit in units])
        state.asked = wanted, state.lane.submit(lambda: self._recognise(pcm), wait_s)


def _first(start: Start, units: Sequence[Unit]) -> int:
    """The unit from which on records are folded.  An heir begins at the horizon of a state: `SETTLE` units before where that
    state was, or else where its turn began."""
    known = [record.since for unit in units if (record := _record(unit)) is not None]
    if known:
        return known[-1]
    last = start.begin + SETTLE - 1
    record = _record(Unit(last, {}, start.records.get(last, {}).get("encoder"))) if start.begin else None
    if record is not None:
        return max(start.begin, record.since)
    return units[0].number if units else start.begin


def _arrived(state: State) -> Recognised | None:
    if state.asked is None or state.asked[0] != state.hearing.wanted or not state.asked[1].done():
        return None
    (job, future), state.asked = state.asked, None
    if error := future.exception():
        raise SessionError(f"the recogniser failed: {type(error).__name__}")
    return Recognised(job.first, job.end, future.result())


def _features(speech: bool, said: Said | None) -> Features:
    arrays: dict[str, npt.NDArray[Any]] = {}
    if speech:
        arrays["speech"] = np.array(1, np.uint8)
    if said is not None and said.text:
        arrays["text"] = np.frombuffer(said.text.encode(), np.uint8)
        arrays["span"] = np.array([said.first, said.end], np.int64)
    return Features.of(arrays)


def _quietest(sound: Mapping[int, Pcm], first: int, end: int) -> int:
    return min(range(first, end), key=lambda unit: float(np.mean(np.square(sound[unit].astype(np.float64)))))


def _pcm(unit: Unit) -> Pcm:
    """int16 [1280]; zeros of a marker.  Raises `SessionError`."""
    body = unit.inputs.get(ROOT)
    tensor = body.tensors.get("pcm") if body is not None else None
    if tensor is None:
        return SILENCE
    try:
        pcm = tensor.array()
    except Malformed as error:
        raise SessionError(f"unit {unit.number}: {error}") from None
    if pcm.dtype != np.dtype("<i2") or pcm.shape != (UNIT_SAMPLES,):
        raise SessionError(
            f"unit {unit.number}: pcm is {pcm.dtype} {list(pcm.shape)}, not int16 [{UNIT_SAMPLES}]"
        )
    return pcm


def _record(unit: Unit) -> Record | None:
    """Raises `SessionError`."""
    match unit.record:
        case None:
            return None
        case [int(per_mille), int(since)]:
            return Record(per_mille, since, None)
        case [int(per_mille), int(since), int(first), int(end), str(text)]:
            return Record(per_mille, since, Recognised(first, end, text))
    raise SessionError(f"unit {unit.number} has no record of a pocket encoder")


def load(options: Mapping[str, Any]) -> StageModel[State]:
    """`options` as `worker_options` returns them.  Raises `NoRecogniser`, `NoVoiceActivity`."""
    recogniser = pocket_moonshine.Moonshine(pocket_moonshine.find(options.get("recogniser", "")))
    voice = Voice(pocket_voice.find(options.get("vad", "")))
    inline = options.get("inline", False)
    return Encoder(
        voice, recogniser.recognise, inline=inline, share=0.0 if inline else PASSES * recogniser.cost()
    )
