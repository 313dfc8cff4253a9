"""The pocket model's llm, unit by unit, against a loop that stands for talker and codec: it says a word a unit, as the
contract of `duologue.models.pocket` has it, and tells the llm two units later."""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duologue.bus.messages import Condition, Features, Speech, Start
from duologue.models.pocket import CONTEXT_CHARACTERS, FEEDBACK_UNITS, prompt
from duologue.stage.model import History, Result, SessionError, Unit
from duologue_llm import pocket
from duologue_llm.answers import Answerer, Answering, Needs, Part, Question
from duologue_llm.answers.call import SORRY
from duologue_llm.answers.rules import Rules
from duologue_llm.pocket_duplex import LOST_UNITS, RESUME_UNITS, Do, State
from duologue_llm.pocket_turns import Exchange, after, newest, trim

pytestmark = pytest.mark.unit

NOW = datetime(2026, 12, 1, 15, 4, tzinfo=UTC)
WORD_SAMPLES = 1920


@dataclass
class Mouth:
    """Talker and codec: a word a unit, beginning in the unit in which it came."""

    words: deque[str] = field(default_factory=lambda: deque(maxlen=10_000))
    said: list[str] = field(default_factory=list)
    """By unit."""

    def unit(self, condition: Condition) -> Speech:
        arrays = condition.arrays()
        if "stop" in arrays:
            self.words.clear()
        if "text" in arrays:
            text = bytes(arrays["text"]).decode()
            self.words.extend(f" {word}" for word in text.split())
        word = self.words.popleft() if self.words else ""
        self.said.append(word)
        if not word:
            return Speech()
        left = np.array(len(self.words) * WORD_SAMPLES, np.int64)
        return Speech.of({"left": left, "text": np.frombuffer(word.encode(), np.uint8)})


class Talk:
    """A session: every unit is stepped by `unit` and kept."""

    def __init__(self, answerer: Answerer | None = None, **options: Any) -> None:
        self.model = pocket.Llm(answerer or Rules(lambda: NOW))
        self.start = Start(seed=5, options=options)
        self.state = opened(self.model, self.start)
        self.mouth = Mouth()
        self.units: list[Unit] = []
        self.conditions: list[Condition] = []
        self.feedback: list[Speech] = []

    def unit(self, speech: bool = False, turn: str = "", began: int | None = None) -> dict[str, Any]:
        number = len(self.units)
        arrays: dict[str, Any] = {"speech": np.array(1, np.uint8)} if speech else {}
        if turn:
            first = max(0, number - 10) if began is None else began
            arrays |= {
                "text": np.frombuffer(turn.encode(), np.uint8),
                "span": np.array([first, number - 4], np.int64),
            }
        inputs: dict[str, Any] = {"encoder": Features.of(arrays) if arrays else Features()}
        if number >= FEEDBACK_UNITS:
            inputs["codec"] = self.feedback[number - FEEDBACK_UNITS]
        result = stepped(self.model, self.state, Unit(number, inputs))
        self.units.append(Unit(number, inputs, result.record))
        condition = result.out["talker"]
        assert isinstance(condition, Condition)
        self.conditions.append(condition)
        self.feedback.append(self.mouth.unit(condition))
        return condition.arrays()

    def run(self, units: int, speech: bool = False) -> None:
        for _ in range(units):
            self.unit(speech)

    def said(self, since: int = 0) -> str:
        return "".join(self.mouth.said[since:]).strip()

    def turns(self) -> list[tuple[str, str]]:
        return [message for exchange in self.state.exchanges for message in exchange.messages]


def opened(model: pocket.Llm, start: Start, history: Sequence[Unit] = ()) -> State:
    *pauses, state = model.open(start, History(history))
    assert pauses == [None] * len(pauses)
    assert state is not None
    return state


def stepped(model: pocket.Llm, state: State, unit: Unit) -> Result:
    (result,) = model.step([(state, unit)])
    assert isinstance(result, Result), result
    return result


class Scripted:
    """Answers piece by piece: each poll gives the next of `parts`; `None` gives nothing."""

    def __init__(self, *parts: str | None) -> None:
        self.parts = parts
        self.questions: list[Question] = []
        self.cancelled = 0

    needs = Needs()

    def ask(self, question: Question) -> Answering:
        self.questions.append(question)
        return _Pieces(self, iter(self.parts))


