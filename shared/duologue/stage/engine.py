"""Where model work runs: one thread, one job at a time; or, in virtual time, inline at the job's stated cost."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Job = Callable[[], Any]
Done = Callable[[Any, BaseException | None], None]


class Engine(Protocol):
    """Runs one job at a time; `done(result, error)` is called on the event loop."""

    def submit(self, job: Job, done: Done) -> None:
        """Raises `RuntimeError` while a job runs."""
        ...

    @property
    def busy(self) -> bool: ...

    def sleep(self, seconds: float) -> None:
        """For jobs: the time that a device would take."""
        ...

    def stop(self) -> None: ...


class ThreadEngine:
    """The one model thread of a worker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.Queue[tuple[Job, Done] | None] = queue.Queue(maxsize=1)
        self._busy = self._stopping = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self._busy

    def submit(self, job: Job, done: Done) -> None:
        if self._busy:
            raise RuntimeError("a job runs already")
        self._busy = True
        self._jobs.put_nowait((job, done))

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def stop(self) -> None:
        """To be called once.  Lets the running job, if any, and those that its end brings, end by themselves."""
        self._stopping = True
        self._leave()

    def _leave(self) -> None:
        if self._stopping and not self._busy:
            self._jobs.put_nowait(None)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            try:
                result, error = job(), None
            except BaseException as caught:
                result, error = None, caught
            try:
                self._loop.call_soon_threadsafe(self._finish, done, result, error)
            except RuntimeError:  # the loop was closed in the meantime
                return

    def _finish(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._busy = False
        done(result, error)
        self._leave()


class InlineEngine:
    """For virtual time: the job runs at once, its end is reported after the time that it slept."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._busy = False
        self._slept = 0.0

    @property
    def busy(self) -> bool:
        return self._busy

    def submit(self, job: Job, done: Done) -> None:
        if self._busy:
            raise RuntimeError("a job runs already")
        self._busy, self._slept = True, 0.0
        try:
            result, error = job(), None
        except Exception as caught:
            result, error = None, caught
        self._loop.call_later(self._slept, self._finish, done, result, error)

    def sleep(self, seconds: float) -> None:
        self._slept += seconds

    def stop(self) -> None:
        pass

    def _finish(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._busy = False
        done(result, error)
