"""Which sessions step together, and when."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue.stage.batch import Batcher
from duologue.stage.model import Unit

pytestmark = pytest.mark.unit

GATHER_S = 0.02


@dataclass(eq=False)
class Ready:
    """An owner, as far as the batcher looks: `unit` is the next that it can step, if any."""

    name: str
    unit: int | None = 0

    def due(self) -> Unit | None:
        return None if self.unit is None else Unit(self.unit, {})


def batcher(limit: int = 8) -> Any:
    return Batcher(GATHER_S, limit)


def taken(it: Any) -> list[str]:
    return [owner.name for owner, _ in it.take()]


def test_nobody_is_ready() -> None:
    it = batcher()
    it.look(Ready("a", None), 1.0)
    assert it.wait_s(1, 1.0) is None
    assert it.wait_s(0, 1.0) is None
    assert taken(it) == []
    assert it.oldest_age(1.0) == 0.0


def test_a_batch_waits_for_the_others_from_its_first_unit_on() -> None:
    it = batcher()
    it.look(Ready("a"), 1.0)
    assert it.wait_s(3, 1.0) == pytest.approx(GATHER_S)
    it.look(Ready("b"), 1.015)
    assert it.wait_s(3, 1.015) == pytest.approx(0.005)
    assert it.wait_s(3, 1.03) == 0.0
    assert it.oldest_age(1.03) == pytest.approx(0.03)
    assert taken(it) == ["a", "b"]
    assert it.wait_s(3, 1.03) is None


def test_a_batch_does_not_wait_once_everybody_is_in_it() -> None:
    it = batcher()
    it.look(Ready("a"), 1.0)
    it.look(Ready("b"), 1.0)
    assert it.wait_s(3, 1.0) > 0
    it.look(Ready("c"), 1.0)
    assert it.wait_s(3, 1.0) == 0.0


def test_a_batch_does_not_wait_beyond_its_limit_and_takes_the_oldest() -> None:
    it = batcher(limit=2)
    it.look(Ready("a"), 1.0)
    assert it.wait_s(9, 1.0) > 0
    for at, name in enumerate("bcd", start=1):
        it.look(Ready(name), 1.0 + at / 1000)
    assert it.wait_s(9, 1.003) == 0.0
    assert taken(it) == ["a", "b"]
    assert it.oldest_age(1.003) == pytest.approx(0.001)
    assert taken(it) == ["c", "d"]


def test_looking_again_does_not_make_a_unit_younger() -> None:
    it = batcher()
    a, b = Ready("a"), Ready("b")
    it.look(a, 1.0)
    it.look(b, 1.01)
    it.look(a, 1.02)
    assert [(owner.name, due.since) for owner, due in it.take()] == [("a", 1.0), ("b", 1.01)]


def test_who_is_not_ready_any_more_or_has_left_is_not_stepped() -> None:
    it = batcher()
    a, b, c = Ready("a"), Ready("b"), Ready("c")
    for owner in (a, b, c):
        it.look(owner, 1.0)
    a.unit = None
    it.look(a, 1.0)
    it.drop(b)
    it.drop(b)
    assert taken(it) == ["c"]


def test_a_unit_that_was_taken_is_due_again_only_when_looked_at() -> None:
    it = batcher()
    a = Ready("a")
    it.look(a, 1.0)
    assert [due.unit.number for _, due in it.take()] == [0]
    assert it.wait_s(1, 1.0) is None
    a.unit = 1
    it.look(a, 2.0)
    assert [(due.since, due.unit.number) for _, due in it.take()] == [(2.0, 1)]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40),
    st.integers(1, 4),
)
def test_nobody_is_passed_over(steps: list[tuple[int, bool]], limit: int) -> None:
    """However rows come and batches are taken, each row waits only for those that were ready before it."""
    it, rows, waiting = batcher(limit), [Ready(str(n)) for n in range(10)], []
    for now, (n, take) in enumerate(steps):
        if rows[n].name not in waiting:
            waiting.append(rows[n].name)
        it.look(rows[n], float(now))
        if take:
            assert taken(it) == waiting[:limit]
            waiting = waiting[limit:]
