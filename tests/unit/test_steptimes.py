"""What steps cost by their rows, learnt from steps."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue.stage.steptimes import RECENT, Line, StepTimes

pytestmark = pytest.mark.unit

PROBED = {rows: 0.008 + rows * 0.0005 for rows in (1, 2, 4, 8, 16)}
"""8 ms, and half a millisecond a row."""


def line_of(*steps: tuple[int, float], probed: dict[int, float] | None = None) -> Line:
    times = StepTimes()
    times.probed(probed or {})
    for rows, seconds in steps:
        times.add(rows, seconds)
    found = times.line()
    assert found is not None
    return found


def test_nothing_is_known_without_a_step() -> None:
    assert StepTimes().line() is None
    assert StepTimes().most_rows == 0


@given(base_ms=st.floats(0, 50), row_ms=st.floats(0, 5), sizes=st.sets(st.integers(1, 64), min_size=2))
def test_a_straight_line_is_found(base_ms: float, row_ms: float, sizes: set[int]) -> None:
    found = line_of(*((rows, base_ms + rows * row_ms) for rows in sorted(sizes)))
    assert found.at(40) == pytest.approx(base_ms + 40 * row_ms, abs=1e-6)
    assert found.base_s >= 0
    assert found.row_s >= 0


def test_steps_that_were_held_up_do_not_bend_it() -> None:
    rng = random.Random(1)
    steps = [(rows, 0.008 + rows * 0.0005) for rows in (3, 4, 5, 6) for _ in range(20)]
    held_up = [(rows, seconds + (0.3 if rng.random() < 0.2 else 0.0)) for rows, seconds in steps]
    assert line_of(*held_up, probed=PROBED) == pytest.approx((0.008, 0.0005), abs=1e-6)


def test_one_size_promises_nothing_for_larger_ones() -> None:
    assert line_of((4, 0.010)) == Line(0.0, 0.0025)


def test_one_size_has_the_shape_that_was_probed() -> None:
    """On a device that is twice as slow as it was then."""
    found = line_of(*[(8, 2 * PROBED[8])] * 30, probed=PROBED)
    assert found == pytest.approx((0.016, 0.001), rel=1e-6)


def test_live_steps_outweigh_what_was_probed() -> None:
    """A step grew dearer by the row since."""
    live = [(rows, 0.008 + rows * 0.002) for rows in (4, 8, 12) for _ in range(20)]
    assert line_of(*live, probed=PROBED).row_s == pytest.approx(0.002, rel=0.2)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 0.2)), min_size=1, max_size=20), st.booleans())
def test_it_never_goes_below_zero(steps: list[tuple[int, float]], probed: bool) -> None:
    found = line_of(*steps, probed=PROBED if probed else None)
    assert found.base_s >= 0
    assert found.row_s >= 0


def test_the_old_is_forgotten() -> None:
    times = StepTimes()
    times.probed(PROBED)
    times.add(32, 1.0)
    assert times.most_rows == 32
    for _ in range(RECENT):
        times.add(2, PROBED[2])
    assert times.most_rows == 16
    assert times.line() == pytest.approx((0.008, 0.0005), abs=1e-6)
    times.add(2, 5.0)
    times.forget()
    assert times.line() == pytest.approx((0.008, 0.0005), abs=1e-6)


@pytest.mark.parametrize(
    ("line", "seconds", "rows"),
    [
        (Line(0.008, 0.0005), 0.068, 50),
        (Line(0.008, 0.0005), 0.0101, 4),
        (Line(0.008, 0.0005), 0.008, 0),
        (Line(0.010, 0.0), 0.020, 50),
        (Line(0.0, 0.0), 0.020, 50),
        (Line(0.0, 0.001), 0.004, 4),
    ],
)
def test_rows_within(line: Line, seconds: float, rows: int) -> None:
    assert line.rows_within(seconds, 50) == rows
