"""The pocket model's llm: listens, thinks, speaks, lets itself be interrupted.  What it says comes from an answerer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import structlog

from duologue.bus.messages import AnyBody, Condition, Features, Malformed, Speech, Start
from duologue.errors import place_of
from duologue.models import Message
from duologue.models.pocket import CONTEXT_CHARACTERS
from duologue.stage.model import Footprint, History, Result, SessionError, StageModel, Unit
from duologue.stage.rows import one_by_one
from duologue_llm import pocket_duplex as duplex
from duologue_llm.answers import Answerer, Answering, Part, Question
from duologue_llm.answers.call import SORRY
from duologue_llm.answers.choice import choose
from duologue_llm.answers.question import Whole
from duologue_llm.pocket_duplex import MOST_CHARACTERS, RESUME_UNITS, Decision, Do, Heard, State, Told
from duologue_llm.pocket_phrases import greets_first
from duologue_llm.pocket_turns import newest

QUANTUM = 256
"""Units of history between two yields of an opening; one takes some 20 us."""
FIXED_BYTES, SESSION_BYTES = 80 << 20, 1 << 20
"""Measured with rules; the context, its copy in a question, and what the thread of an answer needs."""

log = structlog.get_logger()


class Llm:
    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

    def open(self, start: Start, history: History) -> Iterator[State | None]:
        """Records of the history are followed; a unit without an input is taken for one in which nothing happened.  It may
        begin before `start.context_start`, in units that were decided under an older one.  Raises `SessionError`."""
        known = (_decision(unit) for unit in history.units)
        older = next((decision.context_start for decision in known if decision), start.context_start)
        state = _fresh(start, min(older, start.context_start))
        for done, unit in enumerate(history.units, start=1):
            self._step(state, unit)
            if done % QUANTUM == 0:
                yield None
        duplex.forget(state, start.context_start)
        state.next = start.begin
        yield state

    def step(self, batch: Sequence[tuple[State, Unit]]) -> Sequence[Result | SessionError]:
        return one_by_one(self._step, batch)

    def horizon(self, state: State) -> int:
        return max(0, min(state.context_start, state.next - RESUME_UNITS))

    def close(self, state: State) -> None:
        state.cancel()

    def footprint(self) -> Footprint:
        needs = self._answerer.needs
        return Footprint(FIXED_BYTES + needs.bytes, SESSION_BYTES, thread_share=needs.thread_share)

    def _step(self, state: State, unit: Unit) -> Result:
        number, heard, known = unit.number, _heard(unit), _decision(unit)
        duplex.hear(state, number, heard)
        do = known.do if known else duplex.react(state, number, heard)
        duplex.take(state, number, heard, do)
        asked = do & (Do.ASK | Do.HUSH)
        start = known.context_start if known else duplex.context(state) if asked else state.context_start
        duplex.forget(state, start)
        decision = known or self._gain(state, number, do)
        told = duplex.say(state, number, decision)
        state.next = number + 1
        record = [int(decision.do), decision.text, decision.context_start]
        # Counting it takes longer than all else in a unit in which nothing happens.
        used = state.used if do or decision.text else None
        return Result({"talker": _condition(told)}, record, "", used)

    def _gain(self, state: State, unit: int, do: Do) -> Decision:
        """With what has become known of the answer, where it may be said."""
        answer = state.open
        if answer is None or not duplex.wants_text(state, unit):
            return Decision(do, "", state.context_start)
        if state.job is None:
            state.job = self._ask(_question(state, answer.unit, answer.text))
        part = state.job.poll()
        room = MOST_CHARACTERS - len(answer.text)
        if len(part.text) > room:
            state.cancel()
            part = Part(part.text[:room], True)
        return Decision(do | Do.END if part.last else do, part.text, state.context_start)

    def _ask(self, question: Question) -> Answering:
        try:
            return self._answerer.ask(question)
        except Exception as error:
            # It reads text that nobody has foreseen; the other sessions need not end with it.
            log.warning(
                "no answer", source=type(self._answerer).__name__, why=type(error).__name__, **place_of(error)
            )
            return Whole(SORRY)


def _fresh(start: Start, context_start: int) -> State:
    options = start.options
    messages = [(str(role), str(text)) for role, text in options.get("messages", ())]
    instructions = options.get("instructions")
    before = [] if context_start else _before(messages, CONTEXT_CHARACTERS // 2)
    asked = bool(before) and before[-1][0] == "user"
    return State(
        seed=start.seed,
        instructions=instructions,
        before=before,
        speaks_first=asked or (not messages and greets_first(instructions)),
        budget=CONTEXT_CHARACTERS,
        next=start.begin,
        context_start=context_start,
    )


def _before(messages: list[Message], budget: int) -> list[Message]:
    """The newest that fit into `budget` characters; of one that does not by itself its beginning, for it may be what is to
    be answered."""
    return newest(messages, budget) or [(role, text[:budget]) for role, text in messages[-1:]]


def _question(state: State, unit: int, begun: str) -> Question:
    """`begun`: what the state knows of the answer, where somebody else was thinking of it."""
    *earlier, last = state.exchanges
    messages = [
        *state.before,
        *(message for each in earlier for message in each.messages),
        ("user", last.user),
    ]
    return Question(tuple(messages), state.instructions, begun, state.seed, unit)


def _condition(told: Told) -> Condition:
    arrays: dict[str, Any] = {}
    if told.stop:
        arrays["stop"] = np.array(1, np.uint8)
    if told.text:
        arrays["text"] = np.frombuffer(told.text.encode(), np.uint8)
    if told.end:
        arrays["end"] = np.array(1, np.uint8)
    return Condition.of(arrays) if arrays else Condition()


def _heard(unit: Unit) -> Heard:
    features = _arrays(unit.inputs.get("encoder", Features()))
    feedback = _arrays(unit.inputs.get("codec", Speech()))
    return Heard(
        speech=bool(features.get("speech", False)),
        turn=_text(features),
        began=int(features["span"][0]) if "span" in features else unit.number,
        left=int(feedback.get("left", 0)),
        said=_text(feedback),
    )


def _arrays(body: AnyBody) -> Mapping[str, Any]:
    try:
        return body.arrays()
    except Malformed as error:
        raise SessionError(str(error)) from error


def _text(arrays: Mapping[str, Any]) -> str:
    """What is no UTF-8 is left out."""
    return bytes(arrays["text"]).decode(errors="ignore") if "text" in arrays else ""


def _decision(unit: Unit) -> Decision | None:
    """The record of a unit, if it has one.  Raises `SessionError`."""
    match unit.record:
        case None:
            return None
        case [int(do), str(text), int(context_start)]:
            return Decision(Do(do), text, context_start)
    raise SessionError(f"the record of unit {unit.number} is none of the pocket model's llm")


def load(options: Mapping[str, Any]) -> StageModel[State]:
    """`options` as `worker_options` returns them, and `clock`, which tells the local time (an aware datetime)."""
    return Llm(choose(options))
