"""When the pocket model listens, thinks, speaks and falls silent, unit by unit.

A unit: `hear` takes in its inputs, `react` says what to do, `take` does it, `say` adds what of the answer has become known.
A record names all that, so that a state that followed the records of another run, with the same inputs, is that run's.

What was said aloud is known from the codec, `FEEDBACK_UNITS` later.  So after a stop nothing new is said for as long:
what was said until then belongs to the answer that was stopped.
"""

from dataclasses import dataclass, field
from enum import IntFlag
from typing import NamedTuple

from duologue.models import Message
from duologue.models.pocket import FEEDBACK_UNITS
from duologue_llm.answers import Answering
from duologue_llm.pocket_phrases import is_backchannel, is_quiet
from duologue_llm.pocket_turns import Exchange, trim

BARGE_IN_UNITS = 2
"""Units of the user's speech over the model's own that stop it.  The encoder has judged already that it is speech."""
RESUME_UNITS = 19
"""So long after speech that turned out to have no words (1.5 s: by then its end and its words would be known) the model
goes on with what it had to say."""
MERGE_UNITS = 12
"""Who goes on within 1 s after the end of a turn, before any answer was heard, has said one thing in two parts."""
LOST_UNITS = 50
"""An answer of which the codec says nothing for 4 s is over."""
MOST_CHARACTERS = 2000
"""Of an answer: two minutes of speech."""


class Do(IntFlag):
    """What a unit decides."""

    ASK = 1
    """The user's turn is over: an answer is wanted.  One that is on its way is given up."""
    STOP = 2
    """What was not said yet shall not be said."""
    SAY = 4
    """Go on with it after all."""
    END = 8
    """The answer is complete."""
    HUSH = 16
    """The user's turn is over and wants no answer, but silence."""


class Decision(NamedTuple):
    """The record of a unit is this as a list."""

    do: Do
    text: str
    """Of the answer, first known in this unit."""
    context_start: int


class Heard(NamedTuple):
    """A unit's inputs."""

    speech: bool = False
    turn: str = ""
    """What the user said, in the unit in which the turn is over."""
    began: int = 0
    """The unit in which it began."""
    left: int = 0
    """Samples still to be said."""
    said: str = ""
    """`left` and `said` are those of the unit `FEEDBACK_UNITS` before."""


@dataclass(slots=True)
class State:
    seed: int
    instructions: str | None
    before: list[Message]
    """Messages of before the session, which stay in the context while its start is 0."""
    speaks_first: bool
    budget: int
    """Characters of the context."""
    next: int
    context_start: int = 0
    exchanges: list[Exchange] = field(default_factory=list)
    """Within the context.  The last one's answer is open while `answering`."""
    answering: bool = False
    sending: bool = False
    """Of the open answer something was given to the talker and not taken back."""
    held: bool = False
    """The user speaks, or did so just now: the open answer waits."""
    stopped: int = -FEEDBACK_UNITS
    voiced: int = 0
    """The last unit of a stop, and the last in which there was something to say."""
    speech_run: int = 0
    silence_run: int = 0
    left: int = 0
    again: str = ""
    """What is to be said again in this unit, once it is known that the user said nothing."""
    job: Answering | None = None
    """What is thinking of the open answer; the only thing here that is no part of the fold."""

    @property
    def open(self) -> Exchange | None:
        return self.exchanges[-1] if self.answering else None

    @property
    def used(self) -> float:
        """Share of the context that is full."""
        size = sum(exchange.size for exchange in self.exchanges)
        return min(1.0, (size + _size(self.before)) / self.budget)

    def cancel(self) -> None:
        if self.job is not None:
            self.job.cancel()
        self.job = None


def hear(state: State, unit: int, heard: Heard) -> None:
    """The runs stop where nothing more depends on them, so that a state tells no more than its horizon."""
    if heard.speech:
        state.speech_run, state.silence_run = min(state.speech_run + 1, BARGE_IN_UNITS), 0
    else:
        state.speech_run, state.silence_run = 0, min(state.silence_run + 1, RESUME_UNITS)
    state.left = heard.left
    if heard.left or heard.said:
        state.voiced = unit
    if heard.said and (spoken := _spoken(state, unit - FEEDBACK_UNITS)):
        spoken.said += heard.said
    answer = state.open
    if answer is None:
        return
    if heard.speech and not state.sending:
        state.held = True
    over = not answer.rest.strip() or unit - state.voiced >= LOST_UNITS
    if answer.ended and not state.held and state.left == 0 and over:
        state.answering = state.sending = False


