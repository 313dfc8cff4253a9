"""A session's end on the bus: an owner, or the root itself.  Fences, orders, acknowledges, sends again.

No I/O: what is to be sent goes to a `Post`, time comes from a clock.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, Protocol

from duologue import telemetry
from duologue.bus.delivery import HOLD_S, Emission, Inlet, Outlet, Ring, Verdict
from duologue.bus.messages import WIRE, Ack, Envelope, Epoch, Wiring

RING_BYTES = 16 << 20
WINDOW_S = 2.0
"""Under way on an edge, and so waiting at its receiver: at most this much of a session."""


def window_units(unit_s: float) -> int:
    """Units under way on an edge, for units of so many seconds."""
    return max(2, round(WINDOW_S / unit_s))


class Post(Protocol):
    """Where an endpoint's messages go."""

    def unit(self, address: str, envelope: Envelope) -> None: ...

    def owes(self, endpoint: "Endpoint", urgent: bool) -> None:
        """The endpoint owes acknowledgements, now if `urgent`, else soon."""
        ...


class Held(NamedTuple):
    until: float
    sender: str
    envelope: Envelope


class Endpoint:
    """`begin` is the first unit that it makes, `window` the units under way on an edge, `arrived` is called after a
    unit was accepted.  From `oldest` on units are kept, whether or not a receiver may ask for them."""

    def __init__(
        self,
        sid: str,
        stage: str,
        epoch: Epoch,
        *,
        begin: int,
        window: int,
        post: Post,
        clock: Callable[[], float],
        arrived: Callable[[Envelope], None],
        ring_bytes: int = RING_BYTES,
        oldest: Callable[[], int] | None = None,
    ) -> None:
        self.sid, self.stage, self.epoch = sid, stage, epoch
        self.version: tuple[int, int] = (0, 0)
        self.inlets: dict[str, Inlet] = {}
        self.outlets: dict[str, list[Outlet]] = {}
        self.rings: dict[str, Ring] = {}
        self.horizon = begin
        self.sealed: set[Epoch] = set()
        """Replaced owners, of which nothing is heard any more."""
        self.counts: Counter[Verdict] = Counter()
        self.resent = 0
        """Units sent again because no acknowledgement came."""
        self._begin, self._window, self._ring_bytes = begin, window, ring_bytes
        self._post, self._clock, self._arrived, self._oldest = post, clock, arrived, oldest
        self._role = telemetry.role(stage)
        self._owed: dict[str, set[str]] = {}
        self._repairs: set[str] = set()
        self._held: list[Held] = []
        self._sender: dict[str, str] = {}

    # -- route

    def apply(self, wiring: Wiring) -> bool:
        """Takes a newer wiring; returns whether it was one."""
        if wiring.version <= self.version:
            return False
        self.version = wiring.version
        now = self._clock()
        for src, inflow in wiring.inflows.items():
            if src in self.inlets:
                self.inlets[src].wire(inflow)
            else:
                self.inlets[src] = Inlet(inflow, self._window)
        for dst, flows in wiring.outflows.items():
            if dst not in self.rings:
                begin = min((flow.start for flow in flows), default=self._begin)
                self.rings[dst] = Ring(begin, self._ring_bytes)
            known = {outlet.epoch: outlet for outlet in self.outlets.get(dst, [])}
            outlets = []
            for flow in flows:
                outlet = known.get(flow.epoch)
                if outlet is None or outlet.acked < flow.start:
                    outlet = Outlet(flow, self._window, now)
                outlet.until = flow.until
                outlets.append(outlet)
            self.outlets[dst] = outlets
            self._pump(dst, now)
        held, self._held = self._held, []
        for item in held:
            if item.until > now:
                self.offer(item.sender, item.envelope, until=item.until)
        return True

    def seal(self, epochs: Collection[Epoch], fresh: bool = False) -> None:
        """These are to be replaced: they are not heard any more, from whichever side of an edge.  What was to be sent to
        them stays as it is until the next wiring.  `fresh` takes back what was sealed before."""
        if fresh:
            self.sealed.clear()
        self.sealed.update(epochs)
        for outlets in self.outlets.values():
            for outlet in outlets:
                outlet.sealed = outlet.epoch in self.sealed

    def lacks(self) -> list[str]:
        """Destinations for which a unit that an addressee wants is not kept any more."""
        return [
            dst
            for dst, outlets in self.outlets.items()
            if any(outlet.acked < min(self.rings[dst].start, self.rings[dst].end) for outlet in outlets)
        ]

    # -- receiving

    def offer(self, sender: str, envelope: Envelope, until: float | None = None) -> Verdict:
        """A unit that arrived from `sender`.  `until` is set for one that was held before."""
        now = self._clock()
        inlet = self.inlets.get(envelope.src)
        verdict = inlet.judge(envelope.unit, envelope.epoch) if inlet is not None else Verdict.HELD
        if envelope.to != self.epoch or envelope.dst != self.stage or envelope.epoch in self.sealed:
            verdict = Verdict.FENCED
        self.counts[verdict] += 1
        if verdict is Verdict.HELD:
            if len(self._held) < 2 * self._window:
                self._held.append(Held(until or now + HOLD_S, sender, envelope))
            return verdict
        if verdict is Verdict.FENCED or inlet is None:
            return verdict
        self._owed.setdefault(envelope.src, set()).add(sender)
        urgent = False
        if verdict is Verdict.ACCEPTED:
            inlet.accept(envelope)
            self._sender[envelope.src] = sender
        elif verdict is Verdict.HOLE and inlet.may_ask(now):
            self._repairs.add(envelope.src)
            urgent = True
        self._post.owes(self, urgent)
        if verdict is Verdict.ACCEPTED:
            self._arrived(envelope)
        return verdict

    def take(self, src: str) -> Envelope:
        """Uses the oldest accepted unit of an edge."""
        inlet = self.inlets[src]
        starved = inlet.credit <= self._window // 2
        envelope = inlet.take()
        # Only who catches up uses half a window between two ticks; it must not wait for the next one each time.
        hungry = inlet.used + self._window - inlet.told >= self._window // 2
        if (starved or hungry) and src in self._sender:
            self._owed.setdefault(src, set()).add(self._sender[src])
            self._post.owes(self, hungry)
        return envelope

    def acks(self) -> Iterator[tuple[str, Ack]]:
        """The acknowledgements owed, with their addressees; none is owed afterwards."""
        owed, self._owed = self._owed, {}
        repairs, self._repairs = self._repairs, set()
        for src, senders in owed.items():
            inlet = self.inlets[src]
            inlet.told = inlet.next + inlet.credit
            ack = Ack(
                self.sid,
                src,
                self.stage,
                self.epoch,
                inlet.next,
                inlet.used,
                self.horizon,
                inlet.credit,
                src in repairs,
            )
            for sender in senders:
                yield sender, ack

    # -- sending

    def emit(self, dst: str, emission: Emission) -> None:
        """A unit was made for `dst`: kept, and sent as far as credit reaches, unless it comes before the first that is
        wanted."""
        if emission.unit < self.rings[dst].first:
            return
        self.rings[dst].add(emission)
        self._pump(dst, self._clock())

    def room(self) -> bool:
        """Whether another unit may be made: no addressee is more than two windows behind."""
        return all(
            outlet.lacks(self.rings[dst].end) < 2 * self._window
            for dst, outlets in self.outlets.items()
            for outlet in outlets
        )

    def on_ack(self, ack: Ack) -> None:
        now = self._clock()
        outlets = self.outlets.get(ack.dst, [])
        for outlet in outlets:
            if outlet.epoch == ack.to and not outlet.sealed:
                outlet.on_ack(ack.next, ack.credit, ack.horizon, ack.repair, now)
        if outlets and not any(outlet.sealed for outlet in outlets):
            ring = self.rings[ack.dst]
            acked = min(o.acked if o.lacks(ring.end) else ring.end for o in outlets)
            horizon = min(o.horizon for o in outlets)
            ring.release(acked, horizon if self._oldest is None else min(horizon, self._oldest()))
            self._pump(ack.dst, now)

    def check(self) -> None:
        """To be called every 40 ms or so: sends again what is overdue, forgets what was held too long."""
        now = self._clock()
        if self._held:
            self._held = [item for item in self._held if item.until > now]
        for dst, outlets in self.outlets.items():
            ring = self.rings[dst]
            for outlet in outlets:
                unit = None if outlet.sealed else outlet.overdue(ring.end, now)
                if unit is not None and (emission := ring.get(unit)):
                    self.resent += 1
                    telemetry.RESENT.labels(self._role, "overdue").inc()
                    self._send(dst, outlet, emission)
                    ring.sent = max(ring.sent, unit + 1)

    def _pump(self, dst: str, now: float) -> None:
        ring = self.rings[dst]
        for outlet in self.outlets[dst]:
            if outlet.sealed:
                continue
            stop = outlet.sendable(ring.end)
            if outlet.sent < stop and outlet.sent == outlet.acked:
                outlet.touched = now
            while outlet.sent < stop:
                emission = ring.get(outlet.sent)
                if emission is None:
                    break
                if outlet.sent < ring.sent:
                    telemetry.RESENT.labels(self._role, "repair").inc()
                self._send(dst, outlet, emission)
                outlet.sent += 1
                ring.sent = max(ring.sent, outlet.sent)

    def _send(self, dst: str, outlet: Outlet, e: Emission) -> None:
        self._post.unit(
            outlet.address,
            Envelope(
                WIRE,
                self.sid,
                self.stage,
                dst,
                e.unit,
                self.epoch,
                outlet.epoch,
                e.body,
                e.records,
                e.text,
                e.flags,
                0.0,
                e.trace,
                e.context_used,
                e.heard,
                e.horizons,
            ),
        )
