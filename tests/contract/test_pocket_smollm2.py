"""The pocket model's answers from SmolLM2-135M by llama.cpp, where both are installed (docs/pocket.md says how)."""

import time
from datetime import UTC, datetime

import pytest

from duologue_llm.answers import Answering, Question
from duologue_llm.answers.local import Local, available, packaged
from duologue_llm.answers.rules import Rules

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(
        not available(), reason="SmolLM2 or xllamacpp is not installed (200 MB; docs/pocket.md)"
    ),
]


@pytest.fixture(scope="module")
def local() -> Local:
    path = packaged()
    assert path is not None
    return Local(path, Rules(lambda: datetime(2026, 12, 1, 15, 4, tzinfo=UTC)))


def whole(answering: Answering) -> list[str]:
    pieces, until = [], time.monotonic() + 60
    while time.monotonic() < until:
        part = answering.poll()
        pieces += [part.text] if part.text else []
        if part.last:
            return pieces
        time.sleep(0.01)
    raise AssertionError(f"no end after {pieces}")


def ask(text: str, begun: str = "") -> Question:
    return Question((("user", text),), None, begun, seed=1, unit=2)


def test_it_answers_what_no_rule_knows(local: Local) -> None:
    assert "Paris" in "".join(whole(local.ask(ask("What is the capital of France?"))))


def test_what_a_rule_knows_is_left_to_it(local: Local) -> None:
    assert local.ask(ask("What is seven plus five?")).poll() == ("Seven plus five is twelve.", True)


def test_an_answer_comes_in_clauses_and_ends_with_a_sentence(local: Local) -> None:
    pieces = whole(local.ask(ask("Tell me a story about a cat.")))
    assert len(pieces) > 1
    assert pieces[-1].rstrip().endswith((".", "!", "?", ","))


def test_it_goes_on_with_what_was_begun(local: Local) -> None:
    text = "".join(whole(local.ask(ask("What is the capital of France?", begun="The capital of France is"))))
    assert "Paris" in text
    assert "The capital" not in text[:12]


def test_one_that_is_not_wanted_leaves_the_thread_to_the_next(local: Local) -> None:
    calls = [local.ask(ask(f"Tell me story number {number}.")) for number in range(8)]
    for call in calls:
        call.cancel()
    began = time.monotonic()
    whole(local.ask(ask("Who are the Beatles?")))
    assert time.monotonic() - began < 60
