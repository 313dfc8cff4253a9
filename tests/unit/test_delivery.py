"""One edge's two ends, each by itself."""

import pytest

from duologue.bus.delivery import REPAIR_S, RESEND_MAX_S, RESEND_S, Inlet, Outlet, Ring, Verdict
from duologue.bus.messages import Inflow, Outflow
from edge import RECEIVER, TO, WINDOW, emission, envelope

pytestmark = pytest.mark.unit

OLD, NEW, NEWER = (1, 1), (1, 5), (2, 1)
SIZE = emission(0).size


def ring(units: int, limit_bytes: int = 1 << 20, begin: int = 0) -> Ring:
    made = Ring(begin, limit_bytes)
    for unit in range(begin, begin + units):
        made.add(emission(unit))
    return made


def kept(made: Ring) -> list[int]:
    return [unit for unit in range(made.end) if made.get(unit) is not None]


def outlet(*, start: int = 0, until: int = -1, now: float = 100.0) -> Outlet:
    return Outlet(Outflow(RECEIVER, TO, start, until), WINDOW, now)


def inlet(*entries: tuple[tuple[int, int], int], next_unit: int = 0) -> Inlet:
    return Inlet(Inflow(list(entries or [(OLD, 0)]), next_unit), WINDOW)


# ---------------------------------------------------------------- ring


@pytest.mark.parametrize("unit", [4, 6, 0])
def test_a_ring_takes_units_in_order_without_holes(unit: int) -> None:
    made = ring(2, begin=3)
    with pytest.raises(ValueError, match="5 is next"):
        made.add(emission(unit))
    made.add(emission(5))
    assert kept(made) == [3, 4, 5]


def test_what_nobody_acknowledged_is_kept_over_any_limit() -> None:
    made = ring(10, limit_bytes=0)
    made.release(acked=4, horizon=10)
    assert kept(made) == [4, 5, 6, 7, 8, 9]


def test_beyond_that_the_ring_reaches_back_to_the_horizon() -> None:
    made = ring(10)
    made.release(acked=8, horizon=5)
    assert kept(made) == [5, 6, 7, 8, 9]


def test_beyond_that_the_ring_reaches_back_as_far_as_its_bytes() -> None:
    made = ring(10, limit_bytes=3 * SIZE)
    made.release(acked=10, horizon=0)
    assert kept(made) == [7, 8, 9]
    made = ring(10, limit_bytes=3 * SIZE - 1)
    made.release(acked=10, horizon=0)
    assert kept(made) == [8, 9]


def test_an_addressee_ahead_of_the_ring_releases_all_of_it() -> None:
    made = ring(3)
    made.release(acked=9, horizon=9)
    assert (kept(made), made.start, made.end, made.bytes) == ([], 3, 3, 0)


def test_a_ring_knows_its_bytes() -> None:
    made = ring(0)
    for unit in range(4):
        made.add(emission(unit, 100 * unit))
    assert made.bytes == sum(emission(unit, 100 * unit).size for unit in range(4))
    made.replace(emission(2, 7))
    assert made.get(2) == emission(2, 7)
    made.release(acked=2, horizon=2)
    assert made.bytes == emission(2, 7).size + emission(3, 300).size


# ---------------------------------------------------------------- outlet


def test_a_window_of_units_may_be_under_way() -> None:
    it = outlet(start=3)
    assert (it.sendable(0), it.sendable(5), it.sendable(50)) == (0, 5, 3 + WINDOW)
    it.on_ack(7, 2, 0, False, 100.0)
    assert it.sendable(50) == 3 + WINDOW, "credit is never taken back"
    it.on_ack(7, WINDOW, 0, False, 100.0)
    assert it.sendable(50) == 7 + WINDOW


def test_an_outlet_ends() -> None:
    it = outlet(until=5)
    assert it.sendable(50) == 5
    assert [it.lacks(made) for made in (0, 3, 5, 50)] == [0, 3, 5, 5]
    it.on_ack(5, WINDOW, 0, False, 100.0)
    assert it.lacks(50) == 0
    it = outlet(start=2)
    assert [it.lacks(made) for made in (0, 2, 50)] == [0, 0, 48]


