"""How many more sessions a worker takes."""

from typing import Any

import pytest

from duologue.stage.headroom import HIGH, IDLE_UNITS, SAMPLES, WINDOW_UNITS, Headroom, Pace
from edge import Clock

pytestmark = pytest.mark.unit

UNIT_S = 0.08
PROBED = {rows: rows * 0.002 for rows in (1, 2, 4, 8, 16, 32)}
"""2 ms a row."""


class Bench:
    def __init__(self, probed: dict[int, float] | None = None, **options: Any) -> None:
        self.clock = Clock()
        self.headroom = Headroom(UNIT_S, clock=self.clock, **{"places": 64, **options})
        if probed is not None:
            self.headroom.probed(probed)

    def unit(self, *batches: tuple[int, float], step_s: float | None = None) -> None:
        """A unit's time with these batches: rows, and how long their units took in all."""
        for rows, stage_s in batches:
            self.clock.now += UNIT_S / len(batches)
            self.headroom.stepped(step_s or 0.002 * rows, [stage_s] * rows)


def test_the_cap_counts_where_nothing_else_does() -> None:
    bench = Bench()
    assert [bench.headroom.free(sessions) for sessions in (0, 10, 64, 70)] == [64, 54, 0, 0]
    assert bench.headroom.pace(10) == Pace(0.0, 0.0)


def test_memory_counts_where_it_is_less() -> None:
    assert Bench(memory_places=7).headroom.free(5) == 2
    assert Bench(memory_places=700).headroom.free(5) == 59
    assert Bench(memory_places=0).headroom.free(0) == 0


def test_a_step_of_all_sessions_must_fit_into_the_unit() -> None:
    """At 2 ms a row, 34 of them take 68 ms of 80."""
    assert Bench(PROBED).headroom.free(4) == 30
    assert Bench(PROBED, utilisation=0.5).headroom.free(4) == 16
    assert Bench({1: 0.069}).headroom.free(0) == 0, "one session alone takes too long"


def test_what_is_measured_now_counts_for_more_than_the_probe() -> None:
    bench = Bench(PROBED)
    for _ in range(20):
        bench.unit((4, 0.016), (4, 0.016), step_s=0.016)
    assert bench.headroom.free(8) == 17 - 8, "twice as slow as it was"


def test_a_cautious_worker_takes_twice_what_it_has_measured() -> None:
    few = {1: 0.0001, 2: 0.0001}
    assert Bench(few).headroom.free(0) == 64
    assert Bench(few, cautious=True).headroom.free(0) == 4
    assert Bench(few, cautious=True).headroom.free(4, fresh=4) == 0, "those show in no measurement yet"
    assert Bench(few, cautious=True).headroom.free(4, fresh=1) == 2
    assert Bench(few, cautious=True).headroom.free(40) == 24
    assert Bench(cautious=True).headroom.free(0) == 2, "nothing was measured at all"


def test_the_stated_time_is_that_of_nearly_every_unit() -> None:
    bench = Bench(PROBED)
    for _ in range(10):
        bench.unit((3, 0.006), (5, 0.010), (4, 0.008))
    assert bench.headroom.pace(12) == pytest.approx(Pace(0.010, 0.002))


def test_where_units_wait_another_session_may_cost_twice() -> None:
    bench = Bench(PROBED)
    for _ in range(10):
        bench.unit((6, 0.023), (6, 0.023))
    assert bench.headroom.pace(12) == pytest.approx(Pace(0.023, 0.004))


def test_a_stall_is_not_the_sessions_doing() -> None:
    """Beyond a wait for everybody's step and that step itself."""
    bench = Bench(PROBED)
    for _ in range(10):
        bench.unit((2, 0.5))
    assert bench.headroom.pace(2).stage_s == pytest.approx(2 * 0.004 + UNIT_S / 20)


def test_the_window_moves_on() -> None:
    bench = Bench(PROBED)
    for _ in range(10):
        bench.unit((8, 0.016))
    for _ in range(WINDOW_UNITS + 1):
        bench.unit((2, 0.004))
    assert bench.headroom.pace(8).stage_s == pytest.approx(0.004)
    bench.clock.now += (WINDOW_UNITS + 1) * UNIT_S
    assert bench.headroom.pace(8) == pytest.approx(Pace(0.0, 0.002)), "no unit came for a while"


def test_what_a_new_session_costs_shows_when_it_is_not_fresh_any_more() -> None:
    """The fullest of four bundles has become fuller by one, for half of the window."""
    bench = Bench(PROBED)
    light = [(4, 0.008)] * 3
    for _ in range(10):
        bench.unit((5, 0.010), *light)
    for _ in range(3):
        bench.unit((6, 0.012), *light)
    assert bench.headroom.pace(18).stage_s == pytest.approx(0.012)
    assert HIGH == 0.9


def test_a_worker_that_was_slow_once_gets_another_chance() -> None:
    bench = Bench(PROBED)
    for _ in range(50):
        bench.unit((1, 0.2), step_s=0.2)
    assert bench.headroom.free(1) == 0
    bench.clock.now += (IDLE_UNITS + 1) * UNIT_S
    assert bench.headroom.free(0) == 34


def test_memory_of_measurements_is_bounded() -> None:
    bench = Bench()
    for _ in range(200):
        bench.unit((64, 0.01))
    assert len(bench.headroom._units) == SAMPLES
