"""Which sessions step together: those that are ready, after a short wait for others (tick batching)."""

from typing import NamedTuple

from duologue.stage.model import Unit
from duologue.stage.owner import Owner

TIMER_S = 0.0005
"""A timer may be as early as this (uvloop's count milliseconds), and must not be set again for the rest."""


class Due(NamedTuple):
    since: float
    unit: Unit


class Batcher:
    """The owners that can step, since when, and whether it is time.

    A batch waits `gather_s` from its first unit on, so that sessions whose clients send at different moments share a
    pass; it does not wait once every owner is in it, nor beyond `limit` rows.
    """

    def __init__(self, gather_s: float, limit: int) -> None:
        self._gather_s, self._limit = gather_s, limit
        self._due: dict[Owner, Due] = {}

    def look(self, owner: Owner, now: float) -> None:
        """To be called after anything that may have made the owner ready, or not ready any more."""
        unit = owner.due()
        if unit is None:
            self._due.pop(owner, None)
        elif owner not in self._due:
            self._due[owner] = Due(now, unit)

    def drop(self, owner: Owner) -> None:
        self._due.pop(owner, None)

    def wait_s(self, owners: int, now: float) -> float | None:
        """Seconds until a batch is to be stepped, 0 for now, `None` while nobody is ready."""
        if not self._due:
            return None
        if len(self._due) >= min(owners, self._limit):
            return 0.0
        first = next(iter(self._due.values())).since
        left = first + self._gather_s - now
        return left if left > TIMER_S else 0.0

    def take(self) -> list[tuple[Owner, Due]]:
        """The batch: the longest waiting rows first."""
        batch = list(self._due.items())[: self._limit]
        for owner, _ in batch:
            del self._due[owner]
        return batch

    def oldest_age(self, now: float) -> float:
        """Seconds that the oldest due unit has waited."""
        return now - next(iter(self._due.values())).since if self._due else 0.0