def test_acknowledgements_are_cumulative_and_an_old_one_changes_nothing() -> None:
    it = outlet()
    it.sent = 6
    it.on_ack(5, WINDOW, 2, False, 100.0)
    it.on_ack(3, WINDOW, 1, True, 200.0)
    assert (it.acked, it.sent, it.horizon, it.limit) == (5, 6, 2, 5 + WINDOW)


def test_what_came_by_another_way_need_not_be_sent() -> None:
    it = outlet()
    it.sent = 2
    it.on_ack(5, WINDOW, 0, False, 100.0)
    assert (it.acked, it.sent) == (5, 5)


def test_a_repair_begins_again_at_the_hole_and_not_twice_within_40_ms() -> None:
    it = outlet(now=0.0)
    it.sent = 6
    it.on_ack(2, WINDOW, 0, True, 10.0)
    assert it.sent == 2
    it.sent = 6
    it.on_ack(2, WINDOW, 0, True, 10.0 + 0.9 * REPAIR_S)
    assert it.sent == 6
    it.on_ack(2, WINDOW, 0, True, 10.0 + 1.1 * REPAIR_S)
    assert it.sent == 2


def test_a_repair_may_be_asked_for_at_once() -> None:
    it = outlet(now=10.0)
    it.sent = 3
    it.on_ack(0, WINDOW, 0, True, 10.0)
    assert it.sent == 0


def test_a_repair_of_what_was_never_sent_is_none() -> None:
    it = outlet()
    it.sent = 4
    it.on_ack(4, WINDOW, 0, True, 100.0)
    assert it.sent == 4
    it.sent = 6
    it.on_ack(4, WINDOW, 0, True, 100.0)
    assert it.sent == 4, "nor does it put off one that is"


def test_silence_makes_it_send_again_less_and_less_often() -> None:
    it = outlet(now=0.0)
    it.sent = 3
    now, waits = 0.0, []
    for _ in range(6):
        begun = now
        while it.overdue(3, now) is None:
            now += 0.001
        waits.append(now - begun)
        assert it.sent == 3, "nothing but the first is sent again"
    doubling = [min(RESEND_S * 2**n, RESEND_MAX_S) for n in range(6)]
    assert waits == pytest.approx(doubling, abs=0.002)
    assert waits[-1] == pytest.approx(RESEND_MAX_S, abs=0.002)
    it.on_ack(1, WINDOW, 0, False, now)
    assert it.sent == 1, "what follows is sent again once the first is acknowledged"
    it.sent = 3
    it.on_ack(2, WINDOW, 0, False, now)
    assert it.sent == 3, "and only then"
    it.on_ack(1, WINDOW, 0, False, now)
    assert it.overdue(3, now + RESEND_S - 0.001) is None
    assert it.overdue(3, now + RESEND_S) == 2


def test_nothing_under_way_is_never_overdue() -> None:
    it = outlet(now=0.0)
    assert it.overdue(0, 1000.0) is None
    it.sent = 3
    it.on_ack(3, WINDOW, 0, False, 1.0)
    assert it.overdue(3, 1000.0) is None


def test_without_credit_one_unit_probes() -> None:
    it = outlet(now=0.0)
    it.sent = WINDOW
    it.on_ack(WINDOW, 0, 0, False, 0.0)
    assert it.sendable(50) == WINDOW
    assert it.overdue(WINDOW, 10.0) is None, "there is nothing to probe with"
    assert it.overdue(WINDOW + 3, 10.0) == WINDOW
    assert it.overdue(WINDOW + 3, 10.1) is None
    assert it.overdue(WINDOW + 3, 10.0 + 2 * RESEND_S) == WINDOW, "an unanswered probe is repeated"


