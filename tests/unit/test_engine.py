"""Where model work runs."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from duologue.stage.engine import Engine, InlineEngine, ThreadEngine
from duologue.virtual import VirtualLoop, run_virtual

pytestmark = pytest.mark.unit

Make = Callable[[asyncio.AbstractEventLoop], Engine]
BOTH = pytest.mark.parametrize("make", [InlineEngine, ThreadEngine])


async def did(engine: Engine, job: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The job's end, awaited while virtual time stands still for a real thread."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    engine.submit(job, lambda result, error: ended.set_result((result, error)))
    if isinstance(engine, InlineEngine):
        return await ended
    assert isinstance(loop, VirtualLoop)
    with loop.outside():
        return await ended


@BOTH
def test_a_job_ends_with_its_result_or_its_error(make: Make) -> None:
    async def main() -> None:
        engine = make(asyncio.get_running_loop())
        assert await did(engine, lambda: 3) == (3, None)
        result, error = await did(engine, lambda: [][0])
        assert result is None
        assert isinstance(error, IndexError)
        result, error = await did(engine, lambda: next(iter(())))
        assert isinstance(error, StopIteration)
        assert not engine.busy
        engine.stop()

    run_virtual(main())


@BOTH
def test_one_job_at_a_time(make: Make) -> None:
    async def main() -> None:
        engine = make(asyncio.get_running_loop())
        may_end = threading.Event()
        if isinstance(engine, InlineEngine):
            may_end.set()
        ended = asyncio.create_task(did(engine, may_end.wait))
        await asyncio.sleep(0)
        assert engine.busy
        with pytest.raises(RuntimeError, match="runs already"):
            engine.submit(lambda: None, lambda result, error: None)
        may_end.set()
        assert await ended == (True, None)
        engine.stop()

    run_virtual(main())


def test_inline_a_job_takes_the_time_that_it_slept() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        engine = InlineEngine(loop)

        def job() -> None:
            engine.sleep(0.25)
            engine.sleep(0.5)

        for n in (1, 2):
            await did(engine, job)
            assert loop.time() == pytest.approx(n * 0.75)

    run_virtual(main())


def test_jobs_run_on_one_thread_that_is_not_the_loops() -> None:
    async def main() -> None:
        engine = ThreadEngine(asyncio.get_running_loop())
        idents = [(await did(engine, threading.get_ident))[0] for _ in range(3)]
        assert len(set(idents)) == 1
        assert idents[0] != threading.get_ident()
        engine.stop()

    run_virtual(main())


@pytest.mark.parametrize("busy", [False, True])
def test_the_thread_ends_with_the_last_job(busy: bool) -> None:
    """Stopped while a job ran, the thread waited for ever."""

    async def main() -> threading.Thread:
        before = set(threading.enumerate())
        engine = ThreadEngine(asyncio.get_running_loop())
        (model,) = set(threading.enumerate()) - before
        if not busy:
            engine.stop()
            return model
        may_end = threading.Event()
        ended = asyncio.create_task(did(engine, may_end.wait))
        await asyncio.sleep(0)
        engine.stop()
        may_end.set()
        await ended
        return model

    thread = run_virtual(main())
    thread.join(5.0)
    assert not thread.is_alive()
