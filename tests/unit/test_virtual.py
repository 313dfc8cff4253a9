"""The loop in virtual time."""

import asyncio
import threading
import time

import pytest

from duologue.virtual import Stalled, VirtualLoop, run_virtual

pytestmark = pytest.mark.unit


def now() -> float:
    return asyncio.get_running_loop().time()


def test_an_hour_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(3599)
        return now()

    started = time.monotonic()
    assert run_virtual(main()) == pytest.approx(3599)
    assert time.monotonic() - started < 60


def test_time_starts_where_it_is_told() -> None:
    async def main() -> float:
        await asyncio.sleep(1)
        return now()

    assert run_virtual(main(), start_s=1000.0) == pytest.approx(1001)


def test_timers_fire_in_order_each_at_its_time() -> None:
    fired: list[tuple[str, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for name, delay in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
            loop.call_later(delay, lambda name=name: fired.append((name, now())))
        await asyncio.sleep(4)

    run_virtual(main())
    assert [name for name, _ in fired] == ["a", "b", "c"]
    assert [at for _, at in fired] == pytest.approx([1, 2, 3])


def test_time_stands_while_anything_is_ready() -> None:
    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return now()

    assert run_virtual(main()) == 0.0


def test_waiting_for_nothing_is_a_stall_that_names_the_waiter() -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(wait_for_ever(), name="the waiter")

    with pytest.raises(Stalled, match=r"nothing is scheduled.*the waiter.*wait_for_ever"):
        run_virtual(main())


def test_time_beyond_the_limit_is_a_stall_that_names_the_waiter() -> None:
    async def tick() -> None:
        for _ in range(1000):
            await asyncio.sleep(0.25)

    async def main() -> None:
        asyncio.current_task().set_name("main")  # type: ignore[union-attr]
        async with asyncio.TaskGroup() as group:
            group.create_task(tick(), name="ticker")

    with pytest.raises(Stalled, match=r"not done after 10\.000 s.*main.*ticker"):
        run_virtual(main(), limit_s=10.0)


def test_the_limit_counts_from_the_start() -> None:
    assert run_virtual(asyncio.sleep(9, "done"), start_s=500.0, limit_s=10.0) == "done"


def test_leftover_tasks_are_cancelled_and_may_take_their_time() -> None:
    ended: list[float] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(5)
            ended.append(now())

    async def main() -> None:
        leftover = asyncio.create_task(linger())
        await asyncio.sleep(1)
        assert not leftover.done()

    run_virtual(main(), limit_s=2.0)
    assert ended == [pytest.approx(6)]


def test_an_exception_in_a_callback_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        run_virtual(main())


def test_several_exceptions_in_callbacks_are_all_told() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        asyncio.get_running_loop().call_soon(lambda: [][1])
        await asyncio.sleep(1)

    with pytest.raises(ExceptionGroup) as raised:
        run_virtual(main())
    assert [type(error) for error in raised.value.exceptions] == [ZeroDivisionError, IndexError]


def test_a_stall_tells_of_the_callback_that_caused_it() -> None:
    async def main() -> None:
        event = asyncio.Event()

        def set_event() -> None:
            raise KeyError("before it was set")

        asyncio.get_running_loop().call_later(1, set_event)
        await event.wait()

    with pytest.raises(Stalled) as raised:
        run_virtual(main())
    assert any("before it was set" in note for note in raised.value.__notes__)


def test_an_exception_nobody_awaited_fails_the_run() -> None:
    async def fail() -> None:
        raise LookupError("forgotten")

    async def main() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        del task

    with pytest.raises(LookupError, match="forgotten"):
        run_virtual(main())


def test_a_thread_takes_no_virtual_time() -> None:
    """A model thread at work must not let the timers of the protocol run away."""
    ticks: list[float] = []
    release = threading.Event()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(0.001, lambda: ticks.append(now()))
        work = loop.run_in_executor(None, release.wait, 30)
        threading.Timer(0.05, release.set).start()
        assert await work
        assert ticks == []
        at = now()
        await asyncio.sleep(1)
        assert len(ticks) == 1
        return at

    assert run_virtual(main()) == 0.0


def test_callbacks_run_while_a_thread_works() -> None:
    release = threading.Event()

    async def main() -> bool:
        work = asyncio.create_task(asyncio.to_thread(release.wait, 30))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(release.set)
        return await work

    assert run_virtual(main())


def test_work_outside_the_executor_can_be_declared() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        done = loop.create_future()
        with loop.outside():
            threading.Timer(0.02, loop.call_soon_threadsafe, (done.set_result, "came back")).start()
            return str(await done)

    assert run_virtual(main()) == "came back"


def test_two_runs_are_alike() -> None:
    async def main() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def tick(name: str, every: float) -> None:
            for _ in range(5):
                await asyncio.sleep(every)
                seen.append((name, now()))

        async with asyncio.TaskGroup() as group:
            for name, every in (("x", 0.3), ("y", 0.2), ("z", 0.6)):
                group.create_task(tick(name, every))
        return seen

    assert run_virtual(main()) == run_virtual(main())
