"""Which sessions were moved, and when, by the deployment's own events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.nats import NatsTransport
from duologue.bus.transport import Message


@dataclass(slots=True)
class Moves:
    """Session id → how often it was moved since the last `take`."""

    found: dict[str, int] = field(default_factory=dict)

    def on_event(self, message: Message) -> None:
        event = m.decode(message.data, m.Event)
        if event.kind == "moved":
            self.found[event.sid] = self.found.get(event.sid, 0) + 1

    def take(self) -> dict[str, int]:
        taken, self.found = self.found, {}
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
