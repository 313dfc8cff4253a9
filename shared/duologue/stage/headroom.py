"""How many more sessions a worker has room for, by memory and by the time that steps take (DESIGN §4 "Admission")."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from duologue.stage.steptimes import StepTimes

WINDOW_UNITS = 6
"""Stage times count for so many units.  Clients keep their phase, so the load of a unit repeats in the next."""
FRESH_UNITS = 3
"""A session counts as fresh until it was stepped so often: only then does what it changed show in a tenth of the
window."""
SAMPLES = 512
HIGH = 0.9
"""The share of units that the stated stage time covers.  Units arrive in bundles, some four in a unit's time, and all
of the fullest bundle come late together: that is a quarter of the units or more, while a stall of the machine that
hits fewer than a tenth is none of the sessions' doing."""
IDLE_UNITS = 40
"""After so long without a step, what was measured is forgotten in favour of the probe: a worker that once was slow
must not stay closed for ever."""


class Pace(NamedTuple):
    """`stage_s`: how long nearly every unit takes here, from having its inputs to its result, without the sessions
    that are too fresh to show in it.  `more_s`: what each further session adds at most."""

    stage_s: float
    more_s: float


class Headroom:
    """`places` is the cap, `memory_places` what the memory holds, if that is known; stepping all sessions once may
    take `utilisation` of a unit.  A `cautious` worker takes at most twice as many sessions as it has been measured
    with, so that no burst of claims gets ahead of the measuring.  `clock` gives seconds."""

    def __init__(
        self,
        unit_s: float,
        *,
        clock: Callable[[], float],
        places: int,
        memory_places: int | None = None,
        utilisation: float = 0.85,
        cautious: bool = False,
    ) -> None:
        self._unit_s, self._clock = unit_s, clock
        self._cap = places if memory_places is None else min(places, memory_places)
        self._utilisation, self._cautious = utilisation, cautious
        self._steps = StepTimes()
        self._units: deque[tuple[float, float, float]] = deque(maxlen=SAMPLES)
        """Of each unit stepped: when, its seconds here, those of its step."""
        self._stepped_at = clock()

    @property
    def cap(self) -> int:
        """Places at most, whatever the steps take."""
        return self._cap

    @property
    def longest_step_s(self) -> float:
        return self._utilisation * self._unit_s

    def probed(self, found: Mapping[int, float]) -> None:
        """Seconds of a step by its rows, measured before the first session."""
        self._steps.probed(found)

    def stepped(self, step_s: float, stage_s: Sequence[float]) -> None:
        """A step took `step_s`, and each unit in it `stage_s` since it had its inputs."""
        self._stepped_at = now = self._clock()
        self._steps.add(len(stage_s), step_s)
        self._units.extend((now, each, step_s) for each in stage_s)

    def free(self, sessions: int, fresh: int = 0) -> int:
        """Places for sessions beyond the `sessions` here, `fresh` of which show in no measurement yet."""
        self._forget()
        limit = self._cap
        line = self._steps.line()
        if line is not None:
            # All rows in one step: batches become as large as the load makes them, and a worker whose thread never
            # rests keeps up as long as that step fits.  What it means for the delay, `pace` says.
            limit = line.rows_within(self.longest_step_s, limit)
        if self._cautious:
            limit = min(limit, 2 * max(self._steps.most_rows, sessions - fresh, 1))
        return max(0, limit - sessions)

    def pace(self, sessions: int) -> Pace:
        """How long units take here with `sessions` sessions."""
        self._forget()
        line = self._steps.line()
        if line is None:
            return Pace(0.0, 0.0)
        since = self._clock() - WINDOW_UNITS * self._unit_s
        times = sorted((here_s, step_s) for at, here_s, step_s in self._units if at >= since)
        if not times:
            return Pace(line.base_s, line.row_s)
        stage_s, step_s = times[int(HIGH * (len(times) - 1))]
        # Where units wait for the step before theirs, a further session may be in both.
        more_s = line.row_s * (2 if stage_s > 1.5 * step_s else 1)
        # No load explains more than waiting for a step of everybody and then being in one: beyond that it is the
        # machine that stands still, which refusing sessions won't cure.
        return Pace(min(stage_s, 2 * line.at(sessions) + self._unit_s / 20), more_s)

    def _forget(self) -> None:
        if self._clock() - self._stepped_at > IDLE_UNITS * self._unit_s:
            self._steps.forget()
