"""Listens to the bus of a deployment: which units its encoder was sent, and as what."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deployment import Deployment
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.nats import NatsTransport
from duologue.bus.transport import Message


class Tap:
    """Sets of units by session id."""

    def __init__(self) -> None:
        self.shed: defaultdict[str, set[int]] = defaultdict(set)
        self.meant: defaultdict[str, set[int]] = defaultdict(set)
        """Sent as what the client said: its sound, or its silence."""

    def __call__(self, message: Message) -> None:
        for envelope in m.decode(message.data, m.Bundle).units:
            (self.shed if envelope.flags & m.SHED else self.meant)[envelope.sid].add(envelope.unit)


@asynccontextmanager
async def tapped(served: Deployment) -> AsyncIterator[Tap]:
    """What goes to the only encoder from now on."""
    tap, transport = Tap(), NatsTransport(served.nats_url, name="tap")
    await transport.connect()
    try:
        await transport.subscribe(subjects.inbox(f"encoder.{served.worker('encoder').id}"), tap)
        yield tap
    finally:
        await transport.close()
