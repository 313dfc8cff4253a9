"""The pocket model's talker: text to clauses to phonemes."""

import time
from typing import Any

import numpy as np
import pytest

from duologue.bus.messages import Condition, Start, Tensor
from duologue.stage.model import SessionError, Unit
from duologue_talker.pocket import HOLD_UNITS, MOST_CHARACTERS, MOST_PHONEMES, QUIET_UNITS, Talker, load
from duologue_talker.pocket_hibari import Phonemes, Spelling
from pocket_units import condition, opened, spell, stepped

pytestmark = pytest.mark.unit


def run(talker: Talker, told: dict[int, Condition], units: int) -> list[dict[str, Any]]:
    """The arrays of each unit's codes."""
    state = opened(talker)
    return [
        stepped(talker, state, Unit(number, {"llm": told.get(number, Condition())})).out["codec"].arrays()
        for number in range(units)
    ]


def texts(codes: list[dict[str, Any]]) -> list[str]:
    return [arrays["text"].tobytes().decode() if "text" in arrays else "" for arrays in codes]


def test_a_clause_a_unit() -> None:
    codes = run(Talker(spell), {1: condition("Yes. It is so. Bye.", end=True)}, 6)
    assert texts(codes) == ["", "Yes.", " It is so.", " Bye.", "", ""]
    second = codes[2]
    assert second["clauses"].tolist() == [[6, len(" It is so.")]]
    assert bytes(second["phonemes"].astype(np.uint8)) == b"Itisso"
    assert second["words"].tolist() == [[0, 3], [2, 3], [4, 4]]
    assert [int(arrays.get("more", 0)) for arrays in codes] == [0, 14, 4, 0, 0, 0]
    assert all(set(arrays) <= {"clauses", "phonemes", "text", "words", "more"} for arrays in codes)
    assert codes[2]["clauses"].dtype == codes[2]["phonemes"].dtype == np.int64


def test_a_clause_in_pieces() -> None:
    told = {0: condition("Hel"), 1: condition("lo there. Ho"), 2: condition("w are", end=True)}
    codes = run(Talker(spell), told, 5)
    assert texts(codes) == ["", "Hello there.", " How are", "", ""]
    assert [int(arrays.get("more", 0)) for arrays in codes] == [3, 2, 0, 0, 0], (
        "what is held back is still to come"
    )


def test_what_does_not_go_on_is_said_anyhow() -> None:
    said = texts(run(Talker(spell), {0: condition("Hello wor")}, HOLD_UNITS + 2))
    assert said == [""] * HOLD_UNITS + ["Hello wor", ""]


def test_stop_drops_what_waits_and_comes_before_new_text() -> None:
    told = {0: condition("One. Two. Three.", end=True), 1: condition("New.", end=True, stop=True)}
    codes = run(Talker(spell), told, 4)
    assert texts(codes) == ["One.", "New.", "", ""]
    assert ["stop" in arrays for arrays in codes] == [False, True, False, False]


def test_each_answer_has_a_short_first_clause() -> None:
    long = "I am a small assistant that runs on your own machine without any network."
    told = {0: condition(long, end=True), 9: condition(long + " " + long, end=True)}
    said = [text for text in texts(run(Talker(spell), told, 14)) if text]
    assert said == [long[:32], long[32:], long[:32], long[32:], " " + long]


def test_answers_that_wait_do_not_run_together() -> None:
    told = {0: condition("One. Two", end=True), 1: condition("Three.", end=True)}
    assert texts(run(Talker(spell), told, 4)) == ["One.", " Two", "Three.", ""]


def test_a_clause_that_is_read_at_length_is_halved() -> None:
    def spell_out(clause: str) -> Spelling:
        return Spelling(np.ones(20 * len(clause), np.int64), [0] * len(clause.split()))

    text = "12345 " * 16
    codes = run(Talker(spell_out), {0: condition(text, end=True)}, 20)
    assert "".join(texts(codes)) == text.rstrip()
    assert all(len(arrays.get("phonemes", ())) <= MOST_PHONEMES for arrays in codes)


def test_what_cannot_be_read_is_silent() -> None:
    def fail(clause: str) -> Spelling:
        raise KeyError(clause)

    (codes,) = run(Talker(fail), {0: condition("One two.")}, 1)
    assert codes["clauses"].tolist() == [[0, 8]]
    assert codes["words"].tolist() == [[0, 3], [0, 5]]


