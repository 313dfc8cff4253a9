"""One edge's two ends without any I/O: what was sent and acknowledged, what was accepted (CONTINUITY §1).

Times are seconds of any monotonic clock, given as arguments.
"""

import math
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from duologue.bus.messages import AnyBody, Envelope, Epoch, Heard, Inflow, Outflow, size

RESEND_S = 0.120
"""What is not acknowledged after this long is sent again (twice as long after each further try, up to `RESEND_MAX_S`)."""
RESEND_MAX_S = 1.0
REPAIR_S = 0.040
"""A hole is asked for, and a repair is answered, at most this often."""
HOLD_S = 1.0
"""A unit of an epoch that is newer than any known is kept this long for the route that explains it."""
NO_END = -1


class Emission(NamedTuple):
    """A unit as its sender keeps it: all of an envelope that does not depend on the addressee."""

    unit: int
    body: AnyBody
    records: dict[str, Any]
    text: str = ""
    flags: int = 0
    trace: str = ""
    context_used: float = -1.0
    heard: tuple[Heard, ...] = ()
    horizons: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes on the wire, roughly."""
        return 120 + size(self.text, self.heard, self.body)


class Ring:
    """The units made for one destination, in order and without holes.

    What is not acknowledged is kept; beyond that, back to the receiver's horizon, as far as `limit_bytes` reach.
    The unacknowledged part is bounded by the owner, which makes nothing more while `Endpoint.room` says no.
    """

    def __init__(self, begin: int, limit_bytes: int) -> None:
        self.first = self.start = self.end = self.sent = begin
        """First unit wanted at all; first kept; next to be made; first that was never sent to anybody."""
        self.bytes = 0
        self._limit = limit_bytes
        self._kept: dict[int, Emission] = {}

    def add(self, emission: Emission) -> None:
        """Raises `ValueError` for any unit but the next."""
        if emission.unit != self.end:
            raise ValueError(f"unit {emission.unit} was made where {self.end} is next")
        self._kept[emission.unit] = emission
        self.bytes += emission.size
        self.end += 1

    def get(self, unit: int) -> Emission | None:
        return self._kept.get(unit)

    def replace(self, emission: Emission) -> None:
        """Puts another emission in the place of one that was never sent."""
        self.bytes += emission.size - self._kept[emission.unit].size
        self._kept[emission.unit] = emission

    def release(self, acked: int, horizon: int) -> None:
        """Forgets what nobody can ask for (before `horizon`) and, over the limit, the oldest of what is `acked`."""
        while self.start < min(acked, self.end) and (self.start < horizon or self.bytes > self._limit):
            self.bytes -= self._kept.pop(self.start).size
            self.start += 1


class Outlet:
    """What one addressee has of an edge."""

    def __init__(self, flow: Outflow, window: int, now: float) -> None:
        self.address, self.epoch, self.start, self.until = flow.address, flow.epoch, flow.start, flow.until
        self.sent = self.acked = self.horizon = flow.start
        self.limit = flow.start + window
        """Units before this one may be sent."""
        self.patience_s = RESEND_S
        self.touched = now
        self.sealed = False
        """The addressee is to be replaced: nothing is sent to it, and what it says counts no more."""
        self._repaired = -math.inf
        self._doubted = False
        """Something was overdue: what was sent after it may be lost as well."""

    def sendable(self, made: int) -> int:
        """Where sending must stop, given that units before `made` are there."""
        stop = min(made, self.limit)
        return stop if self.until == NO_END else min(stop, self.until)

    def lacks(self, made: int) -> int:
        """Units that it was to have, of those before `made`, and has not acknowledged."""
        return max(0, (made if self.until == NO_END else min(made, self.until)) - self.acked)

    def on_ack(self, next_unit: int, credit: int, horizon: int, repair: bool, now: float) -> None:
        self.limit = max(self.limit, next_unit + credit)
        self.horizon = max(self.horizon, horizon)
        if next_unit > self.acked:
            self.acked = next_unit
            self.sent = next_unit if self._doubted else max(self.sent, next_unit)
            self.patience_s, self.touched, self._doubted = RESEND_S, now, False
        if repair and self.acked <= next_unit < self.sent and now - self._repaired >= REPAIR_S:
            self.sent, self._repaired = next_unit, now

    def overdue(self, made: int, now: float) -> int | None:
        """The unit to send again, if it is time: the first unacknowledged one, or a first one beyond the credit
        (the acknowledgement that extended the credit may have been lost)."""
        if now - self.touched < self.patience_s:
            return None
        waiting = self.acked < self.sent
        blocked = self.sent == self.limit and self.sent < made and self.sent != self.until
        if not (waiting or blocked):
            return None
        self.touched = now
        self.patience_s = min(2 * self.patience_s, RESEND_MAX_S)
        self.sent, self._doubted = max(self.sent, self.acked + 1), True
        return self.acked


class Verdict(Enum):
    """What became of a unit that arrived."""

    ACCEPTED = "accepted"
    REPEAT = "repeat"
    HOLE = "hole"
    FULL = "full"
    FENCED = "fenced"
    HELD = "held"


class Inlet:
    """What an endpoint has accepted over one edge and not used yet: at most `window` units, in order."""

    def __init__(self, flow: Inflow, window: int) -> None:
        self.entries = sorted(flow.entries)
        self.next = self.used = flow.next
        self.window = window
        self.told = flow.next + window
        """Units before this one the sender knows that it may send."""
        self._queue: dict[int, Envelope] = {}
        self._asked = -math.inf

    def wire(self, flow: Inflow) -> None:
        self.entries = sorted(flow.entries)

    @property
    def credit(self) -> int:
        """How many units from `next` on would be taken."""
        return self.used + self.window - self.next

    def judge(self, unit: int, epoch: Epoch) -> Verdict:
        """What to do with a unit, by its number and its sender's epoch."""
        in_force = self._in_force(unit)
        if epoch != in_force:
            newest = self.entries[-1][0] if self.entries else None
            return Verdict.HELD if newest is None or epoch > newest else Verdict.FENCED
        if unit < self.next:
            return Verdict.REPEAT
        if unit > self.next:
            return Verdict.HOLE
        return Verdict.ACCEPTED if self.credit > 0 else Verdict.FULL

    def _in_force(self, unit: int) -> Epoch | None:
        found = None
        for epoch, start in self.entries:
            if start <= unit:
                found = epoch
        return found

    def accept(self, envelope: Envelope) -> None:
        self._queue[envelope.unit] = envelope
        self.next += 1

    def may_ask(self, now: float) -> bool:
        """Whether a hole may be asked for (again) now."""
        if now - self._asked < REPAIR_S:
            return False
        self._asked = now
        return True

    def peek(self, unit: int) -> Envelope | None:
        return self._queue.get(unit)

    def take(self) -> Envelope:
        """The oldest unit, which is used from now on.  Raises `KeyError` if there is none."""
        envelope = self._queue.pop(self.used)
        self.used += 1
        return envelope

    def __iter__(self) -> Iterator[Envelope]:
        return iter(self._queue.values())

    def __len__(self) -> int:
        return len(self._queue)
