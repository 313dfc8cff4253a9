"""An event loop in virtual time: nothing sleeps, the clock jumps to the next timer.

Used by tests (seconds of protocol in milliseconds, the same every time) and by `duologue offline`, where a model
step takes no time on the session's clock however long it takes on the machine.
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

CLEANUP_S = 60.0
"""Virtual seconds that cancelled tasks get to end."""


class Stalled(Exception):
    """Nothing can happen any more, or too much virtual time went by; names the tasks that wait."""


class _Jumping(selectors.DefaultSelector):
    """Instead of waiting for the time that asyncio asks for, it lets that time pass at once."""

    def __init__(self, wait: Callable[[float | None], float | None]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        real = self._wait(timeout)
        return super().select(real) if real != 0 else []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at `start_s` and moves only when there is nothing left to do at that instant.

    While work runs outside the loop (`run_in_executor`, or anything within `outside()`) the clock stands still and
    the loop really waits for it.  Raises `Stalled` out of `run_until_complete` when nothing is scheduled, or when
    `time()` would pass `start_s + limit_s`.  Exceptions in callbacks are collected in `failures`.
    """

    def __init__(self, *, start_s: float = 0.0, limit_s: float = math.inf) -> None:
        self._now = start_s
        self._until = start_s + limit_s
        self._outside = 0
        self.failures: list[BaseException] = []
        super().__init__(_Jumping(self._pass))
        self.set_exception_handler(_collect)

    def time(self) -> float:
        return self._now

    def extend(self, limit_s: float) -> None:
        """From now on the limit is `limit_s` from now."""
        self._until = self._now + limit_s

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Time stands still within: something that ends by `call_soon_threadsafe` is at work."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._outside += 1
        future.add_done_callback(self._came_back)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  (asyncio's)
        with self.outside():
            await super().shutdown_default_executor()

    def _came_back(self, _: "asyncio.Future[Any]") -> None:
        self._outside -= 1

    def _pass(self, timeout_s: float | None) -> float | None:
        """Lets `timeout_s` pass; returns how long to wait for outside events in real seconds."""
        if self._outside:
            return None
        if timeout_s is None:
            raise Stalled(f"at {self._now:.3f} s nothing is scheduled and nothing is ready; {_waiting(self)}")
        if self._now + timeout_s > self._until:
            raise Stalled(f"not done after {self._until:.3f} s of virtual time; {_waiting(self)}")
        self._now += timeout_s
        return 0


def run_virtual(coro: Coroutine[Any, Any, T], *, limit_s: float = 3600.0, start_s: float = 0.0) -> T:
    """Runs `coro` in a new `VirtualLoop`, as `asyncio.run` does, and returns its result.

    Raises what `coro` raises, `Stalled`, or else what callbacks and forgotten tasks raised (several of them as an
    `ExceptionGroup`); with a failing `coro` these are noted on its exception.
    """
    loop = VirtualLoop(start_s=start_s, limit_s=limit_s)
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                result = runner.run(coro)
            finally:
                loop.extend(CLEANUP_S)
    except BaseException as error:
        for failure in loop.failures:
            error.add_note(f"and in a callback: {failure!r}")
        raise
    if len(loop.failures) == 1:
        raise loop.failures[0]
    if loop.failures:
        raise BaseExceptionGroup("in callbacks", loop.failures)
    return result


def _collect(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    loop.failures.append(context.get("exception") or RuntimeError(context["message"]))


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    places = []
    for task in asyncio.all_tasks(loop):
        frames = task.get_stack(limit=1)
        where = f"{frames[-1].f_code.co_qualname}:{frames[-1].f_lineno}" if frames else "not started"
        places.append(f"{task.get_name()} ({where})")
    return "waiting: " + (", ".join(sorted(places)) or "no task")
