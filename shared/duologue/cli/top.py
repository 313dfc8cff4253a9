"""`duologue top`: who is there, and how they do."""

import asyncio
import sys
from typing import Annotated

import typer
from rich.console import Console

from duologue.cli.options import NATS_URL, Nats


def top(
    nats: Nats = NATS_URL,
    once: Annotated[
        bool, typer.Option("--once", envvar="DUO_ONCE", help="Show it once, after a second, and end.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", envvar="DUO_JSON", help="One JSON object a second, or with --once one.")
    ] = False,
) -> None:
    """Show all pods, workers and sessions live, until Ctrl-C.

    free: places for more sessions; sess: sessions there.  queue, step:
    milliseconds that a unit waits for its step, and that a step takes (medians
    of 5 s).  due, run: age of the oldest unit that waits, of the step that runs.
    beat: age of the last heartbeat; three missing ones make silent.  v: wire
    version.  Sessions are those to which something happened since this began.
    """
    from duologue.top import live

    def write(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.flush()

    asyncio.run(live.run(live.TopSettings(nats, once, as_json), Console(), write))
