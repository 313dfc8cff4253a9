"""Whether one more session may start: a place at every stage beyond the reserve, and all of them fast enough together
(DESIGN §4 "Admission")."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from duologue.models import STAGES
from duologue.stage.headroom import HIGH, WINDOW_UNITS
from duologue_api.placement import Candidate, Roster

SAMPLES = 1024
NEARLY_ALL = 0.99
"""The share of answers that are to be in time."""
SMOOTH = 0.2
"""Weight of the newest measurement: heartbeats that it is taken from are up to 250 ms old."""


class Admission:
    """`unit_s` gives seconds of a unit by model, `gather_s` how long a unit may wait here for others.  A session
    starts where units are expected to be answered within `deadline_units` units; `reserve` places of each stage go to
    no new session, "auto": as many as its largest worker has, where there are several."""

    def __init__(
        self,
        roster: Roster,
        unit_s: Mapping[str, float],
        *,
        clock: Callable[[], float],
        gather_s: float,
        reserve: int | Literal["auto"] = "auto",
        deadline_units: float = 1.0,
    ) -> None:
        self._roster, self._clock, self._reserve = roster, clock, reserve
        self._unit_s = unit_s
        self._deadline_s = {model: deadline_units * each for model, each in unit_s.items()}
        self._least_s = {model: min(gather_s, each / 2) for model, each in self._deadline_s.items()}
        self._overhead_s = dict(self._least_s)
        self._spread_s = dict.fromkeys(unit_s, 0.0)
        self._answers: dict[str, deque[tuple[float, float]]] = {
            model: deque(maxlen=SAMPLES) for model in unit_s
        }
        """(when, seconds from a unit's last sample to its answer), by model."""

    # -- one session

    def pick(
        self, stage: str, model: str, chosen: Mapping[str, str], without: Collection[str] = ()
    ) -> str | None:
        """A worker for `stage`, or `None`.  `chosen` are those of the session's other stages so far."""
        return self._roster.pick(stage, model, without, self._fits(stage, model, chosen, without))

    def has_room(
        self, stage: str, model: str, chosen: Mapping[str, str], without: Collection[str] = ()
    ) -> bool:
        """Whether `pick` would find a worker."""
        return self._roster.has_room(stage, model, without, self._fits(stage, model, chosen, without))

    def why_none(
        self, stage: str, model: str, without: Collection[str], absent: Collection[str]
    ) -> tuple[str, str]:
        """Error code and message where `pick` found nobody; `absent` of those in `without` did not answer."""
        if not self._roster.candidates(stage, model, absent):
            return "model_unavailable", f"No {stage} worker of {model} is ready. Try again later."
        if not self._roster.has_room(stage, model, without):
            why = f"Every {stage} worker of {model} is full."
        elif not self._beyond_reserve(stage, model, without):
            why = f"The {stage} workers of {model} are full but for their reserve."
        else:
            why = f"{model} would not answer another session in time."
        return "session_limit_reached", f"{why} Try again later."

    # -- all sessions

    def answered(self, model: str, waited_s: float | None) -> None:
        """A unit was answered so long after its last sample, if that is known."""
        if waited_s is not None:
            self._answers[model].append((self._clock(), waited_s))

    def measure(self) -> None:
        """To be called every 250 ms or so: how much longer answers take than the stages say, and how much longer the
        slowest of them."""
        for model, answers in self._answers.items():
            since = self._clock() - WINDOW_UNITS * self._unit_s[model]
            recent = sorted(waited_s for at, waited_s in answers if at >= since)
            if not recent:
                continue
            workers = [self._roster.candidates(stage, model) for stage in STAGES]
            stages_s = sum(max((each.stage_s for each in found), default=0.0) for found in workers)
            measured_s = _quantile(recent, HIGH) - stages_s
            # What the stages don't explain is no more than a stall of the machine once it is this long.
            bounded_s = max(self._least_s[model], min(measured_s, self._deadline_s[model] / 2))
            self._overhead_s[model] = _smoothed(self._overhead_s[model], bounded_s)
            spread_s = _quantile(recent, NEARLY_ALL) - _quantile(recent, HIGH)
            self._spread_s[model] = _smoothed(
                self._spread_s[model], min(spread_s, self._deadline_s[model] / 4)
            )

    # -- rules

    def _fits(
        self, stage: str, model: str, chosen: Mapping[str, str], without: Collection[str]
    ) -> Callable[[Candidate], bool]:
        if not self._beyond_reserve(stage, model, without):
            return lambda _: False
        others_s, idle = self._overhead_s[model] + self._spread_s[model], True
        for other in STAGES:
            if other == stage:
                continue
            found = self._roster.candidates(other, model)
            if other in chosen:
                expected = [
                    (each.expected_s, each.sessions - 1) for each in found if each.address == chosen[other]
                ]
            else:
                expected = [(each.expected_s + each.more_s, each.sessions) for each in found if each.free > 0]
            if expected:
                least_s, sessions = min(expected)
                others_s += least_s
                idle = idle and sessions <= 0

        def fits(candidate: Candidate) -> bool:
            # Where nobody is, one may always try: else a measurement gone wrong could never be corrected.
            alone = idle and candidate.sessions <= 0
            return alone or others_s + candidate.expected_s + candidate.more_s <= self._deadline_s[model]

        return fits

    def _beyond_reserve(self, stage: str, model: str, without: Collection[str]) -> bool:
        """Whether the stage has a free place that is not kept back for the sessions of a worker that fails."""
        found = self._roster.candidates(stage, model)
        free = sum(each.free for each in found if each.free > 0 and each.address not in without)
        if self._reserve != "auto":
            return free > self._reserve
        return free > (max(each.share for each in found) if len(found) > 1 else 0)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))]


def _smoothed(old: float, new: float) -> float:
    return old + SMOOTH * (new - old)
