"""The bus in memory and, under a `VirtualLoop`, in virtual time; with faults to order."""

import asyncio
import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import NamedTuple

from duologue.bus.connection import MAX_PAYLOAD, Requests, Stats, checked, hand_over
from duologue.bus.memory_store import MemoryBucket, MemoryStore
from duologue.bus.subjects import matches
from duologue.bus.transport import (
    Bucket,
    Handler,
    Message,
    RequestTimeout,
    TransportError,
    Unsubscribe,
)

LATENCY_S = 0.0002
"""One way, about what core NATS takes on loopback."""
UNDER_WAY = 1 << 16
"""Messages on their way through the whole bus; beyond it they are dropped."""


class Passage(NamedTuple):
    """A message on its way to one subscription.  `sender` and `receiver` are names of transports, `""` the bus
    itself (its 503 notices); `ordinal` counts the passages of the whole bus from 0."""

    sender: str
    receiver: str
    subject: str
    ordinal: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a passage: it arrives once per entry of `delays_s`, so with none it is lost.  A `late` one
    neither holds back nor waits for others of its publisher and subject."""

    delays_s: tuple[float, ...] = (LATENCY_S,)
    late: bool = False


DELIVER = Fate()
DROP = Fate(())


@dataclass(eq=False, slots=True)
class _Subscription:
    owner: "MemoryTransport"
    pattern: str
    take: Callable[[str, Message], None]
    """Called with the subject at which the message came in: for a 503 notice the reply subject."""
    live: bool = True
    last: dict[tuple[str, str], float] = field(default_factory=dict)
    """When the newest passage from (sender, subject) arrives; kept while it is on its way."""


class MemoryBus:
    """Connects `MemoryTransport`s of one event loop.  `fate` decides over every passage."""

    def __init__(self, fate: Callable[[Passage], Fate] = lambda _: DELIVER) -> None:
        self.fate = fate
        self.store = MemoryStore()
        self.lost = 0
        """Arrivals lost on the way, by fate or with a connection."""
        self._exact: dict[str, list[_Subscription]] = {}
        self._wild: list[_Subscription] = []
        self._observers: list[Handler] = []
        self._passages = count()
        self._inboxes = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._armed = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def observe(self, handler: Handler) -> Callable[[], None]:
        """`handler` sees every published message once, before its fate.  Returns how to end that."""
        self._observers.append(handler)
        return lambda: self._observers.remove(handler)

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Calls `act` then.  Unlike timers of asyncio, those of the same instant keep their order."""
        self._at(asyncio.get_running_loop().time() + delay_s, act)

    def new_inbox(self) -> str:
        return f"_INBOX.{next(self._inboxes)}"

    def subscribe(self, subscription: _Subscription) -> None:
        pattern = subscription.pattern
        if "" in pattern.split(".") or ">" in pattern.split(".")[:-1]:
            raise TransportError(f"{pattern!r} is no subject")
        same = self._wild if _is_wild(pattern) else self._exact.setdefault(pattern, [])
        same.append(subscription)

    def unsubscribe(self, subscription: _Subscription) -> None:
        if not subscription.live:
            return
        subscription.live = False
        if _is_wild(subscription.pattern):
            self._wild.remove(subscription)
        else:
            same = self._exact[subscription.pattern]
            same.remove(subscription)
            if not same:
                del self._exact[subscription.pattern]

    def publish(self, sender: "MemoryTransport", message: Message) -> None:
        for observer in tuple(self._observers):
            hand_over(observer, message)
        receivers = [s for s in self._listening(message.subject) if s.owner.connected]
        for receiver in receivers:
            self._send(sender, sender.name, receiver, message.subject, message)
        if message.reply and not receivers:
            notice = Message(message.subject, b"", no_responders=True)
            for receiver in self._listening(message.reply):
                if receiver.owner is sender:
                    self._send(sender, "", receiver, message.reply, notice)

    def _listening(self, subject: str) -> Iterator[_Subscription]:
        yield from tuple(self._exact.get(subject, ()))
        yield from [s for s in self._wild if matches(s.pattern, subject)]

    def _send(
        self, sender: "MemoryTransport", name: str, to: _Subscription, at: str, message: Message
    ) -> None:
        fate = self.fate(Passage(name, to.owner.name, at, next(self._passages), message.data))
        self.lost += not fate.delays_s
        now, key = asyncio.get_running_loop().time(), (name, at)
        ends = sender.incarnation, to.owner.incarnation

        def arrive(when: float) -> None:
            if to.last.get(key) == when:
                del to.last[key]
            if ends != (sender.incarnation, to.owner.incarnation) or not to.live:
                self.lost += 1
            else:
                to.take(at, message)

        for delay_s in fate.delays_s:
            if len(self._due) >= UNDER_WAY:
                sender.stats.dropped += 1
                continue
            when = now + delay_s
            if not fate.late:
                when = to.last[key] = max(when, to.last.get(key, when))
            self._at(when, partial(arrive, when))

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), act))
        if when < self._armed:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = self._due[0][0] if self._due else math.inf
        self._timer = asyncio.get_running_loop().call_at(self._armed, self._run_due) if self._due else None

    def _run_due(self) -> None:
        until, self._armed = self._armed, -math.inf
        try:
            while self._due and self._due[0][0] <= until:
                heapq.heappop(self._due)[2]()
        finally:
            self._arm()