class _Pieces:
    def __init__(self, of: Scripted, parts: Iterator[str | None]) -> None:
        self._of, self._parts = of, list(parts)

    def poll(self) -> Part:
        text = self._parts.pop(0) if self._parts else None
        return Part(text or "", not self._parts)

    def cancel(self) -> None:
        self._of.cancelled += 1


# ---------------------------------------------------------------- an answer


def test_a_question_is_answered_in_the_unit_in_which_the_turn_is_over() -> None:
    talk = Talk()
    talk.run(8, speech=True)
    talk.run(4)
    condition = talk.unit(turn="What is seven plus five?")
    assert bytes(condition["text"]).decode() == "Seven plus five is twelve."
    assert condition.keys() == {"text", "end"}
    assert all(each.marker for each in talk.conditions[:-1])
    talk.run(9)
    assert talk.said() == "Seven plus five is twelve."
    assert not talk.state.answering
    assert talk.turns() == [
        ("user", "What is seven plus five?"),
        ("assistant", "Seven plus five is twelve."),
    ]
    assert all(unit.record is not None for unit in talk.units)


def test_an_answer_that_comes_in_pieces_is_said_as_it_comes() -> None:
    talk = Talk(Scripted("One,", None, " two,", None, None, " three."))
    talk.unit(turn="Count.")
    talk.run(5)
    texts = [bytes(c.arrays().get("text", b"")).decode() for c in talk.conditions]
    assert texts == ["One,", "", " two,", "", "", " three."]
    assert ["end" in c.arrays() for c in talk.conditions] == [False] * 5 + [True]
    talk.run(6)
    assert talk.said() == "One, two, three."
    assert not talk.state.answering


def test_a_question_carries_the_conversation() -> None:
    answerer = Scripted("Yes.")
    before = [("developer", "Be brief."), ("user", "Hi"), ("assistant", "Hello.")]
    talk = Talk(answerer, **prompt("You are Ada.", before, "heart"))
    talk.unit(turn="Is it?")
    talk.run(5)
    talk.unit(turn="Really?")
    assert answerer.questions[0] == Question(
        (*before, ("user", "Is it?")), "You are Ada.", "", seed=5, unit=0
    )
    assert answerer.questions[1].messages == (
        *before,
        ("user", "Is it?"),
        ("assistant", "Yes."),
        ("user", "Really?"),
    )


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (
            prompt(None, [("assistant", "Hi."), ("user", "What is two plus two?")], ""),
            "What is two plus two?",
        ),
        (prompt("Greet the user.", [], ""), ""),
    ],
)
def test_who_is_asked_before_any_audio_speaks_first(options: dict[str, Any], asked: str) -> None:
    answerer = Scripted("Four.")
    talk = Talk(answerer, **options)
    assert bytes(talk.unit()["text"]) == b"Four."
    assert [question.asked for question in answerer.questions] == [asked]
    talk.run(6)
    assert talk.said() == "Four."
    assert len(answerer.questions) == 1


def test_a_question_too_long_for_the_context_is_answered_by_its_beginning() -> None:
    answerer = Scripted("Four.")
    talk = Talk(
        answerer, **prompt("", [("user", "Hi"), ("user", "What is it? " + "x" * CONTEXT_CHARACTERS)], "heart")
    )
    assert bytes(talk.unit()["text"]) == b"Four."
    ((_, asked),) = answerer.questions[0].messages
    assert asked.startswith("What is it? x")
    assert len(asked) == CONTEXT_CHARACTERS // 2


def test_who_is_asked_nothing_is_silent() -> None:
    talk = Talk(**prompt("You are kind.", [("user", "Hi"), ("assistant", "Hello.")], "heart"))
    talk.run(100)
    assert talk.said() == ""
    assert all(condition.marker for condition in talk.conditions)


# ---------------------------------------------------------------- barge-in


def long_answer(words: int = 60) -> str:
    return " ".join(f"word{number}" for number in range(words)) + "."


def test_speech_over_its_own_stops_it_within_two_units_and_history_has_what_was_said() -> None:
    answerer = Scripted(long_answer())
    talk = Talk(answerer)
    talk.unit(turn="Tell me.")
    talk.run(10)
    began = len(talk.units)
    talk.unit(speech=True)
    assert "stop" in talk.unit(speech=True)
    assert answerer.cancelled == 0  # it was complete
    talk.run(8, speech=True)
    talk.run(4)
    # The words of the first unit of speech were said before the model could know.
    assert talk.said() == " ".join(f"word{number}" for number in range(began + 1))
    talk.unit(turn="Thanks, but what else?")
    talk.run(3)
    assert answerer.questions[1].messages == (
        ("user", "Tell me."),
        ("assistant", talk_until(began + 1) + " —"),
        ("user", "Thanks, but what else?"),
    )


