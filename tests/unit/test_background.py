"""Work beside the steps: in order within a session, in turn between sessions, bounded."""

import threading
from concurrent.futures import CancelledError

import pytest

from duologue.stage.background import Background, Busy

pytestmark = pytest.mark.unit


class Gate:
    """Holds the one thread until it is opened."""

    def __init__(self, background: Background) -> None:
        self._open = threading.Event()
        entered = threading.Event()

        def hold() -> None:
            entered.set()
            self._open.wait(10)

        self.held = background.lane(1).submit(hold)
        assert entered.wait(10)

    def open(self) -> None:
        self._open.set()


def test_sessions_take_turns_and_each_keeps_its_order() -> None:
    background = Background("test")
    gate = Gate(background)
    done: list[str] = []
    one, other = background.lane(3), background.lane(3)
    futures = [one.submit(lambda name=name: done.append(name)) for name in ("a1", "a2", "a3")]
    futures += [other.submit(lambda name=name: done.append(name)) for name in ("b1", "b2")]
    gate.open()
    for future in futures:
        future.result(10)
    assert done == ["a1", "b1", "a2", "b2", "a3"]


def test_what_is_needed_first_is_done_first() -> None:
    now = 100.0
    background = Background("test", clock=lambda: now)
    gate = Gate(background)
    done: list[str] = []
    futures = [
        background.lane(2).submit(lambda name=name: done.append(name), wait_s)
        for name, wait_s in (
            ("in 3 s", 3.0),
            ("in 1 s", 1.0),
            ("now", 0.0),
            ("now, too", 0.0),
            ("in 2 s", 2.0),
        )
    ]
    gate.open()
    for future in futures:
        future.result(10)
    assert done == ["now", "now, too", "in 1 s", "in 2 s", "in 3 s"]


def test_what_has_become_due_takes_its_turn() -> None:
    now = [100.0]
    background = Background("test", clock=lambda: now[0])
    gate = Gate(background)
    done: list[str] = []
    first = background.lane(1).submit(lambda: done.append("ahead"), 1.0)
    now[0] += 1.0
    second = background.lane(1).submit(lambda: done.append("now"))
    gate.open()
    first.result(10)
    second.result(10)
    assert done == ["ahead", "now"]


def test_a_session_has_a_bound() -> None:
    background = Background("test")
    gate = Gate(background)
    lane = background.lane(2)
    for _ in range(2):
        lane.submit(lambda: None)
    with pytest.raises(Busy):
        lane.submit(lambda: None)
    background.lane(1).submit(lambda: None)
    gate.open()


def test_what_is_cancelled_is_not_done_and_leaves_room() -> None:
    background = Background("test")
    gate = Gate(background)
    lane, done = background.lane(1), []
    dropped = lane.submit(lambda: done.append("dropped"))
    lane.cancel()
    kept = lane.submit(lambda: done.append("kept"))
    gate.open()
    kept.result(10)
    assert done == ["kept"]
    with pytest.raises(CancelledError):
        dropped.result(0)


def test_what_fails_fails_alone() -> None:
    lane = Background("test").lane(2)

    def fail() -> None:
        raise ZeroDivisionError

    failed, fine = lane.submit(fail), lane.submit(lambda: 5)
    assert fine.result(10) == 5
    with pytest.raises(ZeroDivisionError):
        failed.result(10)


def test_inline_it_is_done_at_once_and_by_the_caller() -> None:
    lane = Background("test", inline=True).lane(1)
    futures = [lane.submit(threading.current_thread) for _ in range(3)]
    assert [future.result(0) for future in futures] == [threading.current_thread()] * 3