class MemoryTransport:
    """`Transport` over a `MemoryBus`.  `name` is how the bus's `fate` knows it."""

    def __init__(self, bus: MemoryBus, name: str) -> None:
        self.name = name
        self.stats = Stats()
        self.incarnation = 0
        """Of the connection: what was under way to and from an earlier one is lost."""
        self._bus = bus
        self._since = math.inf
        self._closed = False
        self._subscriptions: set[_Subscription] = set()
        self._requests = Requests(bus.new_inbox())
        self._buckets: dict[str, MemoryBucket] = {}

    @property
    def bus(self) -> MemoryBus:
        return self._bus

    @property
    def connected(self) -> bool:
        return self._since != math.inf

    @property
    def settled_s(self) -> float:
        return asyncio.get_running_loop().time() - self._since if self.connected else 0.0

    @property
    def backlog(self) -> float:
        return 0.0

    async def connect(self) -> None:
        self._subscribe(self._requests.subject, self._requests.answered)
        self._since = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """What it has published still arrives."""
        self._closed, self._since = True, math.inf
        for subscription in tuple(self._subscriptions):
            self._unsubscribe(subscription)
        self._requests.lost()

    def blink(self, down_s: float) -> None:
        """Loses the connection, and all that is under way to and from it, for `down_s` seconds (`inf`: for ever).
        Nobody is told; meanwhile its subscriptions are not there."""
        self._since = math.inf
        self.incarnation += 1
        self._requests.lost()
        if down_s != math.inf:
            incarnation = self.incarnation
            self._bus.after(down_s, lambda: self._return(incarnation))

    def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        checked(subject, data, MAX_PAYLOAD)
        if not self.connected:
            self.stats.dropped += 1
            return
        self.stats.published += 1
        self.stats.bytes += len(data)
        self._bus.publish(self, Message(subject, data, reply))

    async def subscribe(self, subject: str, handler: Handler) -> Unsubscribe:
        def take(_: str, message: Message) -> None:
            self.stats.delivered += 1
            self.stats.bytes += len(message.data)
            hand_over(handler, message)

        subscription = self._subscribe(subject, take)

        async def unsubscribe() -> None:
            self._unsubscribe(subscription)

        return unsubscribe

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        if not self.connected:
            raise RequestTimeout(f"{self.name} has no connection")
        return await self._requests.ask(self.publish, subject, data, timeout_s)

    async def bucket(
        self,
        name: str,
        *,
        max_value_bytes: int = 1 << 20,
        max_age_s: float = 0.0,
        max_bytes: int = 0,
        make: bool = True,
    ) -> Bucket:
        bucket = self._buckets.get(name)
        if bucket is None or bucket.lost:
            bucket = MemoryBucket(self._bus.store, self._leg, name)
            await bucket.open(max_value_bytes, max_age_s, max_bytes, make)
            self._buckets[name] = bucket
        return bucket

    async def _leg(self) -> bool:
        """One way to the store or back; false where the connection did not last."""
        incarnation, arrived = self.incarnation, asyncio.Event()
        self._bus.after(LATENCY_S, arrived.set)
        await arrived.wait()
        return self.connected and incarnation == self.incarnation

    def _subscribe(self, pattern: str, take: Callable[[str, Message], None]) -> _Subscription:
        subscription = _Subscription(self, pattern, take)
        self._bus.subscribe(subscription)
        self._subscriptions.add(subscription)
        return subscription

    def _unsubscribe(self, subscription: _Subscription) -> None:
        self._bus.unsubscribe(subscription)
        self._subscriptions.discard(subscription)

    def _return(self, incarnation: int) -> None:
        if not self._closed and incarnation == self.incarnation:
            self._since = asyncio.get_running_loop().time()
            self.stats.reconnects += 1


def _is_wild(pattern: str) -> bool:
    return any(token in ("*", ">") for token in pattern.split("."))
