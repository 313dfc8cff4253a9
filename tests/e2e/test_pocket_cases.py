"""Questions spoken to the whole pocket model, and what a recogniser that is not its own hears in the answers."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pytest

from duologue import offline
from duologue.models.pocket import INPUT_RATE, OUTPUT_RATE
from duologue.testing.conversations import CASES, Case, answers
from duologue.testing.spoken import spoken
from oracle import Oracle

Pcm = npt.NDArray[np.int16]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

RIGHT = 0.9
LISTEN_S = 5.0
"""After each question."""
IN_A_ROW = 8
"""Questions of one session."""


def conversation(cases: Sequence[Case], seed: int) -> list[Pcm]:
    """What is said from the beginning of each question to that of the next one: int16 [n] at the output rate."""
    silence = np.zeros(round(LISTEN_S * INPUT_RATE), np.int16)
    asked = [
        np.concatenate([spoken(case.asked, INPUT_RATE, seed=seed + n), silence])
        for n, case in enumerate(cases)
    ]
    answer = offline.run("pocket", np.concatenate(asked), {"inline": True}, seed)["arrays"]["pcm16"]
    ends = np.cumsum([len(each) for each in asked]) * OUTPUT_RATE // INPUT_RATE
    return np.split(answer, ends[:-1])


def test_the_answers_fit_the_questions(oracle: Oracle) -> None:
    assert len(CASES) == 40
    wrong = []
    for first in range(0, len(CASES), IN_A_ROW):
        cases = CASES[first : first + IN_A_ROW]
        now = datetime.now()
        for case, answer in zip(cases, conversation(cases, first), strict=True):
            heard = oracle.hear(answer, OUTPUT_RATE)
            if not answers(case, heard, now):
                wrong.append((case.asked, heard))
    assert len(wrong) <= (1 - RIGHT) * len(CASES), wrong
    print(f"{len(CASES) - len(wrong)} of {len(CASES)} right; not: {wrong}")
