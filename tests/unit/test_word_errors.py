"""The word error rate, by hand-counted examples."""

import pytest

from duologue.testing.words import spelled, word_error_rate, words

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("reference", "hypothesis", "errors"),
    [
        ("a b c d", "a b c d", 0),
        ("A, b; c - d!", "a b c d", 0),
        ("a b c d", "a x c d", 1),
        ("a b c d", "a c d", 1),
        ("a b c d", "a b b c d", 1),
        ("a b c d", "", 4),
        ("a b c d", "w x y z 1", 5),
        ("press 21 or 500", "press twenty one or five hundred", 0),
        ("don’t", "don't", 0),
    ],
)
def test_errors_are_counted_in_words(reference: str, hypothesis: str, errors: int) -> None:
    assert word_error_rate(reference, hypothesis) == pytest.approx(errors / len(words(reference)))


def test_without_words_there_is_no_rate() -> None:
    with pytest.raises(ValueError, match="no words"):
        word_error_rate("...", "a")


@pytest.mark.parametrize(
    ("digits", "said"),
    [
        ("0", "zero"),
        ("13", "thirteen"),
        ("40", "forty"),
        ("99", "ninety nine"),
        ("100", "one hundred"),
        ("2026", "two thousand twenty six"),
        ("007", "zero zero seven"),
        ("12345", "one two three four five"),
    ],
)
def test_numbers_are_spelled(digits: str, said: str) -> None:
    assert spelled(digits).split() == said.split()
