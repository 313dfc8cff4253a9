"""A conversation by microphone and loudspeaker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from duologue.audio.framing import OddBytes
from duologue.client.events import AudioDelta, Closed, Event
from duologue.client.live import BadServer
from duologue.client.sound import Pcm
from duologue.client.talk import Session, Stalled

CLOSE_S = 5.0
"""Within this the server must end the session once it was asked to."""


class Ears(Protocol):
    """What is needed of a `Sound`."""

    def heard(self) -> AsyncIterator[Pcm]: ...

    def play(self, pcm16: Pcm) -> None: ...


async def converse(
    client: Session, sound: Ears, stop: asyncio.Event, on_event: Callable[[Event], None]
) -> Closed:
    """Sends what is heard and plays what is answered until `stop` is set or the server ends the session.  Raises
    `ConnectionLost`, `BadServer`, `Stalled` (no end of the session when it was stopped)."""
    sending = asyncio.create_task(_send(client, sound))
    receiving = asyncio.create_task(_receive(client, sound, on_event))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({sending, receiving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        # Where the connection was lost the receiver knows why.
        if not stopping.done():
            return await receiving
        sending.cancel()
        await client.finish()
        async with asyncio.timeout(CLOSE_S):
            return await receiving
    except TimeoutError:
        raise Stalled(f"no session.closed within {CLOSE_S:g} s") from None
    finally:
        tasks = (sending, receiving, stopping)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send(client: Session, sound: Ears) -> None:
    async for block in sound.heard():
        await client.append(client.format.encode(block))


async def _receive(client: Session, sound: Ears, on_event: Callable[[Event], None]) -> Closed:
    async for event in client:
        if isinstance(event, AudioDelta):
            try:
                sound.play(client.format.decode(event.audio))
            except OddBytes:
                raise BadServer(f"the server sent {len(event.audio)} bytes of int16 audio") from None
        on_event(event)
        if isinstance(event, Closed):
            return event
    raise BadServer("the server's events ended without session.closed")
