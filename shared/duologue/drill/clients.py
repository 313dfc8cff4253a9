"""Callers who do not keep to the pace: what they get themselves does not count, only that nobody else notices."""

import asyncio
import contextlib

from duologue.client import LiveClient
from duologue.client.live import ConnectionLost
from duologue.drill.caller import Place
from duologue.drill.fault import Act, Fault

SLOW, FAST = 0.1, 10.0
"""Reads, sends at this multiple of real time."""
RECEIVE_BYTES = 8192
"""What the kernel holds for a slow reader: so little that the server notices soon."""


async def disturb(fault: Fault, place: Place) -> None:
    """For `fault.seconds`.  Raises what starting a session raises."""
    slow = fault.act is Act.SLOW
    session = LiveClient.connect(
        place.url,
        model=place.model,
        api_key=place.key,
        receive_bytes=RECEIVE_BYTES if slow else None,
    )
    with contextlib.suppress(ConnectionLost, TimeoutError):
        async with session as client:
            reading = asyncio.create_task(_read(client, place.unit_s / SLOW if slow else 0.0))
            sending = asyncio.create_task(_send(client, place, 1.0 if slow else FAST))
            await asyncio.wait({reading, sending}, timeout=fault.seconds, return_when=asyncio.FIRST_EXCEPTION)
            for task in (reading, sending):
                task.cancel()
            await asyncio.gather(reading, sending, return_exceptions=True)


async def _send(client: LiveClient, place: Place, pace: float) -> None:
    # Loud, so that there is something to answer: a square wave of 100 Hz at 24 kHz.
    unit = (b"\x00\x20" * 120 + b"\x00\xe0" * 120) * 8
    now = asyncio.get_running_loop().time
    began, sent = now(), 0
    while True:
        await asyncio.sleep(began + sent * place.unit_s / pace - now())
        await client.append(unit)
        sent += 1


async def _read(client: LiveClient, rest_s: float) -> None:
    async for _ in client:
        await asyncio.sleep(rest_s)
