"""What is known of a session's units: the decisions taken in them, and what each stage's state depends on after them."""

from collections.abc import Iterator, Mapping
from typing import Any

from duologue.bus.sealing import Decided


class Known:
    """Units from `oldest` on.  A stage's decision is known where its horizon is: a unit in which nothing was to be
    decided has no record."""

    def __init__(self) -> None:
        self.oldest = 0
        self._units: dict[int, tuple[dict[str, Any], dict[str, int]]] = {}

    def learn(self, unit: int, records: Mapping[str, Any], horizons: Mapping[str, int]) -> None:
        if unit < self.oldest:
            return
        known = self._units.get(unit)
        if known is None:
            self._units[unit] = dict(records), dict(horizons)
        else:
            known[0].update(records)
            known[1].update(horizons)

    def contradicts(self, unit: int, records: Mapping[str, Any]) -> list[str]:
        """The keys of `records` under which something else is known."""
        known = self._units.get(unit, ({}, {}))[0]
        return [key for key, record in records.items() if key in known and known[key] != record]

    def forget(self, before: int) -> None:
        for unit in range(self.oldest, before):
            self._units.pop(unit, None)
        self.oldest = max(self.oldest, before)

    def record(self, unit: int, stage: str) -> Any:
        return self._units[unit][0].get(stage) if unit in self._units else None

    def knows(self, unit: int, stage: str) -> bool:
        """Whether the stage's decision in that unit is known."""
        return unit in self._units and stage in self._units[unit][1]

    def undecided(self, stage: str, start: int) -> int:
        """The first unit from `start` on of which the stage's decision is not known."""
        while self.knows(start, stage):
            start += 1
        return start

    def begin(self, stage: str, unit: int) -> int:
        """The first unit on which the stage's output of `unit` depends: its horizon after the unit before, or, where
        that is not known, an older one, which is no later."""
        for before in range(unit - 1, self.oldest - 1, -1):
            if self.knows(before, stage):
                return self._units[before][1][stage]
        return 0

    def since(self, start: int) -> dict[int, Decided]:
        """What is known of the units from `start` on."""
        return {unit: Decided(*known) for unit, known in self._units.items() if unit >= start}

    def records(self, start: int, stages: frozenset[str]) -> dict[int, dict[str, Any]]:
        """The records of some stages, of the units from `start` on that have any."""
        found = {
            unit: {stage: record for stage, record in known[0].items() if stage in stages}
            for unit, known in self._units.items()
            if unit >= start
        }
        return {unit: records for unit, records in found.items() if records}

    def __iter__(self) -> Iterator[int]:
        return iter(self._units)

    def __len__(self) -> int:
        return len(self._units)
