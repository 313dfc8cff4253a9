"""Spellings that are the same words, and how many words are wrong."""

import pytest

from duologue.testing.words import word_error_rate, word_errors, words

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Twelve! 12", "twelve twelve"),
        ("It’s one hundred and five.", "it is one hundred and five"),
        ("115,000 20% 42", "one hundred fifteen thousand twenty percent forty two"),
        ("1,000,000", "one zero zero zero zero zero zero"),
        ("the 1st, 12th, 20th and 23rd", "the first twelfth twentieth and twenty third"),
        ("I'm sure I can't, won't and don't", "i am sure i can not will not and do not"),
        ("7:30 – half-past", "seven thirty half past"),
        ("agent 007 has John's", "agent zero zero seven has john's"),
        ("", ""),
    ],
)
def test_spellings(text: str, same: str) -> None:
    assert words(text) == same.split()


@pytest.mark.parametrize(
    ("said", "heard", "count"),
    [("a b c", "a b c", 0), ("a b c", "a x c", 1), ("a b c", "b c d", 2), ("a b", "", 2), ("", "a", 1)],
)
def test_errors(said: str, heard: str, count: int) -> None:
    assert word_errors(said.split(), heard.split()) == count


def test_the_rate_is_of_the_words_said() -> None:
    assert word_error_rate("It's 7 o'clock.", "it is seven") == 1 / 4
    with pytest.raises(ValueError, match="no words"):
        word_error_rate("?", "what")
