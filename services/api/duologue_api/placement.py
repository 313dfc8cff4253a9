"""Who is there, by heartbeats and 503s, and where a session's stages go (CONTINUITY §2, DESIGN §4)."""

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from duologue.bus import subjects
from duologue.bus.messages import LEDGER, READY, WIRE, Heartbeat, Places
from duologue.models import STAGES

MISSING_S = 0.750
"""Three heartbeats."""
HEARD_S = 0.300
"""A heartbeat so recent outweighs a 503: the worker may just have reconnected."""
LATE_S = 0.250
"""A loop that was later than this can't judge others yet."""
SETTLE_S = 1.0
PROBE_S = 0.050
FORGET_S = 60.0


class Life(Enum):
    """How a worker stands.  `GONE`: the server says that nobody listens there, and no heartbeat says otherwise."""

    ALIVE = "alive"
    SILENT = "silent"
    GONE = "gone"


@dataclass(slots=True)
class Seen:
    """`claimed` counts the sessions placed since the heartbeat, less those that left, which it can't show yet."""

    beat: Heartbeat
    at: float
    claimed: int = 0


class Candidate(NamedTuple):
    """A worker that could take a session.  `share` are its places, taken and free; `sessions` those that it has or
    was given; units take `stage_s` there now, `expected_s` with those sessions that don't show in it yet, and
    `more_s` longer with each further one."""

    free: int
    address: str
    share: int
    sessions: int
    stage_s: float
    expected_s: float
    more_s: float


def _any(_: Candidate) -> bool:
    return True


class Roster:
    """The deployment's workers as seen from one pod.  `unit_s` gives seconds of a unit by model."""

    def __init__(
        self,
        unit_s: Mapping[str, float],
        *,
        clock: Callable[[], float],
        settled_s: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._unit_s, self._clock, self._settled_s, self._rng = unit_s, clock, settled_s, rng
        self._seen: dict[str, Seen] = {}
        self._suspected: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        self._ticked = clock()
        self._late = clock() - SETTLE_S

    def on_heartbeat(self, beat: Heartbeat) -> None:
        self._seen[beat.address] = Seen(beat, self._clock())
        self._suspected.pop(beat.address, None)
        self._gone.pop(beat.address, None)

    def on_suspect(self, address: str) -> bool:
        """The server says that nobody listens there; returns whether to probe in `PROBE_S`.  The second such notice,
        after the probe, is the proof."""
        now = self._clock()
        first = self._suspected.get(address)
        if first is None:
            self._suspected[address] = now
        elif now - first >= PROBE_S:
            self._gone.setdefault(address, now)
        return first is None

    def tick(self) -> None:
        """To be called every 40 ms or so: notices the own loop's lateness, forgets the long gone."""
        now = self._clock()
        if now - self._ticked > LATE_S:
            self._late = now
        self._ticked = now
        for address in [a for a, seen in self._seen.items() if now - seen.at > FORGET_S]:
            del self._seen[address]
        for notes in (self._suspected, self._gone):
            for address in [a for a, at in notes.items() if now - at > FORGET_S]:
                del notes[address]

    def judge(self, address: str) -> Life:
        """Everybody counts as alive while the own connection or loop is in doubt."""
        now = self._clock()
        late = now - self._ticked > LATE_S or now - self._late < SETTLE_S
        if late or self._settled_s() < SETTLE_S:
            return Life.ALIVE
        seen = self._seen.get(address)
        if address in self._gone and (seen is None or now - seen.at > HEARD_S):
            return Life.GONE
        if seen is None or now - seen.at > MISSING_S:
            return Life.SILENT
        unit_s = min((self._unit_s.get(model, 1.0) for model in seen.beat.models), default=1.0)
        return Life.SILENT if seen.beat.step_age > max(3 * unit_s, 1.0) else Life.ALIVE

    def candidates(self, stage: str, model: str, without: Collection[str] = ()) -> list[Candidate]:
        """The workers that could take a session now, if they have a place."""
        found = []
        for address, seen in self._seen.items():
            beat = seen.beat
            places = beat.models.get(model)
            if places is None or subjects.role_of(address) != stage or address in without:
                continue
            fits = beat.state == READY and (beat.v, beat.ledger) == (WIRE, LEDGER)
            if fits and address not in self._suspected and self.judge(address) is Life.ALIVE:
                found.append(_candidate(address, places, seen.claimed))
        return found

    def pick(
        self,
        stage: str,
        model: str,
        without: Collection[str] = (),
        fits: Callable[[Candidate], bool] = _any,
    ) -> str | None:
        """The freer of two workers drawn at random (power of two choices, Mitzenmacher 2001), or `None` if no worker
        that `fits` has a place.  The place counts as taken until the worker's next heartbeat."""
        free = self._free(stage, model, without, fits)
        if not free:
            return None
        address = max(self._rng.sample(free, min(2, len(free)))).address
        self._seen[address].claimed += 1
        return address

    def has_room(
        self,
        stage: str,
        model: str,
        without: Collection[str] = (),
        fits: Callable[[Candidate], bool] = _any,
    ) -> bool:
        """Whether `pick` would find a worker."""
        return bool(self._free(stage, model, without, fits))

    def _free(
        self, stage: str, model: str, without: Collection[str], fits: Callable[[Candidate], bool]
    ) -> list[Candidate]:
        return [found for found in self.candidates(stage, model, without) if found.free > 0 and fits(found)]

    def freed(self, address: str) -> None:
        """A session of this pod has left the worker, which its next heartbeat will show."""
        if seen := self._seen.get(address):
            seen.claimed -= 1

    def refused(self, address: str, since: float) -> None:
        """The worker did not take the session for which it was picked at `since`: no heartbeat ever counted it."""
        if (seen := self._seen.get(address)) and seen.at <= since:
            seen.claimed -= 1

    def lacking(self, model: str) -> list[str]:
        """Stages of which no live worker serves the model."""
        return [stage for stage in STAGES if not self.candidates(stage, model)]


def _candidate(address: str, places: Places, claimed: int) -> Candidate:
    expected_s = places.stage_s + max(0, places.fresh + claimed) * places.more_s
    return Candidate(
        places.free - claimed,
        address,
        places.free + places.sessions,
        places.sessions + claimed,
        places.stage_s,
        expected_s,
        places.more_s,
    )