def _spoken(state: State, unit: int) -> Exchange | None:
    """Whose answer was said in `unit`."""
    return next((each for each in reversed(state.exchanges) if each.unit <= unit), None)


def react(state: State, unit: int, heard: Heard) -> Do:
    """What is to be done, `state` being as `hear` left it."""
    stop = Do.STOP if state.sending else Do(0)
    if unit == 0 and state.speaks_first:
        return Do.ASK
    if heard.turn:
        if is_quiet(heard.turn):
            return Do.HUSH | stop
        if (state.sending or state.held) and is_backchannel(heard.turn):
            return Do(0)
        return Do.ASK | stop
    if stop and state.speech_run >= BARGE_IN_UNITS:
        return stop
    if state.held and state.silence_run >= RESUME_UNITS:
        return Do.SAY
    return Do(0)


def take(state: State, unit: int, heard: Heard, do: Do) -> None:
    """Does what `react` said, now or in another run; text comes after it."""
    if do & Do.STOP and state.exchanges:
        state.stopped, state.sending, state.held = unit, False, True
        state.exchanges[-1].interrupted = True
        state.cancel()
    if do & Do.ASK:
        _ask(state, unit, heard)
    if do & Do.HUSH:
        _give_up(state)
        state.exchanges.append(Exchange(unit, heard.turn, ended=True))
    if do & Do.SAY and (answer := state.open) is not None:
        state.held = answer.interrupted = False
        state.again = answer.rest


def wants_text(state: State, unit: int) -> bool:
    """Whether what has become known of the answer may be said."""
    answer = state.open
    settled = unit >= state.stopped + FEEDBACK_UNITS
    return answer is not None and not answer.ended and not state.held and settled


class Told(NamedTuple):
    """What the talker is told."""

    stop: bool = False
    text: str = ""
    end: bool = False


def say(state: State, unit: int, decision: Decision) -> Told:
    """Adds the text that became known; returns what the talker is told in this unit."""
    stop = bool(decision.do & Do.STOP)
    answer = state.open
    if answer is None:
        return Told(stop)
    text, state.again = state.again + decision.text, ""
    answer.text += decision.text
    if decision.do & Do.END:
        answer.ended, state.job = True, None
    if text:
        state.sending, state.voiced = True, unit
    return Told(stop, text, answer.ended and bool(decision.do & (Do.END | Do.SAY)))


def context(state: State) -> int:
    """Where the context is to start now."""
    return max(state.context_start, trim(state.exchanges, _size(state.before), state.budget))


def _ask(state: State, unit: int, heard: Heard) -> None:
    last = state.open
    in_parts = (
        last is not None
        and not last.said
        and unit >= state.stopped + FEEDBACK_UNITS
        and not state.sending
        and heard.began <= last.unit + MERGE_UNITS
    )
    _give_up(state)
    if last is not None and in_parts:
        last.user = f"{last.user} {heard.turn}".strip()
        last.text, last.ended, last.interrupted = "", False, False
    elif not heard.turn and state.before and state.before[-1][0] == "user":
        state.exchanges.append(Exchange(unit, state.before.pop()[1]))
    else:
        state.exchanges.append(Exchange(unit, heard.turn))
    state.answering = True


def _give_up(state: State) -> None:
    """The open answer, if there is one, gets no further."""
    state.cancel()
    if (answer := state.open) is not None and (not answer.ended or answer.rest.strip()):
        answer.interrupted = True
    state.answering = state.sending = state.held = False


def forget(state: State, context_start: int) -> None:
    if context_start > state.context_start:
        state.context_start = context_start
        state.before = []
        state.exchanges = [each for each in state.exchanges if each.unit >= context_start]


def _size(messages: list[Message]) -> int:
    return sum(len(text) for _, text in messages)
