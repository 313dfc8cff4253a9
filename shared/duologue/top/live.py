"""`duologue top` as a process: its own connection to the bus, a table that is drawn anew again and again."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import orjson
from rich.console import Console
from rich.live import Live

from duologue.bus import subjects
from duologue.bus.nats import NatsTransport
from duologue.bus.transport import TransportError
from duologue.top.table import render
from duologue.top.watch import Watch

FIRST_S = 1.0
"""By then everybody has sent some heartbeats."""
REFRESH_S, JSON_S = 0.5, 1.0


@dataclass(frozen=True)
class TopSettings:
    """`once`: the picture after a second, and no more."""

    nats_url: str
    once: bool = False
    as_json: bool = False


async def run(settings: TopSettings, console: Console, write: Callable[[bytes], object]) -> None:
    """Until SIGINT or SIGTERM.  Raises `TransportError`."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[str] = loop.create_future()

    def end(why: str = "") -> None:
        if not ended.done():
            ended.set_result(why)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    transport = NatsTransport(settings.nats_url, name="duologue-top", on_closed=end)
    await transport.connect()
    watch = Watch(clock=loop.time, settled_s=lambda: transport.settled_s)
    await transport.subscribe(subjects.heartbeats(), watch.on_heartbeat)
    await transport.subscribe(subjects.events(), watch.on_event)
    once = settings.once or not (settings.as_json or console.is_terminal)
    with ExitStack() as stack:
        live = None
        if not once and not settings.as_json:
            live = stack.enter_context(Live(console=console, auto_refresh=False, screen=True))
        wait_s = FIRST_S if once or settings.as_json else 0.1
        while not await _ends_within(ended, wait_s):
            picture = watch.picture()
            if settings.as_json:
                write(orjson.dumps(picture) + b"\n")
            elif live is not None:
                live.update(render(picture, console.width), refresh=True)
            else:
                console.print(render(picture, console.width))
            if once:
                end()
            wait_s = JSON_S if settings.as_json else REFRESH_S
    await transport.close()
    if why := ended.result():
        raise TransportError(f"the NATS server closed the connection: {why}")


async def _ends_within(ended: "asyncio.Future[str]", seconds: float) -> bool:
    await asyncio.wait({ended}, timeout=seconds)
    return ended.done()
