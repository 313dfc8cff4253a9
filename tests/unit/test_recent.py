"""Running medians."""

import pytest

from duologue.stage.recent import MOST, Recent

pytestmark = pytest.mark.unit


def test_the_median_is_of_the_last_seconds() -> None:
    now = 0.0
    recent = Recent(lambda: now, span_s=5.0)
    assert recent.median() == 0.0
    for value in (9.0, 1.0, 5.0):
        recent.add(value)
    assert recent.median() == 5.0
    now = 4.0
    recent.add(1.0)
    assert recent.median() == 5.0, "the upper of 1 and 5"
    now = 5.1
    assert recent.median() == 1.0
    now = 9.1
    assert recent.median() == 0.0


def test_it_keeps_the_newest() -> None:
    recent = Recent(lambda: 0.0)
    for value in range(3 * MOST):
        recent.add(float(value))
    assert recent.median() == 2 * MOST + MOST // 2
