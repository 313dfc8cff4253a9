"""The printer's thread: order, count, and what happens when it is too slow."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from duologue.bus.messages import WIRE
from duologue.bus.tape import Copy
from duologue.tap import printing
from duologue.tap.printing import LEFT_OUT, LOST, TOO_SLOW, Printer

pytestmark = pytest.mark.unit

GIVE_UP_S = 20.0


class Paper:
    """Where lines go; `jammed` while `free` is not set."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.free = threading.Event()
        self.free.set()
        self.at_work = threading.Event()
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def write(self, line: str) -> None:
        self.at_work.set()
        assert self.free.wait(GIVE_UP_S)
        self.lines.append(line)

    def done(self, error: BaseException | None) -> None:
        self.error = error
        self.ended.set()


def text(copy: Copy, at: float) -> str | None:
    return None if copy.data == b"unwanted" else f"{at:g} {copy.data.decode()[:9]}"


def copy(data: bytes, skipped: int = 0) -> Copy:
    return Copy(WIRE, "s", "", data, skipped=skipped)


@contextmanager
def printer(paper: Paper, **options: Any) -> Iterator[Printer]:
    made = Printer(text, paper.write, wall=lambda: 5.0, done=paper.done, **options)
    made.start()
    yield made
    paper.free.set()
    made.stop()
    assert paper.ended.wait(GIVE_UP_S)


def test_everything_seen_is_shown_in_order() -> None:
    paper = Paper()
    with printer(paper) as made:
        for number in range(100):
            made.see(copy(b"%d" % number))
    assert paper.lines == [f"5 {number}" for number in range(100)]
    assert paper.error is None


def test_it_ends_after_so_many_lines() -> None:
    paper = Paper()
    with printer(paper, count=2) as made:
        for data in (b"unwanted", b"0", b"unwanted", b"1", b"2"):
            made.see(copy(data))
        assert paper.ended.wait(GIVE_UP_S)
    assert paper.lines == ["5 0", "5 1"]


@pytest.mark.parametrize(
    ("bound", "size"), [({"QUEUE_MESSAGES": 3}, 1), ({"QUEUE_BYTES": 2000}, 1000)], ids=["messages", "bytes"]
)
def test_what_it_is_too_slow_for_is_counted(
    bound: dict[str, int], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bound.items():
        monkeypatch.setattr(printing, name, value)
    paper = Paper()
    paper.free.clear()
    with printer(paper) as made:
        made.see(copy(b"0" * size))
        assert paper.at_work.wait(GIVE_UP_S), "the first is out of the queue"
        for number in range(1, 10):
            made.see(copy(b"%d" % number * size))
        paper.free.set()
    shown = [line for line in paper.lines if not line.startswith("---")]
    assert len(shown) == 4
    assert [line for line in paper.lines if line.startswith("---")] == [
        f"--- 6 messages not shown: {TOO_SLOW}"
    ]


def test_other_losses_are_told() -> None:
    paper = Paper()
    missed = iter([(0, 0), (7, 0), (7, 1), (7, 1)])
    with printer(paper, missed=lambda: next(missed)) as made:
        made.see(copy(b"0"))
        made.see(copy(b"1", skipped=3))
        made.see(copy(b"2"))
    assert paper.lines == [
        "5 0",
        f"--- 7 messages not shown: {TOO_SLOW}",
        f"--- 3 messages not shown: {LEFT_OUT}",
        "5 1",
        f"--- {LOST}",
        "5 2",
    ]


def test_losses_as_json() -> None:
    paper = Paper()
    with printer(paper, missed=lambda: (2, 1), as_json=True, count=1) as made:
        made.see(copy(b"0"))
        assert paper.ended.wait(GIVE_UP_S)
    assert [orjson.loads(line) for line in paper.lines[:2]] == [
        {"kind": "skipped", "messages": 2, "why": TOO_SLOW},
        {"kind": "skipped", "messages": None, "why": LOST},
    ]


def test_whoever_closes_the_pipe_ends_it() -> None:
    def closed(line: str) -> None:
        raise BrokenPipeError

    paper = Paper()
    paper.write = closed  # type: ignore[method-assign]
    with printer(paper) as made:
        made.see(copy(b"0"))
        assert paper.ended.wait(GIVE_UP_S)
    assert isinstance(paper.error, BrokenPipeError)


def test_stopping_does_not_wait_for_a_terminal_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "STOP_S", 0.01)
    paper = Paper()
    paper.free.clear()
    with printer(paper) as made:
        made.see(copy(b"0"))
        assert paper.at_work.wait(GIVE_UP_S)
        made.stop()
        assert not paper.ended.is_set()
