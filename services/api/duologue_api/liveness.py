"""Whether a session's owners are alive, and how long it waits for those that are not."""

from collections.abc import Mapping
from typing import NamedTuple

from duologue_api.placement import Life

SUSPENDED_S = 30.0
"""A session whose worker is silent waits so long for it."""
GONE_S = 3.0
"""... and so long for one that has no connection any more: it may be reconnecting."""


class Outlook(NamedTuple):
    """`lost` are the stages whose owners are not alive, `news` says that there were none a moment ago; `hopeless`, that
    the session has waited long enough."""

    lost: tuple[str, ...]
    news: bool
    hopeless: bool


class Liveness:
    """One session's patience."""

    def __init__(self) -> None:
        self._since: float | None = None

    def look(self, lives: Mapping[str, Life], now: float) -> Outlook:
        """`lives` by stage; `now` in monotonic seconds."""
        lost = tuple(stage for stage, life in lives.items() if life is not Life.ALIVE)
        if not lost:
            self._since = None
            return Outlook((), False, False)
        news = self._since is None
        since = self._since = now if self._since is None else self._since
        patience_s = GONE_S if Life.GONE in lives.values() else SUSPENDED_S
        return Outlook(lost, news, now - since > patience_s)
