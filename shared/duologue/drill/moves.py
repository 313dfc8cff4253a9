"""Which sessions were moved, by the deployment's own events."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.nats import NatsTransport
from duologue.bus.transport import Message


@dataclass(slots=True)
class Moves:
    """The ids of sessions that were moved since the last `take`."""

    found: set[str] = field(default_factory=set)

    def on_event(self, message: Message) -> None:
        # Of another version: no event that could be counted.
        with contextlib.suppress(m.Malformed):
            event = m.decode(message.data, m.Event)
            if event.kind == "moved":
                self.found.add(event.sid)

    def take(self) -> set[str]:
        taken, self.found = self.found, set()
        return taken


@asynccontextmanager
async def watched(nats_url: str | None) -> AsyncIterator[Moves | None]:
    """Watches the bus, if it is known where that is.  Raises `TransportError`."""
    if nats_url is None:
        yield None
        return
    moves = Moves()
    transport = NatsTransport(nats_url, name="duologue-drill")
    await transport.connect()
    try:
        await transport.subscribe(subjects.events(), moves.on_event)
        yield moves
    finally:
        await transport.close()
