"""The measuring client: what it counts as late, and that it does not count what never began."""

from typing import Any

import pytest

from duologue.inprocess import InProcess
from duologue.stage.shell import ShellSettings
from duologue.testing.paced import Outcome, hold
from duologue.virtual import run_virtual

pytestmark = pytest.mark.unit

UNITS = 25
SECONDS = UNITS * 0.08


def held(sessions: int, places: int = 8, **worker_options: float) -> Outcome:
    async def main() -> Outcome:
        settings, limits = ShellSettings(places=places), {"deadline_units": 100.0}
        deployment: Any = InProcess(
            "parrot", worker_options=worker_options, settings=settings, limits=limits, gather_s=0.0
        )
        async with deployment:
            phases = [0.08 * number / sessions for number in range(sessions)]
            return await hold(deployment, phases, 1.0, SECONDS)

    return run_virtual(main(), limit_s=60)


@pytest.mark.parametrize("sessions", [1, 3])
def test_units_in_time_are_counted_and_not_late(sessions: int) -> None:
    outcome = held(sessions, batch_ms=5.0)
    assert (outcome.sessions, outcome.late, outcome.late_share) == (sessions, 0, 0.0)
    assert abs(outcome.units - sessions * UNITS) <= sessions


def test_units_that_take_longer_than_a_unit_are_all_late() -> None:
    """Four times 30 ms: each stage keeps up, and yet every answer comes too late."""
    outcome = held(1, batch_ms=30.0)
    assert outcome.late == outcome.units >= UNITS - 1
    assert outcome.late_share == 1.0


def test_a_stage_that_does_not_keep_up_leaves_units_unanswered_which_are_late() -> None:
    outcome = held(1, batch_ms=200.0)
    assert outcome.late == outcome.units >= UNITS - 1


def test_nothing_is_held_where_not_all_could_start() -> None:
    with pytest.raises(RuntimeError, match="2 sessions could not start"):
        held(3, places=1)