def talk_until(words: int) -> str:
    return " ".join(f"word{number}" for number in range(words))


def test_a_stop_cancels_what_was_still_thought_of() -> None:
    answerer = Scripted("One,", *[None] * 50, " two.")
    talk = Talk(answerer)
    talk.unit(turn="Count.")
    talk.run(1)
    talk.run(2, speech=True)
    assert answerer.cancelled == 1
    talk.run(10, speech=True)
    talk.unit(turn="Something else.")
    assert [question.begun for question in answerer.questions] == ["", ""]


def test_a_single_unit_of_speech_stops_nothing() -> None:
    talk = Talk(Scripted(long_answer(40)))
    talk.unit(turn="Tell me.")
    for _ in range(10):
        talk.unit(speech=True)
        talk.run(3)
    talk.run(10)
    assert talk.said() == long_answer(40)
    assert not any("stop" in condition.arrays() for condition in talk.conditions)


def test_after_a_cough_it_goes_on_with_the_next_word() -> None:
    answerer = Scripted(long_answer(20))
    talk = Talk(answerer)
    talk.unit(turn="Tell me.")
    talk.run(5)
    talk.run(3, speech=True)
    silent_from = len(talk.units)
    talk.run(RESUME_UNITS - 1)
    assert talk.said(silent_from) == ""
    talk.run(30)
    assert talk.said() == long_answer(20)
    assert [turn for turn in talk.turns() if turn[0] == "assistant"] == [("assistant", long_answer(20))]
    assert len(answerer.questions) == 1


def test_after_a_cough_an_unfinished_answer_is_thought_of_again_from_where_it_was() -> None:
    answerer = Scripted("One,", *[None] * 8, " two.")
    talk = Talk(answerer)
    talk.unit(turn="Count.")
    talk.run(2)
    talk.run(3, speech=True)
    talk.run(RESUME_UNITS + 1)
    assert [question.begun for question in answerer.questions] == ["", "One,"]
    assert answerer.questions[1].messages == (("user", "Count."),)


def test_a_listening_noise_over_the_answer_does_not_end_it() -> None:
    talk = Talk(Scripted(long_answer(20)))
    talk.unit(turn="Tell me.")
    talk.run(5)
    talk.run(3, speech=True)
    talk.run(4)
    talk.unit(turn="Mm-hmm.")
    talk.run(60)
    assert talk.said() == long_answer(20)


@pytest.mark.parametrize("text", ["Stop.", "Be quiet!"])
def test_who_wants_silence_gets_it(text: str) -> None:
    answerer = Scripted(long_answer())
    talk = Talk(answerer)
    talk.unit(turn="Tell me.")
    talk.run(5)
    assert "stop" in talk.unit(turn=text)
    at = len(talk.units)
    talk.run(100)
    assert talk.said(at) == ""
    assert len(answerer.questions) == 1
    talk.unit(turn="And now?")
    assert answerer.questions[1].messages[-2:] == (("user", text), ("user", "And now?"))


def test_a_turn_over_the_answer_that_was_too_short_to_stop_it_is_answered() -> None:
    answerer = Scripted(long_answer())
    talk = Talk(answerer)
    talk.unit(turn="Tell me.")
    talk.run(5)
    condition = talk.unit(turn="Why?")
    assert condition.keys() == {"stop"}
    # What was said before the stop is known only now; the new answer waits for it.
    assert talk.unit().keys() == set()
    assert "text" in talk.unit()
    talk.run(4)
    assert talk.turns()[:2] == [("user", "Tell me."), ("assistant", talk_until(6) + " —")]
    assert talk.said(8).startswith("word0 word1")


# ---------------------------------------------------------------- turns in parts


def test_who_goes_on_before_any_answer_was_heard_is_answered_once() -> None:
    answerer = Scripted(*[None] * 5, "Twelve.")
    talk = Talk(answerer)
    talk.run(5, speech=True)
    talk.unit(turn="What is seven", began=0)
    talk.run(1)
    again = len(talk.units)
    talk.run(6, speech=True)
    talk.run(3)
    talk.unit(turn="plus five?", began=again)
    talk.run(12)
    assert [question.asked for question in answerer.questions] == [
        "What is seven",
        "What is seven plus five?",
    ]
    assert answerer.cancelled == 1
    assert talk.said() == "Twelve."
    assert talk.turns() == [("user", "What is seven plus five?"), ("assistant", "Twelve.")]


