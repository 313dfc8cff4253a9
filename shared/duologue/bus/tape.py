"""How one looks at the bus without being noticed.

A subscription to somebody's inbox tells the server that somebody listens there: the 503 notices by which a dead worker
is found out at once, and those that end a request to it, would be gone while one looks.  So whoever publishes sends
copies to subjects of their own, as long as somebody wants them.  Copies come after everything else: a process whose
buffer fills up leaves them out, and says how many.
"""

import asyncio
from collections.abc import Callable, Collection

from duologue.bus import subjects
from duologue.bus.messages import WIRE, Malformed, Struct, decode, encode
from duologue.bus.transport import (
    Bucket,
    Handler,
    Message,
    NoResponders,
    Transport,
    TransportError,
    Unsubscribe,
)

WANTED_S = 2.0
"""So long copies are sent after somebody last wanted them."""
AGAIN_S = 0.5
WHO_S = 0.5
"""A process that connects waits at most so long for those who look at the bus to say what they want."""
MOST_BACKLOG = 0.25
"""Beyond this share of the buffer the rest of it is for the deployment's own messages."""
DIRECT = ("ack", "hb", "ev")
"""Kinds that carry no requests and are never answered by a 503: these can be subscribed to."""


class Taping(Struct, frozen=True):
    """Notice of one who looks at the bus: wanted are copies of messages of these kinds."""

    v: int
    kinds: list[str]


class Copy(Struct, frozen=True):
    """A message as its sender published it; or, with `no_responders`, as the server returned it to its sender,
    because nobody listens on `subject`.  `skipped` copies were left out by the sender before this one."""

    v: int
    subject: str
    reply: str = ""
    data: bytes = b""
    no_responders: bool = False
    skipped: int = 0


class Taped:
    """`Transport` of a process of the deployment: as `transport`, and copies while somebody wants them."""

    def __init__(self, transport: Transport, *, clock: Callable[[], float]) -> None:
        self._transport, self._clock = transport, clock
        self._wanted: dict[str, float] = {}
        """Kind → until when."""
        self._skipped = 0

    @property
    def connected(self) -> bool:
        return self._transport.connected

    @property
    def settled_s(self) -> float:
        return self._transport.settled_s

    @property
    def backlog(self) -> float:
        return self._transport.backlog

    async def connect(self) -> None:
        """When this returns, whoever looked at the bus before sees everything that follows."""
        await self._transport.connect()
        await self._transport.subscribe(subjects.taping(), lambda message: self._on_taping(message.data))
        try:
            self._on_taping(await self._transport.request(subjects.who_tapes(), b"", WHO_S))
        except TransportError:
            return

    async def close(self) -> None:
        await self._transport.close()

    def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        self._transport.publish(subject, data, reply)
        if self._wanted:
            self._copy(subject, reply, data)

    async def subscribe(self, subject: str, handler: Handler) -> Unsubscribe:
        def take(message: Message) -> None:
            if message.no_responders and self._wanted:
                self._copy(message.subject, no_responders=True)
            handler(message)

        return await self._transport.subscribe(subject, take)

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        # Where the answer goes is the transport's own affair; the answer's copy comes from who gives it.
        if self._wanted:
            self._copy(subject, data=data)
        try:
            return await self._transport.request(subject, data, timeout_s)
        except NoResponders:
            if self._wanted:
                self._copy(subject, no_responders=True)
            raise

    async def bucket(
        self,
        name: str,
        *,
        max_value_bytes: int = 1 << 20,
        max_age_s: float = 0.0,
        max_bytes: int = 0,
        make: bool = True,
    ) -> Bucket:
        return await self._transport.bucket(
            name, max_value_bytes=max_value_bytes, max_age_s=max_age_s, max_bytes=max_bytes, make=make
        )

    def _on_taping(self, data: bytes) -> None:
        try:
            taping = decode(data, Taping)
        except Malformed:
            return
        until = self._clock() + WANTED_S
        self._wanted.update(
            {kind: until for kind in taping.kinds if kind in (*subjects.KINDS, subjects.ANSWER)}
        )

    def _copy(self, subject: str, reply: str = "", data: bytes = b"", no_responders: bool = False) -> None:
        kind = subjects.kind_of(subject)
        until = self._wanted.get(kind)
        if until is None or kind in DIRECT:
            return
        if until < self._clock():
            del self._wanted[kind]
            return
        if self._transport.backlog > MOST_BACKLOG:
            self._skipped += 1
            return
        copy = Copy(WIRE, subject, reply, data, no_responders, self._skipped)
        try:
            self._transport.publish(subjects.copies(kind), encode(copy))
        except TransportError:  # a message so large that it fits on the bus by itself alone
            self._skipped += 1
        else:
            self._skipped = 0


class Tap:
    """Sees every message of `kinds` (of `subjects.KINDS`) that is on the bus while this runs, as a `Copy`.  Answers to
    requests are seen with either of the kinds that have requests.  `unreadable` counts copies that are none."""

    def __init__(self, transport: Transport, kinds: Collection[str], see: Callable[[Copy], None]) -> None:
        self.unreadable = 0
        self._transport, self._see = transport, see
        self._direct = [kind for kind in kinds if kind in DIRECT]
        self._taped = [kind for kind in kinds if kind not in DIRECT]
        if {"claim", "ctl"} & set(kinds):
            self._taped.append(subjects.ANSWER)
        self._subscriptions: list[Unsubscribe] = []
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """When this returns, processes that connect from now on are seen from their first message; those already
        there, as soon as the notice has reached them.  Raises `TransportError`."""
        for kind in self._taped:
            self._subscriptions.append(await self._transport.subscribe(subjects.copies(kind), self._on_copy))
        if self._taped:
            self._subscriptions.append(await self._transport.subscribe(subjects.who_tapes(), self._on_who))
            self._again()
        for kind in self._direct:
            self._subscriptions.append(
                await self._transport.subscribe(subjects.of_kind(kind), self._on_message)
            )

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for unsubscribe in self._subscriptions:
            await unsubscribe()

    def _again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(AGAIN_S, self._again)
        self._transport.publish(subjects.taping(), self._notice())

    def _notice(self) -> bytes:
        return encode(Taping(WIRE, self._taped))

    def _on_who(self, message: Message) -> None:
        # To all, too: who asks hears only the first answer, and there may be others who look.
        self._transport.publish(subjects.taping(), self._notice())
        if message.reply:
            self._transport.publish(message.reply, self._notice())

    def _on_message(self, message: Message) -> None:
        self._see(Copy(WIRE, message.subject, message.reply, message.data))

    def _on_copy(self, message: Message) -> None:
        try:
            copy = decode(message.data, Copy)
        except Malformed:
            self.unreadable += 1
            return
        self._see(copy)
