"""How much of sessions the store keeps, and for how long."""

from dataclasses import dataclass

from duologue.session.record import BUCKET, MAX_AGE_S
from duologue.session.segments import AUDIO, LEDGERS, STORE


@dataclass(frozen=True, slots=True)
class Retention:
    """`ledger_age_s` is of records, ledgers and audio of live sessions, `ledger_bytes` of the ledgers and again of the
    audio; `store_age_s` and `store_bytes` of recordings.  `everything`: all sessions are recorded, not only those whose
    clients ask for it.  The buckets have the limits of whoever makes them first."""

    everything: bool = False
    ledger_age_s: float = MAX_AGE_S
    ledger_bytes: int = 1 << 30
    store_age_s: float = 30 * 86_400.0
    store_bytes: int = 4 << 30

    def age_s(self, bucket: str) -> float:
        return self.store_age_s if bucket == STORE else self.ledger_age_s

    def bytes(self, bucket: str) -> int:
        """0: no limit."""
        return {LEDGERS: self.ledger_bytes, AUDIO: self.ledger_bytes, STORE: self.store_bytes, BUCKET: 0}[
            bucket
        ]
