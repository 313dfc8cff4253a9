"""Work that is too long for a step: a worker's few threads for it, shared fairly by the sessions.

A step submits and polls; it never waits.  What came of it, and in which unit it was first used, is a decision of that unit
and so belongs into its record.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Busy(RuntimeError):
    """The session has as much work waiting as it may."""


class Piece(NamedTuple):
    """Of work, which is needed at `due` on the threads' clock."""

    future: Future[Any]
    work: Callable[[], Any]
    due: float


class Background:
    """`threads` threads, which end with the process.  With `inline` there are none: work is done where it is submitted,
    so that the same input gives the same output whatever else the machine does."""

    def __init__(
        self,
        name: str,
        threads: int = 1,
        inline: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._threads, self._inline, self._clock = name, threads, inline, clock
        self._changed = threading.Condition()
        # bounded: by the sessions, each lane is in it at most once
        self._turn: deque[Lane] = deque()
        self._started = False

    def lane(self, most: int) -> "Lane":
        """A session's way in, for at most `most` pieces of work that wait."""
        return Lane(self, most)

    @property
    def behind(self) -> bool:
        """Whether work waits for a thread."""
        return bool(self._turn)

    def submit(self, lane: "Lane", future: Future[Any], work: Callable[[], Any], wait_s: float) -> None:
        if self._inline:
            _do(future, work)
            return
        with self._changed:
            if len(lane.waiting) >= lane.most:
                raise Busy(f"{lane.most} pieces of work wait already")
            lane.waiting.append(Piece(future, work, self._clock() + wait_s))
            if len(lane.waiting) == 1:
                self._turn.append(lane)
            if not self._started:
                self._start()
            self._changed.notify()

    def cancel(self, lane: "Lane") -> None:
        with self._changed:
            for piece in lane.waiting:
                piece.future.cancel()
            if lane.waiting:
                self._turn.remove(lane)
            lane.waiting.clear()

    def _start(self) -> None:
        self._started = True
        for number in range(self._threads):
            threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._turn)
                lane = self._choose()
                self._turn.remove(lane)
                piece = lane.waiting.popleft()
                if lane.waiting:
                    self._turn.append(lane)
            _do(piece.future, piece.work)

    def _choose(self) -> "Lane":
        """Of those whose work is due, in turn; where none is, the one whose work is due first."""
        now = self._clock()
        due = (lane for lane in self._turn if lane.waiting[0].due <= now)
        return next(due, None) or min(self._turn, key=lambda lane: lane.waiting[0].due)


class Lane:
    """A session's work, done in order, one piece in turn with the other sessions'."""

    def __init__(self, background: Background, most: int) -> None:
        self._background, self.most = background, most
        self.waiting: deque[Piece] = deque(maxlen=most)

    def submit(self, work: Callable[[], T], wait_s: float = 0.0) -> Future[T]:
        """Has work done that is needed in `wait_s`.  Raises `Busy`."""
        future: Future[T] = Future()
        self._background.submit(self, future, work, wait_s)
        return future

    def cancel(self) -> None:
        """Drops what has not begun.  What runs ends by itself, and nobody waits for it."""
        self._background.cancel(self)


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)
