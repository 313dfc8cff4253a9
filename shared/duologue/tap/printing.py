"""Prints what passes, on a thread of its own: however slow the terminal is, the connection is read, and what can't be
shown in time is counted and left out."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

import orjson

from duologue.bus.tape import Copy

QUEUE_MESSAGES = 4096
QUEUE_BYTES = 16 << 20
STOP_S = 1.0

TOO_SLOW = "too slow to show them"
LEFT_OUT = "left out by their sender, whose buffer was filling up"
LOST = "the connection was lost; what passed meanwhile is not shown"


class Printer:
    """`line` makes a message's line, or `None` where it is not wanted; `write` writes lines out and may take its time;
    `missed` tells how much the connection itself lost so far: (messages, connections).  `done` is called, on the
    thread, after `count` lines, or with the error that `write` raised."""

    def __init__(
        self,
        line: Callable[[Copy, float], str | None],
        write: Callable[[str], None],
        *,
        wall: Callable[[], float],
        missed: Callable[[], tuple[int, int]] = lambda: (0, 0),
        count: int | None = None,
        as_json: bool = False,
        done: Callable[[BaseException | None], object] = lambda error: None,
    ) -> None:
        self._line, self._write, self._wall, self._missed = line, write, wall, missed
        self._count, self._as_json, self._done = count, as_json, done
        self._queue: queue.Queue[tuple[Copy, float] | None] = queue.Queue(maxsize=QUEUE_MESSAGES)
        # Each number is written by one thread alone.
        self._bytes_in = self._bytes_out = 0
        self._dropped = self._told_dropped = self._told_lost = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="printer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def see(self, copy: Copy) -> None:
        """Never waits; the newest is dropped where there is no room."""
        if self._bytes_in - self._bytes_out > QUEUE_BYTES:
            self._dropped += 1
            return
        try:
            self._queue.put_nowait((copy, self._wall()))
        except queue.Full:
            self._dropped += 1
        else:
            self._bytes_in += len(copy.data)

    def stop(self) -> None:
        """Shows what is waiting, if that takes no longer than `STOP_S`."""
        self._stopping = True
        with contextlib.suppress(queue.Full):  # then the thread does not wait, and sees that it is to stop
            self._queue.put_nowait(None)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            self._show()
        except BaseException as error:
            self._done(error)
        else:
            self._done(None)

    def _show(self) -> None:
        shown = 0
        while shown != self._count:
            item = self._next()
            if item is None:
                break
            copy, at = item
            self._bytes_out += len(copy.data)
            for notice in self._notices(copy.skipped):
                self._write(notice)
            line = self._line(copy, at)
            if line is not None:
                shown += 1
                self._write(line)
        for notice in self._notices(0):
            self._write(notice)

    def _next(self) -> tuple[Copy, float] | None:
        if self._stopping and self._queue.empty():
            return None
        return self._queue.get()

    def _notices(self, skipped: int) -> Iterator[str]:
        """What was not shown since the last time, and why."""
        missed, lost = self._missed()
        dropped = self._dropped + missed
        if dropped > self._told_dropped:
            yield self._notice(dropped - self._told_dropped, TOO_SLOW)
            self._told_dropped = dropped
        if skipped:
            yield self._notice(skipped, LEFT_OUT)
        if lost > self._told_lost:
            yield self._notice(None, LOST)
            self._told_lost = lost

    def _notice(self, messages: int | None, why: str) -> str:
        if self._as_json:
            return orjson.dumps({"kind": "skipped", "messages": messages, "why": why}).decode()
        return f"--- {why}" if messages is None else f"--- {messages} messages not shown: {why}"
