"""What the pocket model's talker and codec say is understood by a recogniser that is not the model's own."""

from typing import Any

import numpy as np
import pytest

import duologue_codec.pocket as codec
import duologue_talker.pocket as talker
from duologue.models.pocket import OUTPUT_RATE
from duologue.testing.words import word_errors, words
from oracle import Oracle
from pocket_units import condition, say

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SENTENCES = [
    "Hello, I am Duologue, a small model on your own machine.",
    "Seven plus five is twelve.",
    "It is half past seven in the evening.",
    "Today is Tuesday, the first of December.",
    "You said that the train leaves at nine.",
    "I can tell you the time and the date, and I can do sums.",
    "I did not understand that. Please say it again.",
    "The capital of France is Paris.",
    "Please speak a little more slowly.",
    "Twenty divided by four is five.",
    "The meeting was moved to Thursday afternoon at three.",
    "Water boils at one hundred degrees.",
    "Cat is spelled C, A, T.",
    "Good night, and thank you for talking to me.",
    "I am sorry, but I can not answer questions about the weather.",
    "There are sixty minutes in an hour.",
    "My favorite color is green, because it reminds me of the forest.",
    "Would you like to hear another story?",
    "The quick brown fox jumps over the lazy dog.",
    "All right, I will stop now.",
]
WORST = 0.10
"""Word error rate."""


@pytest.fixture(scope="module")
def stages() -> tuple[Any, Any]:
    return talker.load({}), codec.load({"inline": True})


def test_an_independent_recogniser_understands_it(oracle: Oracle, stages: tuple[Any, Any]) -> None:
    wrong, total, heard = 0, 0, []
    for sentence in SENTENCES:
        pcm16 = say(*stages, {0: condition(sentence, end=True)}).pcm16
        heard.append(oracle.hear(np.concatenate([pcm16, np.zeros(OUTPUT_RATE, np.int16)]), OUTPUT_RATE))
        total += len(words(sentence))
        wrong += word_errors(words(sentence), words(heard[-1]))
    assert wrong / total <= WORST, heard


def test_what_a_stop_cut_off_is_not_heard(oracle: Oracle, stages: tuple[Any, Any]) -> None:
    text = "The meeting was moved to Thursday afternoon. The capital of France is Paris."
    stopped = say(*stages, {0: condition(text, end=True), 25: condition(stop=True)})
    heard = words(oracle.hear(np.concatenate([stopped.pcm16, np.zeros(OUTPUT_RATE, np.int16)]), OUTPUT_RATE))
    assert "paris" not in heard
    assert "meeting" in heard
    # A word that had just begun may not be understood, and a word is timed to a third of a second.
    told = words(stopped.text)
    assert abs(len(told) - len(heard)) <= 2, (stopped.text, heard)
