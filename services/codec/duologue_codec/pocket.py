"""The pocket model's codec: synthesises clauses on a thread of its own and cuts them into units.

Each clause is a job; two are prepared ahead.  Where a clause is not ready when its turn comes there is silence until it is.
So what a unit decides is which clauses begin in it, and that is its record: a list of `[came, index, sample]`, the unit in
which the clause came, its place among those of that unit, and the sample of the unit at which it begins.  All else follows
from that, the codes and the seed.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np
import structlog

from duologue.bus.messages import Codes, Malformed, Speech, Start
from duologue.draws import generator
from duologue.models import ROOT
from duologue.models.pocket import MANIFEST
from duologue.stage.background import Background, Lane
from duologue.stage.model import Footprint, History, Result, SessionError, StageModel, Unit
from duologue.stage.rows import one_by_one
from duologue_codec.pocket_clause import CHARACTER, Clause, Floats, Ids, clauses_of, more_of
from duologue_codec.pocket_hibari import Voice

UNIT_SAMPLES = MANIFEST.output_samples
MOST_BYTES = 32_768
"""Of text that waits to be said.  Clauses beyond that are not taken."""
AHEAD = 2
"""Clauses that are synthesised before their turn."""
FADE = 240
"""Samples over which speech ends when it is stopped: 10 ms."""
POLL_S = 0.01
"""An opening that waits for a clause lets the others have their turn so often."""

Begin = tuple[int, int, int]

log = structlog.get_logger()


class Synthesiser(Protocol):
    """What another synthesiser brings for this stage: (ids of phonemes, noise) → float32 [n] at 24 kHz, within ±1,
    without silence around it.  Called on a thread; the same input must give the same samples."""

    def __call__(self, ids: Ids, noise: np.random.Generator) -> Floats: ...


@dataclass(slots=True)
class State:
    seed: int
    next: int
    lane: Lane
    first: int = -1
    """Clauses that came before this unit are not known."""
    # bounded: by `MOST_BYTES` of text
    waiting: deque[Clause] = field(default_factory=deque)
    saying: Clause | None = None
    samples: Floats = field(default_factory=lambda: np.zeros(0, np.float32))
    """Of the clause that is being said; `at` of them are said."""
    at: int = 0
    rest: int = 0
    """Samples that are left of the pause after the clause that came in unit `since`."""
    since: int = 0


@dataclass(slots=True)
class Said:
    """What a unit has of speech so far, up to sample `at`."""

    samples: Floats = field(default_factory=lambda: np.zeros(UNIT_SAMPLES, np.float32))
    at: int = 0
    text: bytes = b""
    begins: list[Begin] = field(default_factory=list)


class Codec:
    def __init__(self, synthesise: Synthesiser, background: Background) -> None:
        self._synthesise, self._background = synthesise, background

    def open(self, start: Start, history: History) -> Iterator[State | None]:
        """A unit whose input is not known had nothing that is still to be said."""
        state = State(start.seed, start.begin, self._background.lane(AHEAD))
        for unit in history.units:
            known = Unit(unit.number, {"talker": Codes(), **unit.inputs}, unit.record)
            said, _ = self._hear(state, known)
            begins = _record(known)
            for clause in list(state.waiting):
                if begins is None or any(begin[:2] == clause.place for begin in begins):
                    yield from self._ready(state, clause)
            self._say(state, known, said, begins)
            state.next = unit.number + 1
            yield None
        state.next = start.begin
        yield state

    def step(self, batch: Sequence[tuple[State, Unit]]) -> Sequence[Result | SessionError]:
        return one_by_one(self._step, batch)

    def horizon(self, state: State) -> int:
        """The unit in which the oldest clause came that is being said, has its pause, or waits."""
        if state.saying is not None:
            return state.saying.came
        if state.rest:
            return state.since
        return state.waiting[0].came if state.waiting else state.next

    def close(self, state: State) -> None:
        _drop(state)

    def footprint(self) -> Footprint:
        return Footprint(fixed_bytes=90 << 20, session_bytes=4 << 20)

    def _step(self, state: State, unit: Unit) -> Result:
        said, more = self._hear(state, unit)
        self._prepare(state)
        self._say(state, unit, said, _record(unit))
        state.next = unit.number + 1
        left = _left(state, more)
        text = said.text.decode(errors="replace")
        sound = np.rint(said.samples * 32767).astype(np.int16)
        pcm = Speech.of({"pcm": sound}) if sound.any() else Speech()
        back = Speech()
        if left or not pcm.marker or text:
            told = {"text": np.frombuffer(said.text, np.uint8)} if said.text else {}
            back = Speech.of({"left": np.array(left, np.int64), **told})
        begins = [list(begin) for begin in said.begins]
        # Of a known record an heir may not know all clauses; it stands all the same.
        return Result({ROOT: pcm, "llm": back}, begins if unit.record is None else unit.record, text)

    def _hear(self, state: State, unit: Unit) -> tuple[Said, int]:
        """Takes what came from the talker; what there is of the unit already, and the characters that the talker has yet
        to read."""
        body = unit.inputs.get("talker")
        if body is None:
            raise SessionError(f"unit {unit.number} came without its input from talker")
        try:
            arrays = body.arrays()
        except Malformed as error:
            raise SessionError(f"unit {unit.number} from talker: {error}") from error
        if state.first < 0:
            state.first = unit.number
        said = _stop(state) if "stop" in arrays else Said()
        for clause in clauses_of(unit.number, arrays):
            if sum(each.text_bytes for each in state.waiting) + clause.text_bytes > MOST_BYTES:
                log.warning("a clause beyond what may wait", bytes=clause.text_bytes)
                continue
            state.waiting.append(clause)
        return said, more_of(unit.number, arrays)

    def _say(self, state: State, unit: Unit, said: Said, begins: Sequence[Begin] | None) -> None:
        """Fills the unit as far as there is something to say, with what `begins` names, or, if that is `None`, with what is
        ready.  Raises `SessionError`."""
        named = None if begins is None else [begin for begin in begins if begin[0] >= state.first]
        while said.at < UNIT_SAMPLES:
            room = UNIT_SAMPLES - said.at
            if state.saying is not None:
                _copy(state, state.saying, said, room)
            elif state.rest:
                part = min(state.rest, room)
                state.rest -= part
                said.at += part
            elif _turn(state, said, named):
                clause = state.waiting.popleft()
                state.saying, state.samples, state.at = clause, self._speech(state, clause), 0
                said.begins.append((*clause.place, said.at))
            else:
                break
        if named:
            raise SessionError(f"the record of unit {unit.number} has clauses that can't begin there")

    def _prepare(self, state: State) -> None:
        """Has the next clauses synthesised; what another session needs sooner comes first."""
        wait = state.rest + len(state.samples) - state.at
        for clause in islice(state.waiting, AHEAD):
            if len(clause.ids):
                self._begin(state, clause, wait / MANIFEST.output_rate)
            wait += clause.estimate

    def _begin(self, state: State, clause: Clause, wait_s: float = 0.0) -> Future[Floats]:
        """Has the clause synthesised.  The noise depends on where it came, and on nothing else."""
        if clause.speech is None:
            noise = generator(state.seed, clause.came, "codec", clause.index)
            clause.speech = state.lane.submit(lambda: self._synthesise(clause.ids, noise), wait_s)
        return clause.speech

    def _ready(self, state: State, clause: Clause) -> Iterator[None]:
        """Waits for its speech; yields meanwhile."""
        if len(clause.ids):
            speech = self._begin(state, clause)
            while not speech.done():
                wait([speech], POLL_S)
                yield None

    def _speech(self, state: State, clause: Clause) -> Floats:
        """Waits if it must, which is only where a record names a clause that is not ready.  Raises `SessionError`."""
        if not len(clause.ids):
            return np.zeros(0, np.float32)
        try:
            return self._begin(state, clause).result()
        except Exception as error:
            raise SessionError(f"synthesis failed: {type(error).__name__}") from error


def _turn(state: State, said: Said, named: list[Begin] | None) -> bool:
    """Whether the clause that is next begins now.  A named one begins at its sample, for what was said before it may not be
    known; those before it that were never said were not taken when they came."""
    if named is None:
        return bool(state.waiting) and state.waiting[0].ready
    if not named:
        return False
    came, index, sample = named[0]
    while state.waiting and state.waiting[0].place < (came, index):
        state.waiting.popleft()
    if not state.waiting or state.waiting[0].place != (came, index) or sample < said.at:
        return False
    named.pop(0)
    said.at = sample
    return True


def _copy(state: State, clause: Clause, said: Said, room: int) -> None:
    part = state.samples[state.at : state.at + room]
    said.samples[said.at : said.at + len(part)] = part
    said.at += len(part)
    state.at += len(part)
    said.text += clause.tell(state.at, len(state.samples))
    if state.at == len(state.samples):
        state.saying, state.rest, state.since = None, clause.pause, clause.came


def _stop(state: State) -> Said:
    """Fades what is being said out and drops all that waits."""
    said = Said()
    if state.saying is not None:
        part = state.samples[state.at : state.at + FADE]
        said.samples[: len(part)] = part * np.linspace(1, 0, FADE, dtype=np.float32)[: len(part)]
        said.at = len(part)
    _drop(state)
    return said


def _drop(state: State) -> None:
    state.lane.cancel()
    state.waiting.clear()
    state.saying, state.samples, state.at, state.rest = None, state.samples[:0], 0, 0


def _left(state: State, more: int) -> int:
    """Samples still to be said after this unit, of what is not being said yet an estimate: whether it is ready must not
    show, for that is no decision."""
    left = sum(clause.estimate for clause in state.waiting) + more * CHARACTER
    if state.saying is not None:
        left += len(state.samples) - state.at
    if state.waiting:
        left = max(left, 1) + state.rest
    return left


def _record(unit: Unit) -> list[Begin] | None:
    """The clauses that begin in the unit, as its record has them.  Raises `SessionError`."""
    if unit.record is None:
        return None
    match unit.record:
        case list() | tuple():
            found = [begin for begin in map(_begin_of, unit.record) if begin is not None]
            if len(found) == len(unit.record):
                return found
    raise SessionError(f"{unit.record!r} is no record of a pocket's codec (unit {unit.number})")


def _begin_of(value: Any) -> Begin | None:
    match value:
        case [int(came), int(index), int(sample)] if 0 <= sample < UNIT_SAMPLES:
            return came, index, sample
    return None


def load(options: Mapping[str, Any]) -> StageModel[State]:
    """`options` as `worker_options` returns them."""
    try:
        return Codec(Voice(), Background("synthesis", inline=options.get("inline", False)))
    except ModuleNotFoundError as error:
        raise RuntimeError(f"the pocket model needs {error.name}: pip install 'duologue[pocket]'") from error