def test_who_goes_on_much_later_said_something_new() -> None:
    answerer = Scripted(*[None] * 100)
    talk = Talk(answerer)
    talk.unit(turn="Think hard.")
    talk.run(30)
    talk.unit(turn="Are you there?", began=25)
    assert answerer.questions[1].messages == (("user", "Think hard."), ("user", "Are you there?"))


def test_an_answer_waits_while_the_user_speaks_and_comes_if_it_was_a_cough() -> None:
    talk = Talk(Scripted(None, None, "Here."))
    talk.unit(turn="Where?")
    talk.run(8, speech=True)
    assert all(condition.marker for condition in talk.conditions)
    talk.run(RESUME_UNITS - 1)
    assert talk.said() == ""
    talk.run(8)
    assert talk.said() == "Here."


def test_an_answerer_that_breaks_is_apologised_for() -> None:
    class Broken:
        needs = Needs()

        def ask(self, question: Question) -> Answering:
            raise RecursionError

    talk = Talk(Broken())
    talk.unit(turn="What is that?")
    talk.run(12)
    assert talk.said() == SORRY


def test_a_model_on_this_machine_takes_its_memory_and_bounds_the_places() -> None:
    rules = pocket.Llm(Rules(lambda: NOW)).footprint()
    assert rules.thread_share == 0
    local = Scripted()
    local.needs = Needs(1 << 30, 0.2)
    footprint = pocket.Llm(local).footprint()
    assert footprint.fixed_bytes == rules.fixed_bytes + (1 << 30)
    assert footprint.thread_share == 0.2


def test_an_answer_of_which_nothing_is_heard_is_over_at_last() -> None:
    talk = Talk(Scripted("Here."))
    talk.mouth.unit = lambda condition: Speech()  # type: ignore[method-assign]
    talk.unit(turn="Where?")
    talk.run(LOST_UNITS)
    assert not talk.state.answering


# ---------------------------------------------------------------- records and the fold


def fold_of(talk: Talk, since: int = 0, start: Start | None = None) -> State:
    start = start or Start(talk.start.seed, talk.start.options, len(talk.units), talk.state.context_start)
    return opened(talk.model, start, talk.units[since:])


def assert_same(found: State, expected: State) -> None:
    for name in State.__slots__:  # type: ignore[attr-defined]
        if name not in ("job", "speaks_first"):
            assert getattr(found, name) == getattr(expected, name), name


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["silence", "speech", "What is two plus two?", "Stop.", "Mm-hmm.", "Tell me more.", "no words"]
        ),
        st.integers(1, 25),
    ),
    max_size=25,
)


def acted(
    steps: Sequence[Step], answerer: Answerer, check: Callable[[Talk], None] = lambda talk: None
) -> Talk:
    talk = Talk(answerer)
    for what, units in steps:
        if what in ("silence", "speech"):
            for _ in range(units):
                talk.unit(speech=what == "speech")
                check(talk)
        else:
            began = len(talk.units)
            talk.run(min(units, 6), speech=True)
            talk.run(3)
            talk.unit(turn="" if what == "no words" else what, began=began)
            check(talk)
    return talk


def slow_answers(seed: int) -> Answerer:
    """Each time other pieces, as from another machine."""
    rng = random.Random(seed)
    parts = [rng.choice([None, None, " one", " two,", " three four."]) for _ in range(rng.randint(1, 12))]
    return Scripted(*parts)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 10**6))
def test_a_state_is_the_fold_of_inputs_and_records(steps: list[Step], seed: int) -> None:
    talk = acted(steps, slow_answers(seed))

    class Nobody:
        needs = Needs()

        def ask(self, question: Question) -> Answering:
            raise AssertionError("a unit with a record asks nobody")

    folded = fold_of(talk)
    assert_same(folded, talk.state)
    assert_same(fold_of(talk, talk.model.horizon(talk.state)), talk.state)
    replay = pocket.Llm(Nobody())
    state = opened(replay, talk.start)
    for unit, condition in zip(talk.units, talk.conditions, strict=True):
        result = stepped(replay, state, unit)
        assert (result.out["talker"], result.record) == (condition, unit.record)
    assert_same(state, talk.state)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 10**6))
