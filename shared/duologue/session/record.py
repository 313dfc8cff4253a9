"""The session record: key `<sid>` of the bucket `duo_session`, written by the root alone (DESIGN §5)."""

from typing import Any

from duologue.bus.messages import LEDGER, WIRE, Struct, Told

BUCKET = "duo_session"
MAX_AGE_S = 3600.0
"""A record that nobody renews is dropped by the store after this long."""

ACTIVE, CLOSED = "active", "closed"
"""States of a record."""


class SessionRecord(Struct, frozen=True):
    """`root_epochs` are (root epoch, first unit, pod's address) in order; `context_starts` are (start, from unit), none
    meaning (0, 0).  `form` is the client's audio, (type, samples a second); units before `start` are not in the ledger
    any more; `kept` says that the session is recorded.  `opened` and `written` are in seconds since 1970, for people."""

    v: int = WIRE
    ledger: int = LEDGER
    sid: str = ""
    model: str = ""
    state: str = ""
    options: dict[str, Any] = {}
    seed: int = 0
    route: Told = {}
    root_epochs: list[tuple[int, int, str]] = []
    context_starts: list[tuple[int, int]] = []
    tenant: str = ""
    resume_token_hash: str = ""
    units: int = 0
    form: tuple[str, int] = ("", 0)
    start: int = 0
    kept: bool = False
    opened: float = 0.0
    written: float = 0.0

    @property
    def root_epoch(self) -> int:
        """Of the last root, 0 if there is none."""
        return self.root_epochs[-1][0] if self.root_epochs else 0
