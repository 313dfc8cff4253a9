"""`duologue tap` as a process: its own connection to the bus, until it has shown enough or is told to stop."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console

from duologue.bus.nats import NatsTransport
from duologue.bus.tape import Copy, Tap
from duologue.bus.transport import TransportError
from duologue.tap.choosing import Choice
from duologue.tap.lines import as_json, as_text
from duologue.tap.printing import Printer


@dataclass(frozen=True)
class TapSettings:
    """`kinds` of `subjects.KINDS`; `pattern` of subjects; `whole`: arrays with all their bytes."""

    nats_url: str
    kinds: Sequence[str]
    pattern: str | None = None
    sid: str | None = None
    as_json: bool = False
    whole: bool = False
    count: int | None = None


async def run(settings: TapSettings) -> None:
    """Prints on standard output until `count` messages were shown, SIGINT or SIGTERM.  Raises `TransportError`, or
    what writing raised."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end(error: BaseException | None = None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    transport = NatsTransport(
        settings.nats_url,
        name="duologue-tap",
        on_closed=lambda why: end(TransportError(f"the NATS server closed the connection: {why}")),
    )
    await transport.connect()
    printer = Printer(
        _line(settings, Console()),
        write,
        wall=time.time,
        missed=lambda: (transport.stats.slow_consumers, transport.stats.reconnects),
        count=settings.count,
        as_json=settings.as_json,
        done=lambda error: loop.call_soon_threadsafe(end, error),
    )
    tap = Tap(transport, settings.kinds, printer.see)
    printer.start()
    try:
        await tap.start()
        await ended
    finally:
        await tap.stop()
        await asyncio.to_thread(printer.stop)
        await transport.close()


def _line(settings: TapSettings, console: Console) -> Callable[[Copy, float], str | None]:
    choice = Choice(settings.kinds, pattern=settings.pattern, sid=settings.sid, whole=settings.whole)

    def line(copy: Copy, at: float) -> str | None:
        decoded = choice.read(copy)
        if decoded is None:
            return None
        if settings.as_json:
            return as_json(copy, decoded, at)
        text = as_text(copy, decoded, at)
        if not console.is_terminal:
            return text.plain
        with console.capture() as capture:
            console.print(text, soft_wrap=True, end="")
        return capture.get()

    return line


def write(line: str) -> None:
    """Not through `sys.stdout`: a thread that waits in it would keep the interpreter from ending."""
    left = memoryview(f"{line}\n".encode())
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]
