"""A worker's places: what its memory, the time of its steps and its settings leave free."""

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from duologue.bus.messages import Places
from duologue.models import Manifest
from duologue.stage.engine import Engine
from duologue.stage.headroom import FRESH_UNITS, WINDOW_UNITS, Headroom
from duologue.stage.model import StageModel
from duologue.stage.owner import Owner
from duologue.stage.probe import Probe

log = structlog.get_logger()


class Capacity:
    """Of the sessions `owners`.  `places` is the cap; `memory_bytes` the memory of the stage and its sessions in all;
    `utilisation`, here also of a thread that the stage has beside its steps, and `cautious` as in `Headroom`, whose `stepped` is to be told of every step."""

    def __init__(
        self,
        manifest: Manifest,
        model: StageModel[Any],
        owners: Mapping[Any, Owner],
        *,
        clock: Callable[[], float],
        places: int,
        memory_bytes: int | None,
        utilisation: float,
        cautious: bool,
    ) -> None:
        self._manifest, self._model, self._owners, self._clock = manifest, model, owners, clock
        self._told_fresh = 0
        each, memory_places = model.footprint(), None
        if memory_bytes is not None and each.session_bytes:
            memory_places = max(0, (memory_bytes - each.fixed_bytes) // each.session_bytes)
        if each.thread_share:
            places = min(places, int(utilisation / each.thread_share))
        self.headroom = Headroom(
            manifest.unit_s,
            clock=clock,
            places=places,
            memory_places=memory_places,
            utilisation=utilisation,
            cautious=cautious,
        )

    async def probe(self, stage: str, engine: Engine) -> None:
        """Measures steps before the first session.  Raises what the model raises."""
        longest_s = self.headroom.longest_step_s
        probe = Probe(stage, self._manifest, self._model, engine, self._clock)
        found = await probe.run(self.headroom.cap, longest_s)
        self.headroom.probed(found)
        if found.get(1, 0.0) > longest_s:
            log.error("too slow for any session", stage=stage, step_s=found[1], longest_s=longest_s)

    @property
    def free(self) -> int:
        return self.headroom.free(len(self._owners), self._fresh())

    def told(self) -> Places:
        """What a heartbeat says."""
        sessions, fresh = len(self._owners), self._fresh()
        pace = self.headroom.pace(sessions)
        self._told_fresh = fresh
        return Places(self.headroom.free(sessions, fresh), sessions, pace.stage_s, pace.more_s, fresh)

    @property
    def news(self) -> bool:
        """Whether what was told counts sessions as fresh whose cost is known by now: the next session must not wait
        for the heartbeat that says so."""
        return self._told_fresh > 0 and self._fresh() < self._told_fresh

    def _fresh(self) -> int:
        """Sessions that do not show in the measured times: new ones, and those that sent nothing for a while."""
        since = self._clock() - WINDOW_UNITS * self._manifest.unit_s
        return sum(
            owner.unit - owner.start.begin < FRESH_UNITS or owner.stepped_at < since
            for owner in self._owners.values()
        )