def test_text_that_waits_is_bounded() -> None:
    text = "All work. " * 5000
    codes = run(Talker(spell), {0: condition(text), 1: condition(text, end=True)}, 2500)
    said = "".join(texts(codes))
    assert len(said) <= MOST_CHARACTERS + len("All work.")
    assert text.startswith(said[: MOST_CHARACTERS - 10])
    assert not any(texts(codes)[-100:])


def test_the_horizon_is_the_unit_from_which_on_text_waits() -> None:
    talker = Talker(spell)
    state = opened(talker)
    told = {3: condition("One. Two."), 5: condition(" Three.", end=True)}
    horizons = []
    for number in range(8):
        stepped(talker, state, Unit(number, {"llm": told.get(number, Condition())}))
        horizons.append(talker.horizon(state))
    assert horizons == [1, 2, 3, 3, 3, 6, 7, 8]


def test_an_answer_without_an_end_is_over_some_time() -> None:
    talker = Talker(spell)
    state = opened(talker)
    for number in range(QUIET_UNITS + 5):
        stepped(talker, state, Unit(number, {"llm": condition("One.") if not number else Condition()}))
    assert talker.horizon(state) == QUIET_UNITS + 5


@pytest.mark.parametrize("begin", range(14))
def test_a_state_is_what_its_horizon_makes_it(begin: int) -> None:
    """What a fresh state says that was folded from the horizon on, the old one says."""
    talker = Talker(spell)
    long = "I am a small assistant that runs on your own machine. And more. "
    told = {
        1: condition(long),
        3: condition(long, end=True),
        5: condition("Yes. No", end=True),
        11: condition(stop=True),
    }
    units = [Unit(number, {"llm": told.get(number, Condition())}) for number in range(16)]
    state = opened(talker)
    for unit in units[:begin]:
        stepped(talker, state, unit)
    heir = opened(talker, Start(1, begin=begin), units[talker.horizon(state) : begin])
    for unit in units[begin:]:
        assert stepped(talker, heir, unit) == stepped(talker, state, unit)


def test_bad_input_ends_the_session_alone() -> None:
    talker = Talker(spell)
    good, bad = opened(talker), opened(talker)
    torn = Condition(1, {"text": Tensor("|u1", (9,), b"x")})
    results = talker.step(
        [(bad, Unit(0, {"llm": torn})), (good, Unit(0, {"llm": condition("Yes.")})), (bad, Unit(0, {}))]
    )
    assert [isinstance(result, SessionError) for result in results] == [True, False, True]


# ---------------------------------------------------------------- hibari

TEXTS = [
    "At 7:30 pm, Dr. Smith paid $9.99 for 3 km of rope.",
    "Héllo wörld, naïve café!",
    "привет мир",
    "日本語 です",
    "🙂 👍🏽",
    "!!! ...",
    "**Bold** and `code` and # not",
    "C++ & C# @ 100% ~ 3 < 4 > 2 = x_y\\z | {a}",
    "https://example.org/a?b=c&d=e",
    "[a](/b/) [c](d)",
    "1234567890123456789012345678901234567890",
    "a\u0000b\u200bc\ud7ff",
    "É" * 100,
]


@pytest.fixture(scope="module")
def real() -> Any:
    return load({})


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_gives_phonemes_and_words_that_add_up(real: Any, text: str) -> None:
    codes = run(real, {0: condition(text, end=True)}, 12)
    assert "".join(texts(codes)) == text
    for arrays in codes:
        if "clauses" not in arrays:
            continue
        ((phonemes, size),) = arrays["clauses"].tolist()
        assert len(arrays["phonemes"]) == phonemes <= MOST_PHONEMES
        starts, lengths = arrays["words"].T
        assert lengths.sum() == size == len(arrays["text"])
        assert (np.diff(starts) >= 0).all()
        assert starts[0] == 0
        assert phonemes == 0 or starts[-1] < phonemes
        assert len(starts) == len(arrays["text"].tobytes().decode().split())


def test_words_begin_where_their_phonemes_do(real: Any) -> None:
    (codes,) = run(real, {0: condition("Seven plus five is twelve.", end=True)}, 1)
    ids = codes["phonemes"].tolist()
    assert ids[0] == ids[-1] == 0
    space = 16
    assert codes["words"][1:, 0].tolist() == [at for at, each in enumerate(ids) if each == space]


@pytest.mark.parametrize("unit", ["a-b-", "a/b/"])
def test_a_word_of_many_parts_keeps_nobody_waiting(unit: str) -> None:
    phonemise = Phonemes()
    began = time.process_time()
    assert len(phonemise(unit * 30).ids) > 60
    assert time.process_time() - began < 0.8, "it took 2 s"
