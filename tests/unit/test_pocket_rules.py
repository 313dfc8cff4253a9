"""The pocket model's answers by rule: what people ask, however a recogniser spells it, and what is said to it."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue_llm.answers import Question
from duologue_llm.answers.calendar import spoken_date, spoken_time
from duologue_llm.answers.numerals import in_words, ordinal, reading, year
from duologue_llm.answers.rules import Rules
from duologue_llm.answers.sums import solve
from duologue_llm.pocket_phrases import core, greets_first, is_backchannel, is_quiet, plain

pytestmark = pytest.mark.unit

NOW = datetime(2026, 12, 1, 15, 4, tzinfo=UTC)
RULES = Rules(lambda: NOW)


def answer(
    asked: str,
    earlier: Sequence[tuple[str, str]] = (),
    instructions: str | None = None,
    seed: int = 1,
    unit: int = 7,
) -> str:
    question = Question((*earlier, ("user", asked)), instructions, "", seed, unit)
    part = RULES.ask(question).poll()
    assert part.last
    return part.text


EXACT = {
    "What is seven plus five?": "Seven plus five is twelve.",
    "what's 7 plus 5": "Seven plus five is twelve.",
    "7 plus 5?": "Seven plus five is twelve.",
    "7+5": "Seven plus five is twelve.",
    "Seven plus five.": "Seven plus five is twelve.",
    "Hello. What is seven plus five?": "Seven plus five is twelve.",
    "Good morning, what is seven plus five?": "Seven plus five is twelve.",
    "Okay, so what's twelve times twelve?": "Twelve times twelve is one hundred and forty-four.",
    "12 x 12": "Twelve times twelve is one hundred and forty-four.",
    "12 × 12 =": "Twelve times twelve is one hundred and forty-four.",
    "What is half of ninety?": "Half of ninety is forty-five.",
    "What's half of 90?": "Half of ninety is forty-five.",
    "How much is a third of sixty": "A third of sixty is twenty.",
    "what is one hundred divided by eight": "One hundred divided by eight is twelve point five.",
    "Divide 10 by 4.": "Ten divided by four is two point five.",
    "ten over three": "Ten divided by three is about three point three three three.",
    "What is ten minus fourteen?": "Ten minus fourteen is minus four.",
    "100 - 58": "One hundred minus fifty-eight is forty-two.",
    "Subtract three from twenty-one.": "Twenty-one minus three is eighteen.",
    "can you add twenty one and nineteen please": "Twenty-one plus nineteen is forty.",
    "What is the sum of 3.5 and 1.25?": "Three point five plus one point two five is four point seven five.",
    "Multiply six by seven.": "Six times seven is forty-two.",
    "What is the product of eleven and eleven?": "Eleven times eleven is one hundred and twenty-one.",
    "What is twenty percent of fifty?": "Twenty percent of fifty is ten.",
    "what's 15% of 80": "Fifteen percent of eighty is twelve.",
    "two plus three times four": "Two plus three times four is fourteen.",
    "What is nine squared?": "Nine squared is eighty-one.",
    "the square root of a hundred and forty four": (
        "The square root of one hundred and forty-four is twelve."
    ),
    "two to the power of ten": "Two to the power of ten is one thousand and twenty-four.",
    "What is five divided by zero?": "Nothing can be divided by zero.",
    "one thousand two hundred plus three": "One thousand two hundred plus three is one thousand two hundred and three.",
    "What is 1,200 plus 3": "One thousand two hundred plus three is one thousand two hundred and three.",
    "twice twenty one": "Twice twenty-one is forty-two.",
    "What time is it?": "It is three oh four in the afternoon.",
    "what's the time": "It is three oh four in the afternoon.",
    "Can you tell me the time, please?": "It is three oh four in the afternoon.",
    "Do you know what time it is?": "It is three oh four in the afternoon.",
    "Hello. What time is it now?": "It is three oh four in the afternoon.",
    "What day is it?": "Today is Tuesday, December first, twenty twenty-six.",
    "What day is it today?": "Today is Tuesday, December first, twenty twenty-six.",
    "What is today's date?": "Today is Tuesday, December first, twenty twenty-six.",
    "what's the date": "Today is Tuesday, December first, twenty twenty-six.",
    "Which day of the week is it?": "Today is Tuesday, December first, twenty twenty-six.",
    "What day is tomorrow?": "Tomorrow is Wednesday, December second, twenty twenty-six.",
    "what day was yesterday": "Yesterday was Monday, November thirtieth, twenty twenty-six.",
    "What year is it?": "It is twenty twenty-six.",
    "What month is it?": "It is December.",
    "Please repeat: the quick brown fox.": "The quick brown fox.",
    "Please repeat, the quick brown fox": "The quick brown fox.",
    "Repeat after me. Good things take time!": "Good things take time!",
    "Could you please say I am a robot?": "I am a robot?",
    "Say hello world.": "Hello world.",
    "Spell cat.": "C, A, T.",
    "How do you spell necessary?": "N, E, C, E, S, S, A, R, Y.",
    "How is rhythm spelled?": "R, H, Y, T, H, M.",
    "Count to five.": "One, two, three, four, five.",
    "Can you count from three to six?": "Three, four, five, six.",
    "count down from 3": "Three, two, one.",
    "Count to a million.": "That is too far for me. I count no more than one hundred numbers.",
    "What's your name?": "My name is Pocket.",
    "Who are you?": "My name is Pocket.",
    "My name is Anna.": "Nice to meet you, Anna.",
    "Can you hear me?": "Yes, I can hear you.",
    "Testing, one two three.": "Yes, I can hear you.",
    "What's the weather like?": "I don't know that: I have no connection to the outside world.",
    "Turn on the lights.": "I can't do that. All I can do is talk with you.",
    "I love you.": "Thank you, that's kind of you.",
    "What is the date to-morrow?": "Tomorrow is Wednesday, December second, twenty twenty-six.",
    "Spellcat,": "C, A, T.",
    "What is twenty per cent of fifty?": "Twenty percent of fifty is ten.",
    "What did I say?": "You have not said anything before that.",
    "What did you say?": "I have not said anything yet.",
}


@pytest.mark.parametrize(("asked", "expected"), EXACT.items())
def test_one_answer(asked: str, expected: str) -> None:
    assert answer(asked) == expected


HOLDS = {
    "Hello!": "Hello|Hi",
    "Hi there.": "Hello|Hi",
    "Good morning": "Hello|Hi",
    "Goodbye.": "Bye|Goodbye",
    "Good-by,": "Bye|Goodbye",
    "Roll a dye,": "You rolled a (one|two|three|four|five|six)",
    "Good question about physics.": "sorry|no answer|beyond me|don't have",
    "See you later!": "Bye|Goodbye",
    "How are you?": "fine|well",
    "Hello, how are you today?": "fine|well",
    "Hi there, how are you?": "fine|well",
    "Good morning, who are you?": "My name is Pocket",
    "Thank you.": "welcome|pleasure",
    "Thanks a lot!": "welcome|pleasure",
    "What are you?": "cascade of models on this machine",
    "Are you a human?": "computer program",
    "How do you work?": "rules",
    "Who made you?": "program",
    "Help.": "time or the date",
    "What can you do?": "sums",
    "Flip a coin.": "Heads|Tails",
    "Heads or tails?": "Heads|Tails",
    "Roll a die": "You rolled a (one|two|three|four|five|six)",
    "Tell me a joke.": r"[.?!]",
    "Pick a number between three and four.": "Three|Four",
    "What is Duologue?": "server for speech models",
    "What is the capital of France?": "sorry|no answer|beyond me|don't have",
    "": "Hello",
}


@pytest.mark.parametrize(("asked", "pattern"), HOLDS.items())
@pytest.mark.parametrize("seed", range(4))
def test_one_of_several(asked: str, pattern: str, seed: int) -> None:
    assert re.search(pattern, answer(asked, seed=seed))


def test_what_came_before_is_known() -> None:
    earlier = [("user", "My name is Anna."), ("assistant", "Nice to meet you, Anna.")]
    assert answer("What did I say?", earlier) == "You said: My name is Anna."
    assert answer("What's my name?", earlier) == "Your name is Anna."
    assert answer("Say that again, please.", earlier) == "Nice to meet you, Anna."
    assert answer("Pardon?", [("assistant", "The answer is —")]) == "The answer is."
    assert answer("What's my name?") == "You have not told me your name yet."


def test_instructions_give_a_name_and_a_greeting() -> None:
    assert answer("What's your name?", instructions="You are Ada, a clerk.") == "My name is Ada."
    assert answer("Who are you?", instructions="Your name is Bert. Be kind.") == "My name is Bert."
    assert answer("What's your name?", instructions="You are a clerk.") == "My name is Pocket."
    assert answer("", instructions='Greet the user with "Welcome to the zoo!"') == "Welcome to the zoo!"
    assert answer("Hello", instructions="You are Ada.") == "Hello! I'm Ada. How can I help you?"


def test_draws_depend_on_seed_and_unit_alone() -> None:
    flips = [answer("Flip a coin.", unit=unit) for unit in range(40)]
    assert flips == [answer("flip a coin", unit=unit) for unit in range(40)]
    assert 10 < flips.count("Heads.") < 30
    assert len({answer("What is the capital of France?", unit=unit) for unit in range(40)}) == 4


def test_what_is_no_sum() -> None:
    for text in (
        "seven",
        "I have five apples",
        "plus",
        "seven plus",
        "half",
        "one two three",
        "the five of us",
    ):
        assert solve(plain(text)) is None


def test_too_large_a_number_is_not_said() -> None:
    assert solve("ten to the power of sixty") == "That number is too big for me to say."
    assert solve("one trillion times one trillion") == "That number is too big for me to say."


@given(st.integers(0, 10**15 - 1))
def test_a_number_in_words_is_read_back(value: int) -> None:
    words = plain(in_words(value)).split()
    assert reading(words) == (value, len(words))


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_a_fraction_is_read_back_to_three_places(value: int, part: int) -> None:
    exact = Fraction(value, part)
    words = plain(in_words(exact)).removeprefix("about ").split()
    read = reading(words)
    assert read is not None
    assert abs(read[0] - exact) <= Fraction(1, 2000)
    assert in_words(exact).startswith("about") == (exact != round(exact, 3))


@given(st.text(max_size=80))
def test_nothing_that_is_said_breaks_a_rule(text: str) -> None:
    assert answer(text)
    is_quiet(text), is_backchannel(text)


@pytest.mark.parametrize(
    "text",
    [
        "minus " * 2600,
        "what is " + "double " * 400 + "two plus two",
        "5% of " * 2600,
        "what is the time" + " please" * 2300,
        "pick a number between " * 700,
        "a. " * 5000,
    ],
)
def test_a_message_made_to_be_hard_ends_nobody_and_delays_nobody(text: str) -> None:
    """Rules run within a step.  Once such a message, in a session's `input`, ended the worker with all of its sessions by
    its depth, or, by its length, had it taken for hung."""
    began = process_time()
    assert answer(text)
    assert process_time() - began < 0.3  # it was up to 1 s; now it is some 10 ms


def test_numbers_as_people_say_them() -> None:
    assert reading(["a", "hundred", "and", "five"]) == (105, 4)
    assert reading(["twenty", "one", "two"]) == (21, 2)
    assert reading(["nineteen", "five"]) == (19, 1)
    assert reading(["5", "million"]) == (5_000_000, 2)
    assert reading(["a", "cat"]) is None
    assert [ordinal(day) for day in (1, 2, 3, 5, 8, 12, 20, 21, 30, 31)] == [
        *("first", "second", "third", "fifth", "eighth", "twelfth", "twentieth", "twenty-first"),
        *("thirtieth", "thirty-first"),
    ]
    assert [year(each) for each in (1905, 1999, 2000, 2005, 2010, 2026)] == [
        *("nineteen oh five", "nineteen ninety-nine", "two thousand", "two thousand and five"),
        *("twenty ten", "twenty twenty-six"),
    ]


def test_time_and_date_are_words() -> None:
    def at(hour: int, minute: int) -> str:
        return spoken_time(NOW.replace(hour=hour, minute=minute))

    assert at(0, 0) == "midnight"
    assert at(12, 0) == "noon"
    assert at(0, 30) == "twelve thirty in the morning"
    assert at(13, 0) == "one o'clock in the afternoon"
    assert at(21, 45) == "nine forty-five in the evening"
    assert spoken_date(NOW.replace(day=23)) == "Wednesday, December twenty-third, twenty twenty-six"


QUIET = ("Stop.", "stop!", "Stop, please.", "Be quiet.", "Okay, stop.", "Please be quiet now.", "Shut up!", "Stop talking.",
         "That's enough.", "Never mind.", "No, no, stop!", "Stop, please stop now.", "No, please stop.", "Stop it.", "Quiet!")  # fmt: skip


@pytest.mark.parametrize("text", QUIET)
def test_who_wants_silence_gets_it(text: str) -> None:
    assert is_quiet(text)


@pytest.mark.parametrize(
    "text",
    ["Where is the bus stop?", "Don't stop.", "Stop the clock and tell me the time", ""],
)
def test_who_wants_something_else_gets_an_answer(text: str) -> None:
    assert not is_quiet(text)


def test_listening_noises_are_no_turns() -> None:
    assert all(map(is_backchannel, ("Mm-hmm.", "Uh-huh", "Yeah.", "Okay.", "I see.", "Right, okay.", "Mhm")))
    assert not any(map(is_backchannel, ("Yes I do", "No.", "Okay stop", "", "Right now?")))


def test_plain_and_core() -> None:
    assert plain("What’s 3.5 + 4, please?") == "what is 3.5 + 4 please"
    assert plain("Twenty-one: 'yes' 1,000.") == "twenty one yes 1000"
    assert core("Um, okay, what's up, please?") == "what is up"
    assert core("Hello?") == "hello"


def test_who_speaks_first() -> None:
    assert greets_first("Greet the user and offer help.")
    assert greets_first("Start the conversation by welcoming them.")
    assert not greets_first("You are helpful.")
    assert not greets_first(None)
