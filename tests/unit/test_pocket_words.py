"""What a recogniser's text tells."""

import pytest

from duologue_encoder.pocket_words import agreed, complete, follows, words

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What day is it?", True),
        ("Where are you from?", True),
        ("Stop!", True),
        ("Press one to send a reply.", True),
        ("I would like to", False),
        ("Say the.", False),
        ("Milk, eggs, and...", False),
        ("First of all, before you go,", False),
        ("If you and the,", False),
        ("Count to five,", None),
        ("Good-by,", None),
        ("What is seven plus five", None),
        ("It was.", None),
        ("", None),
        ("...", None),
    ],
)
def test_where_a_sentence_may_end(text: str, expected: bool | None) -> None:
    assert complete(text) is expected


def test_what_is_no_word() -> None:
    assert words(" Well ... I - don't — know. 7! ") == ["Well", "I", "don't", "know.", "7!"]


def test_agreement_is_of_words_and_not_of_their_spelling() -> None:
    assert agreed("please enter Your".split(), "Please, enter your agent".split()) == 3
    assert agreed("please center".split(), "please enter".split()) == 1
    assert agreed([], ["a"]) == 0


@pytest.mark.parametrize(
    ("shown", "final", "rest"),
    [
        ("", "one two", "one two"),
        ("one two", "one two three", "three"),
        ("won too", "one two three", "three"),
        ("one two", "one and two three", "three"),
        ("one two", "two three", "three"),
        ("one two three", "one two", ""),
        ("one two", "", ""),
    ],
)
def test_the_rest_follows_what_was_shown_though_it_was_wrong(shown: str, final: str, rest: str) -> None:
    heard = final.split()
    assert heard[follows(shown.split(), heard) :] == rest.split()
