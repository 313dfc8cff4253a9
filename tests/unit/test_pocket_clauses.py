"""Where an answer is cut."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duologue_talker.pocket_clauses import FIRST_WORDS, MOST_CHARACTERS, next_clause

pytestmark = pytest.mark.unit


def cut(text: str) -> list[str]:
    clauses = []
    while text.strip():
        clause, text = next_clause(text, not clauses, True)
        assert clause.strip()
        clauses.append(clause)
    return clauses


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Yes.", ["Yes."]),
        ("Yes. It is so!  Is it?", ["Yes.", " It is so!", "  Is it?"]),
        ("Seven plus five is twelve.", ["Seven plus five is twelve."]),
        ("It is half past seven, and the sun shines.", ["It is half past seven,", " and the sun shines."]),
        ("It is seven, and the sun shines.", ["It is seven, and the sun shines."]),
        (
            "It is half past seven in the evening, and the sun shines on all of us.",
            ["It is half past seven in the evening,", " and the sun shines on all of us."],
        ),
        (
            "I am a small assistant that runs on your own machine without any network.",
            ["I am a small assistant that runs", " on your own machine without any network."],
        ),
        (
            "Supercalifragilistic expialidocious words follow each other here unjoined always everywhere.",
            ["Supercalifragilistic expialidocious words follow each other here unjoined always everywhere."],
        ),
        ("Dr. Smith and J. K. Rowling met.", ["Dr. Smith and J. K. Rowling met."]),
        ("Fruit, e.g. apples. Yes.", ["Fruit, e.g. apples.", " Yes."]),
        ("Pi is 3.14 at 7:30. So?", ["Pi is 3.14 at 7:30.", " So?"]),
        ('He said "No." Then he left.', ['He said "No."', " Then he left."]),
        ("One\nTwo\n\nThree", ["One\n", "Two\n", "\nThree"]),
        ("Wait... what?! Oh", ["Wait...", " what?!", " Oh"]),
        ("", []),
        ("  \n ", []),
        ("Done. ", ["Done."]),
    ],
)
def test_a_complete_answer(text: str, clauses: list[str]) -> None:
    assert cut(text) == clauses


def test_a_sentence_that_is_too_long_is_cut_at_a_comma_else_between_words() -> None:
    with_commas = "Start. " + ", ".join(["several quite ordinary words"] * 12) + "."
    assert all(clause.endswith((",", ".")) for clause in cut(with_commas))
    without = "Start. " + " ".join(["word"] * 100) + "."
    assert all(set(clause.strip(" .").split()) == {"word"} for clause in cut(without)[1:])
    assert len(cut("x" * 1000)) == -(-1000 // MOST_CHARACTERS)


@pytest.mark.parametrize(
    ("text", "clause", "rest"),
    [
        ("", "", ""),
        ("Hello wor", "", "Hello wor"),
        ("The time is half past seven,", "The time is half past seven,", ""),
        ("Hello there.", "Hello there.", ""),
        ("Hello there. How a", "Hello there.", " How a"),
        ("Hello Dr.", "", "Hello Dr."),
        ("It costs 3.", "It costs 3.", ""),
    ],
)
def test_text_that_may_go_on(text: str, clause: str, rest: str) -> None:
    assert next_clause(text, True, False) == (clause, rest)


@given(st.text(st.sampled_from("ab I.,!?:;—\n\"')…1🙂é "), max_size=400) | st.text(max_size=200))
@example("." * 500)
def test_nothing_is_lost_and_no_clause_is_long(text: str) -> None:
    clauses = cut(text)
    assert "".join(clauses) == text[: len("".join(clauses))]
    assert not text[len("".join(clauses)) :].strip()
    assert all(len(clause.strip()) <= MOST_CHARACTERS for clause in clauses)


@pytest.mark.parametrize("unit", [".", ",;", "A. "])
def test_the_next_clause_is_found_without_reading_all_that_waits_again_and_again(unit: str) -> None:
    text = unit * (16_384 // len(unit)) + "x"
    began = time.process_time()
    assert 0 < len(next_clause(text, True, True)[0]) <= MOST_CHARACTERS
    assert time.process_time() - began < 1, "it took 4 to 10 s"


def test_the_first_clause_of_common_prose_is_short() -> None:
    text = "The quick brown fox jumps over the lazy dog and then it runs away from all of us."
    first, *others = cut(text)
    assert len(first.split()) <= FIRST_WORDS
    assert len(others) == 1, "and no other is cut for that"
