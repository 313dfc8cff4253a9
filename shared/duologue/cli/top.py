"""`duologue top`: who is there, and how they do."""

import sys

from rich.console import Console

from duologue.cli import loop
from duologue.settings import NATS_URL, Settings


def top(settings: Settings) -> int:
    """Show all pods, workers and sessions live, until Ctrl-C.

    free: places for more sessions; sess: sessions there.  queue, step:
    milliseconds that a unit waits for its step, and that a step takes (medians
    of 5 s).  due, run: age of the oldest unit that waits, of the step that runs.
    beat: age of the last heartbeat; three missing ones make silent.  v: wire
    version.  Sessions are those to which something happened since this began.

    With --json it prints one JSON object a second, with --once, too, only one.
    """
    from duologue.top import live

    def write(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.flush()

    chosen = live.TopSettings(settings.nats or NATS_URL, settings.once, settings.as_json)
    loop.run(live.run(chosen, Console(), write))
    return 0