def test_what_holds_in_every_unit(steps: list[Step], seed: int) -> None:
    spoken: list[bool] = []

    def check(talk: Talk) -> None:
        state, condition = talk.state, talk.conditions[-1].arrays()
        assert not state.sending or state.answering
        assert not state.held or state.answering
        assert state.open is None or state.exchanges
        assert state.job is None or state.answering
        assert 0 <= state.used <= 1
        if "text" in condition:
            # Nobody is talked over, and what a stop was for is known before anything new is said.
            assert not state.held
            assert state.stopped + FEEDBACK_UNITS <= len(talk.units) - 1
        spoken.append("text" in condition)

    talk = acted([*steps, ("silence", 25), ("silence", 25)], slow_answers(seed), check)
    talk.run(LOST_UNITS + RESUME_UNITS + 100)
    assert not talk.state.answering
    assert not talk.mouth.words
    for exchange in talk.state.exchanges:
        assert exchange.said.split() == exchange.text.split()[: len(exchange.said.split())]
        assert exchange.interrupted or exchange.said.split() == exchange.text.split()


def test_an_owner_that_takes_over_amid_an_answer_goes_on_with_it() -> None:
    talk = Talk(Scripted("One,", None, " two,", " three."))
    talk.unit(turn="Count.")
    talk.run(2)
    answerer = Scripted(" drei.")
    heir = pocket.Llm(answerer)
    state = opened(heir, Start(5, {}, begin=len(talk.units)), talk.units)
    result = stepped(heir, state, Unit(3, {"encoder": Features(), "codec": talk.feedback[1]}))
    assert answerer.questions == [Question((("user", "Count."),), None, "One, two,", 5, 0)]
    assert result.record == [int(Do.END), " drei.", 0]


def test_a_record_of_something_else_ends_the_session() -> None:
    model = pocket.Llm(Rules(lambda: NOW))
    state = opened(model, Start(1))
    for record in (0, [], ["", "", 0], [0, "x"], {"do": 1}):
        (result,) = model.step([(state, Unit(0, {}, record))])
        assert isinstance(result, SessionError)


# ---------------------------------------------------------------- the context


def test_a_long_conversation_loses_its_oldest_exchanges() -> None:
    answer = "x" * 1900
    answerer = Scripted(answer)
    talk = Talk(answerer, **prompt(None, [("user", "a"), ("assistant", "y" * 1000)], ""))
    talk.mouth.unit = lambda condition: Speech()  # type: ignore[method-assign]
    for _ in range(20):
        talk.unit(turn="Tell me.")
        talk.run(LOST_UNITS + 1)
    assert talk.state.context_start > 0
    assert talk.state.before == []
    assert talk.model.horizon(talk.state) == talk.state.context_start
    assert all(sum(len(text) for _, text in q.messages) <= CONTEXT_CHARACTERS for q in answerer.questions)
    assert (
        max(sum(len(text) for _, text in q.messages) for q in answerer.questions) > CONTEXT_CHARACTERS * 0.8
    )
    assert_same(fold_of(talk), talk.state)
    assert_same(fold_of(talk, talk.state.context_start), talk.state)
    # As a worker does it that takes over.
    begin = talk.model.horizon(talk.state)
    heir = opened(talk.model, Start(talk.start.seed, talk.start.options, begin, begin))
    assert all(stepped(talk.model, heir, unit).record == unit.record for unit in talk.units[begin:])
    assert_same(heir, talk.state)
    starts = [unit.record[2] for unit in talk.units]
    assert starts == sorted(starts)


def test_trim() -> None:
    exchanges = [Exchange(unit, "q" * 10, "a" * 10) for unit in (4, 9, 30)]
    assert trim([], 0, 50) == 0
    assert trim(exchanges, 0, 60) == 0
    assert trim(exchanges, 1, 60) == 4
    assert trim(exchanges, 0, 59) == 9
    assert trim(exchanges, 0, 39) == 30
    assert trim(exchanges, 0, 1) == 30
    assert trim([Exchange(0, "q"), Exchange(5, "q")], 9, 2) == 1
    assert newest([("user", "abc"), ("assistant", "de")], 4) == [("assistant", "de")]
    assert newest([("user", "abc")], 3) == [("user", "abc")]
    assert newest([("user", "abc")], 2) == []


def test_what_is_left_of_an_answer() -> None:
    assert after("One, two. Three.", "One, two.") == " Three."
    assert after("One,  two.", " One, ") == "  two."
    assert after("One.", "") == "One."
    assert after("One.", "One. ") == ""