def test_an_outlet_that_ended_does_not_probe() -> None:
    it = outlet(until=WINDOW, now=0.0)
    it.sent = WINDOW
    it.on_ack(WINDOW, 0, 0, False, 0.0)
    assert it.overdue(WINDOW + 3, 10.0) is None


# ---------------------------------------------------------------- inlet


def test_only_the_next_unit_is_accepted() -> None:
    it = inlet(next_unit=4)
    verdicts = [it.judge(unit, OLD) for unit in (3, 4, 5)]
    assert verdicts == [Verdict.REPEAT, Verdict.ACCEPTED, Verdict.HOLE]


def test_an_inlet_is_full_after_a_window() -> None:
    it = inlet()
    for unit in range(WINDOW):
        assert it.judge(unit, OLD) is Verdict.ACCEPTED
        it.accept(envelope(unit))
        assert it.credit == WINDOW - 1 - unit
    assert it.judge(WINDOW, OLD) is Verdict.FULL
    assert it.judge(WINDOW - 1, OLD) is Verdict.REPEAT
    assert it.judge(WINDOW + 1, OLD) is Verdict.HOLE
    assert it.take().unit == 0
    assert it.judge(WINDOW, OLD) is Verdict.ACCEPTED


def test_units_are_used_in_order() -> None:
    it = inlet(next_unit=2)
    for unit in (2, 3):
        it.accept(envelope(unit))
    assert (len(it), [each.unit for each in it]) == (2, [2, 3])
    assert it.peek(3) is not None
    assert it.peek(4) is None
    assert [it.take().unit for _ in range(2)] == [2, 3]
    assert (it.used, it.next, it.credit, len(it)) == (4, 4, WINDOW, 0)
    with pytest.raises(KeyError):
        it.take()


@pytest.mark.parametrize(
    ("unit", "epoch", "verdict"),
    [
        (3, OLD, Verdict.ACCEPTED),
        (4, OLD, Verdict.HOLE),
        (5, OLD, Verdict.FENCED),
        (9, OLD, Verdict.FENCED),
        (3, NEW, Verdict.FENCED),
        (5, NEW, Verdict.HOLE),
        (3, (1, 3), Verdict.FENCED),
        (3, NEWER, Verdict.HELD),
        (3, (1, 6), Verdict.HELD),
        (2, OLD, Verdict.REPEAT),
    ],
)
def test_each_unit_has_one_epoch_in_force(unit: int, epoch: tuple[int, int], verdict: Verdict) -> None:
    """The sender changes at unit 5; wirings may list entries in any order."""
    assert inlet((NEW, 5), (OLD, 0), next_unit=3).judge(unit, epoch) is verdict


def test_a_newer_epoch_from_an_earlier_unit_voids_the_one_between() -> None:
    it = inlet((OLD, 0), (NEW, 8), (NEWER, 5), next_unit=4)
    assert it.judge(4, OLD) is Verdict.ACCEPTED
    assert it.judge(8, NEW) is Verdict.FENCED
    assert it.judge(8, NEWER) is Verdict.HOLE


def test_before_the_first_entry_nobody_is_in_force() -> None:
    it = inlet((OLD, 5))
    assert it.judge(4, OLD) is Verdict.FENCED
    assert Inlet(Inflow([], 0), WINDOW).judge(0, OLD) is Verdict.HELD


def test_a_rewired_inlet_keeps_what_it_has() -> None:
    it = inlet()
    it.accept(envelope(0))
    it.wire(Inflow([(OLD, 0), (NEW, 1)], 0))
    assert it.judge(1, OLD) is Verdict.FENCED
    assert it.judge(1, NEW) is Verdict.ACCEPTED
    assert it.take().unit == 0


def test_a_hole_is_asked_for_at_most_every_40_ms() -> None:
    it = inlet()
    assert it.may_ask(0.0)
    assert not it.may_ask(0.9 * REPAIR_S)
    assert it.may_ask(REPAIR_S)
    assert not it.may_ask(1.5 * REPAIR_S)
