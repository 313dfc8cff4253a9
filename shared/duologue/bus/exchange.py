"""A process's place on the bus: bundles units, collects acknowledgements, hands what arrives to endpoints."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec
import structlog
from prometheus_client import Counter

from duologue import telemetry
from duologue.bus import subjects
from duologue.bus.delivery import Verdict
from duologue.bus.endpoint import Endpoint
from duologue.bus.messages import (
    MAX_MESSAGE_BYTES,
    WIRE,
    Ack,
    Acks,
    Bundle,
    Envelope,
    Epoch,
    Malformed,
    decode,
    encode,
)
from duologue.bus.transport import Message, Transport, TransportError, Unsubscribe

TICK_S = 0.040
"""Acknowledgements are sent, and overdue units looked for, at this interval (CONTINUITY §1.2)."""
RINGS_EVERY = 25
"""Ticks between two sums of the rings' bytes."""
SETTLE_S = 1.0
"""After one's own reconnect a 503 proves nothing for this long: after a broker restart everyone looks dead."""

UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What msgspec raises for what MessagePack has no place for."""

log = structlog.get_logger()


class Exchange:
    """`gather_s`: how long the first unit waits for others to the same addressee (it does not wait once every
    endpoint here has one).  `suspected` is called with an address at which nobody listens, `stray` with the sender of
    a unit that has no addressee here, and the unit; `unsendable` with a unit that no message can hold, and why: its
    session can't go on."""

    def __init__(
        self,
        transport: Transport,
        address: str,
        *,
        gather_s: float = 0.0,
        suspected: Callable[[str], None] = lambda address: None,
        stray: Callable[[str, Envelope], None] = lambda sender, envelope: None,
        unsendable: Callable[[Envelope, Exception], None] = lambda envelope, error: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.transport, self.address = transport, address
        self.role = subjects.role_of(address)
        self._gathered = telemetry.GATHER_SECONDS.labels(self.role)
        self._gather_s, self._suspected, self._stray, self._wall = gather_s, suspected, stray, wall
        self._unsendable = unsendable
        self._endpoints: dict[tuple[str, Epoch], Endpoint] = {}
        self._by_sid: dict[str, list[Endpoint]] = {}
        self._outbox: dict[str, list[Envelope]] = {}
        self._contributors: set[str] = set()
        self._gather_began = 0.0
        self._flush: asyncio.Handle | None = None
        self._owing: dict[tuple[str, Epoch], Endpoint] = {}
        self._subscriptions: list[Unsubscribe] = []
        self._ticker: asyncio.TimerHandle | None = None
        self._ticks = 0

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._subscriptions = [
            await self.transport.subscribe(subjects.inbox(self.address), self._on_bundle),
            await self.transport.subscribe(subjects.acks(self.address), self._on_acks),
        ]
        self._tick()

    async def stop(self) -> None:
        """Sends what is waiting, then hears nothing more."""
        if self._ticker:
            self._ticker.cancel()
        if self._flush:
            self._flush.cancel()
        self._send_units()
        self._send_acks(list(self._owing.values()))
        for unsubscribe in self._subscriptions:
            await unsubscribe()

    def add(self, endpoint: Endpoint) -> None:
        self._endpoints[endpoint.sid, endpoint.epoch] = endpoint
        self._by_sid.setdefault(endpoint.sid, []).append(endpoint)

    def remove(self, endpoint: Endpoint) -> None:
        """Forgets an endpoint; what is under way to it is dropped on arrival."""
        key = endpoint.sid, endpoint.epoch
        if self._endpoints.pop(key, None) is None:
            return
        self._owing.pop(key, None)
        left = [other for other in self._by_sid[endpoint.sid] if other is not endpoint]
        if left:
            self._by_sid[endpoint.sid] = left
        else:
            del self._by_sid[endpoint.sid]

    # -- Post

    def unit(self, address: str, envelope: Envelope) -> None:
        if not self._outbox:
            self._gather_began = self._loop.time()
        self._outbox.setdefault(address, []).append(envelope)
        self._contributors.add(envelope.sid)
        complete = len(self._contributors) >= len(self._by_sid)
        if self._flush is None:
            wait = 0.0 if complete else self._gather_s
            self._flush = (
                self._loop.call_later(wait, self._send_units)
                if wait
                else self._loop.call_soon(self._send_units)
            )
        elif complete and self._gather_s and isinstance(self._flush, asyncio.TimerHandle):
            self._flush.cancel()
            self._flush = self._loop.call_soon(self._send_units)

    def owes(self, endpoint: Endpoint, urgent: bool) -> None:
        self._owing[endpoint.sid, endpoint.epoch] = endpoint
        if urgent:
            self._loop.call_soon(self._send_acks, [endpoint])

    def probe(self, address: str) -> None:
        """Provokes a 503 if nobody listens at `address`; otherwise nothing happens."""
        empty = encode(Bundle(WIRE, self.address, []))
        self.transport.publish(subjects.inbox(address), empty, subjects.acks(self.address))

    # -- sending

    def _send_units(self) -> None:
        self._flush = None
        outbox, self._outbox = self._outbox, {}
        self._contributors.clear()
        if not outbox:
            return
        self._gathered.observe(max(0.0, self._loop.time() - self._gather_began))
        now = self._wall()
        for address, units in outbox.items():
            for part in _split(units):
                self._send(address, part, now)

    def _send(self, address: str, part: list[Envelope], now: float) -> None:
        stamped = [msgspec.structs.replace(envelope, sent=now) for envelope in part]
        try:
            data = encode(Bundle(WIRE, self.address, stamped))
            self.transport.publish(subjects.inbox(address), data, subjects.acks(self.address))
        except (TransportError, *UNENCODABLE) as error:
            if len(part) > 1:
                # One of them is why; the other sessions' go on.
                for envelope in part:
                    self._send(address, [envelope], now)
                return
            [unit] = part
            oversized = isinstance(error, TransportError)
            telemetry.DROPPED.labels(self.role, "oversized" if oversized else "unencodable").inc()
            why = str(error) if oversized else type(error).__name__
            log.error("unit not sent", sid=unit.sid, unit=unit.unit, error=why)
            self._unsendable(unit, error)
            return
        bundles, count = _sent(self.role, subjects.role_of(address))
        bundles.inc()
        count.inc(len(part))

    def _send_acks(self, endpoints: Iterable[Endpoint]) -> None:
        due: defaultdict[str, list[Ack]] = defaultdict(list)
        for endpoint in endpoints:
            self._owing.pop((endpoint.sid, endpoint.epoch), None)
            for address, ack in endpoint.acks():
                due[address].append(ack)
        for address, acks in due.items():
            self.transport.publish(subjects.acks(address), encode(Acks(WIRE, self.address, acks)))

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self._send_acks(list(self._owing.values()))
        for endpoint in list(self._endpoints.values()):
            endpoint.check()
        self._ticks += 1
        if self._ticks % RINGS_EVERY == 0:
            rings = (ring for endpoint in self._endpoints.values() for ring in endpoint.rings.values())
            telemetry.RING_BYTES.labels(self.role).set(sum(ring.bytes for ring in rings))

    # -- receiving

    def _on_bundle(self, message: Message) -> None:
        try:
            bundle = decode(message.data, Bundle)
        except Malformed as error:
            telemetry.DROPPED.labels(self.role, "malformed").inc()
            log.warning(
                "malformed bundle", subject=message.subject, bytes=len(message.data), error=str(error)
            )
            return
        if bundle.v != WIRE:
            telemetry.DROPPED.labels(self.role, "version").inc(max(1, len(bundle.units)))
            return
        now, accepted = self._wall(), 0
        for envelope in bundle.units:
            endpoint = self._endpoints.get((envelope.sid, envelope.to))
            if endpoint is None:
                telemetry.DROPPED.labels(self.role, "unaddressed").inc()
                self._stray(bundle.sender, envelope)
                continue
            verdict = endpoint.offer(bundle.sender, envelope)
            if verdict is Verdict.ACCEPTED:
                accepted += 1
            else:
                _arrived(self.role, verdict).inc()
        if accepted:
            _arrived(self.role, Verdict.ACCEPTED).inc(accepted)
            # The units of a bundle were sent at one moment.
            hop_s = max(0.0, now - bundle.units[0].sent)
            _hop(subjects.role_of(bundle.sender), self.role).observe_times(hop_s, accepted)

    def _on_acks(self, message: Message) -> None:
        if message.no_responders:
            if self.transport.settled_s >= SETTLE_S:
                self._suspected(subjects.address_of(message.subject))
            return
        try:
            acks = decode(message.data, Acks)
        except Malformed as error:
            telemetry.DROPPED.labels(self.role, "malformed").inc()
            log.warning("malformed acks", subject=message.subject, bytes=len(message.data), error=str(error))
            return
        if acks.v != WIRE:
            telemetry.DROPPED.labels(self.role, "version").inc(max(1, len(acks.acks)))
            return
        for ack in acks.acks:
            for endpoint in self._by_sid.get(ack.sid, ()):
                if endpoint.stage == ack.src:
                    endpoint.on_ack(ack)


# Looking a metric up by its labels costs more than counting.


@lru_cache(64)
def _sent(role: str, to: str) -> tuple[Counter, Counter]:
    to = telemetry.role(to)
    return telemetry.BUNDLES.labels(role, to), telemetry.UNITS.labels(role, to)


@lru_cache(64)
def _arrived(role: str, verdict: Verdict) -> Counter:
    return telemetry.ARRIVED.labels(role, verdict.value)


@lru_cache(64)
def _hop(sender: str, role: str) -> telemetry.Histogram:
    return telemetry.HOP_SECONDS.labels(telemetry.role(sender), role)


def _split(units: list[Envelope]) -> Iterable[list[Envelope]]:
    """Parts that stay below `MAX_MESSAGE_BYTES` each (a single larger unit is a part by itself)."""
    part: list[Envelope] = []
    size = 0
    for envelope in units:
        if part and size + envelope.size > MAX_MESSAGE_BYTES:
            yield part
            part, size = [], 0
        part.append(envelope)
        size += envelope.size
    yield part
