"""The pocket model's talker: text to clauses to phonemes, one clause a unit.

A clause costs about a millisecond, so that it is read within the step: the talker has no threads, decides nothing that a
record would have to keep, and a long answer costs a step no more than a short one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import structlog

from duologue.bus.messages import Codes, Malformed, Start
from duologue.stage.model import Footprint, History, Result, SessionError, StageModel, Unit
from duologue.stage.rows import one_by_one
from duologue_talker.pocket_clauses import next_clause
from duologue_talker.pocket_hibari import Phonemes, Spelling

MOST_CHARACTERS = 16_384
"""Of text that waits, about 15 minutes of speech.  What comes beyond that is not taken; the llm hears from the codec
that it was not said."""
MOST_PHONEMES = 400
"""Of a clause, hibari's own bound.  Digits can be read as far more than they are written."""
HOLD_UNITS = 6
"""After so long without more text, what is there of a clause is said."""
QUIET_UNITS = 125
"""After so long without more text, an answer that has no end is over."""
QUANTUM = 16
"""Units of history that are folded between two yields of an opening."""

log = structlog.get_logger()


class Phonemiser(Protocol):
    """What another synthesiser brings for this stage.  Its `ids` need mean something only to its other half in the
    codec."""

    def __call__(self, clause: str) -> Spelling: ...


@dataclass(slots=True)
class Answer:
    text: str = ""
    """What is still to be read."""
    first: bool = True
    ended: bool = False


@dataclass(slots=True)
class State:
    next: int
    answers: list[Answer] = field(default_factory=list)
    """Only the last one may get more text."""
    since: int = 0
    """The unit since which there were always `answers`."""
    quiet: int = 0


class Talker:
    def __init__(self, phonemise: Phonemiser) -> None:
        self._phonemise = phonemise

    def open(self, start: Start, history: History) -> Iterator[State | None]:
        state = State(start.begin)
        for done, unit in enumerate(history.units, start=1):
            # Where the input is not known it is older than anything that is still to be said.
            if "llm" in unit.inputs:
                self._step(state, unit)
            if done % QUANTUM == 0:
                yield None
        state.next = start.begin
        yield state

    def step(self, batch: Sequence[tuple[State, Unit]]) -> Sequence[Result | SessionError]:
        return one_by_one(self._step, batch)

    def horizon(self, state: State) -> int:
        """Which clause is next depends on all text since the queue was empty."""
        return state.since if state.answers else state.next

    def close(self, state: State) -> None:
        state.answers.clear()

    def footprint(self) -> Footprint:
        return Footprint(fixed_bytes=130 << 20, session_bytes=128 << 10)

    def _step(self, state: State, unit: Unit) -> Result:
        stop = _hear(state, unit)
        arrays = self._next(state)
        if stop:
            arrays["stop"] = np.array(1, np.uint8)
        waiting = sum(len(answer.text.strip()) for answer in state.answers)
        if waiting:
            arrays["more"] = np.array(waiting, np.int64)
        state.next = unit.number + 1
        return Result({"codec": Codes.of(arrays) if arrays else Codes()})

    def _next(self, state: State) -> dict[str, Any]:
        """The arrays of the next clause, none if none is complete."""
        if not state.answers:
            return {}
        answer = state.answers[0]
        complete = answer.ended or state.quiet >= HOLD_UNITS
        clause, rest = next_clause(answer.text, answer.first, complete)
        spelling = Spelling(np.zeros(0, np.int64), [])
        if clause.strip():
            clause, spelling = self._read(clause)
            rest = answer.text[len(clause) :]
            answer.first = False
        answer.text = rest
        if not rest.strip() and (answer.ended or state.quiet >= QUIET_UNITS):
            state.answers.pop(0)
        if not clause.strip():
            return {}
        said = clause.encode()
        return {
            "clauses": np.array([[len(spelling.ids), len(said)]], np.int64),
            "phonemes": spelling.ids,
            "text": np.frombuffer(said, np.uint8),
            "words": np.array(list(zip(spelling.starts, word_bytes(clause), strict=True)), np.int64).reshape(
                -1, 2
            ),
        }

    def _read(self, clause: str) -> tuple[str, Spelling]:
        """The clause, or so much of it as is not read out at too great length."""
        while True:
            try:
                spelling = self._phonemise(clause)
            except Exception as error:
                # It reads text that nobody has foreseen; the session need not end with it.
                log.warning("a clause can't be read", characters=len(clause), why=type(error).__name__)
                return clause, Spelling(np.zeros(0, np.int64), [0] * len(clause.split()))
            if len(spelling.ids) <= MOST_PHONEMES or len(clause.strip()) < 2:
                return clause, spelling
            middle = len(clause) // 2
            space = clause.rfind(" ", 0, middle)
            clause = clause[: space if clause[: max(space, 0)].strip() else middle]


def _hear(state: State, unit: Unit) -> bool:
    """Takes what the llm sent; whether it was a stop."""
    body = unit.inputs.get("llm")
    if body is None:
        raise SessionError(f"unit {unit.number} came without its input from llm")
    try:
        arrays = body.arrays()
    except Malformed as error:
        raise SessionError(f"unit {unit.number} from llm: {error}") from error
    stop = "stop" in arrays
    if stop:
        state.answers.clear()
    text = arrays["text"].tobytes().decode(errors="replace") if "text" in arrays else ""
    state.quiet = 0 if text else min(state.quiet + 1, QUIET_UNITS)
    if text:
        _take(state, unit.number, text)
    if "end" in arrays and state.answers:
        state.answers[-1].ended = True
    return stop


def _take(state: State, unit: int, text: str) -> None:
    room = MOST_CHARACTERS - sum(len(answer.text) for answer in state.answers)
    if len(text) > room:
        log.warning("text beyond what may wait", characters=len(text) - room)
    if not room:
        return
    if not state.answers:
        state.since = unit
    if not state.answers or state.answers[-1].ended:
        state.answers.append(Answer())
    state.answers[-1].text += text[:room]


def word_bytes(clause: str) -> list[int]:
    """UTF-8 bytes of each word with the white space before it; the last one's with that behind it, too."""
    words = clause.split()
    lengths = []
    at = 0
    for number, word in enumerate(words, start=1):
        end = clause.index(word, at) + len(word) if number < len(words) else len(clause)
        lengths.append(len(clause[at:end].encode()))
        at = end
    return lengths


def load(options: Mapping[str, Any]) -> StageModel[State]:
    """`options` as `worker_options` returns them."""
    del options
    try:
        return Talker(Phonemes())
    except ModuleNotFoundError as error:
        raise RuntimeError(f"the pocket model needs {error.name}: pip install 'duologue[pocket]'") from error
