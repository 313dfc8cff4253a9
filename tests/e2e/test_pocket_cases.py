"""Questions spoken to the whole pocket model, and what a recogniser that is not its own hears in the answers."""

from collections.abc import Iterator
from datetime import datetime

import numpy as np
import pytest

import environments
from duologue import offline
from duologue.models.pocket import INPUT_RATE, OUTPUT_RATE
from duologue.testing.conversations import CASES, answers
from duologue.testing.spoken import spoken
from oracle import Oracle

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

RIGHT = 0.9
LISTEN_S = 5.0
"""After the question."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    try:
        made = Oracle()
    except environments.Unavailable as why:
        if environments.required():
            raise
        pytest.skip(str(why))
    with made:
        yield made


def test_the_answers_fit_the_questions(oracle: Oracle) -> None:
    wrong = []
    for seed, case in enumerate(CASES):
        silence = np.zeros(round(LISTEN_S * INPUT_RATE), np.int16)
        asked = np.concatenate([spoken(case.asked, INPUT_RATE, seed=seed), silence])
        now = datetime.now()
        answer = offline.run("pocket", asked, {"inline": True}, seed)["arrays"]["pcm16"]
        heard = oracle.hear(answer, OUTPUT_RATE)
        if not answers(case, heard, now):
            wrong.append((case.asked, heard))
    assert len(CASES) == 40
    assert len(wrong) <= (1 - RIGHT) * len(CASES), wrong
    print(f"{len(CASES) - len(wrong)} of {len(CASES)} right; not: {wrong}")
