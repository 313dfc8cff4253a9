"""No process outlives the one that started it, on any POSIX system.

A supervisor that is killed can't tidy up.  But it holds the other end of its children's standard input, and that end
closes with it, however it dies.  `watch` ends a process of our own when this happens; `python -m duologue.lifeline`
is a guard that ends those which can't watch for themselves (nats-server, a process that hangs).
"""

import contextlib
import os
import signal
import sys
import threading
import time

ENV = "DUO_WATCH_STDIN"
GRACE_S = 2.0
"""From asking a process to end, to ending it."""


def watch() -> None:
    """Ends this process once its standard input closes, if its starter asked for that with `DUO_WATCH_STDIN=1`.
    Processes started by this one don't inherit it."""
    if os.environ.pop(ENV, "") == "1":
        threading.Thread(target=_watch, name="lifeline", daemon=True).start()


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)


def guard() -> None:
    """Reads `+<pid>` and `-<pid>` lines from standard input; when it closes, ends the processes that are left."""
    pids: set[int] = set()
    for line in sys.stdin:
        (pids.add if line[0] == "+" else pids.discard)(int(line[1:]))
    _signal(pids, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until and _signal(pids, 0):
        time.sleep(0.05)
    _signal(pids, signal.SIGKILL)


def _signal(pids: set[int], number: int) -> bool:
    """Whether any of them is there to get the signal (0: to be seen)."""
    some = False
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            some = True
    return some


if __name__ == "__main__":
    guard()
