"""A session's end on the bus: what it sends, accepts, acknowledges and asks for, in virtual time and without a bus."""

from collections import Counter

import pytest

from duologue.bus.delivery import HOLD_S, RESEND_S, Verdict
from duologue.bus.endpoint import window_units
from duologue.bus.messages import Ack, Epoch, Wiring
from edge import (
    RECEIVER,
    SENDER,
    SENT_BY,
    TO,
    WINDOW,
    Receiver,
    Sender,
    ack,
    emission,
    envelope,
    outflow,
)

pytestmark = pytest.mark.unit

NEW: Epoch = (1, 7)
HEIR = "llm.llm-2"


# ---------------------------------------------------------------- receiving


def test_a_unit_is_accepted_handed_on_and_acknowledged() -> None:
    it = Receiver()
    assert it.end.offer(SENDER, envelope(0)) is Verdict.ACCEPTED
    assert it.arrived == [0]
    assert it.post.urgent == [False]
    ((to, owed),) = it.end.acks()
    assert to == SENDER
    assert (owed.sid, owed.src, owed.dst, owed.to) == ("live_x", "encoder", "llm", TO)
    assert (owed.next, owed.stepped, owed.credit, owed.repair) == (1, 0, WINDOW - 1, False)
    assert it.acks() == [], "owed once"


def test_acknowledgements_are_cumulative() -> None:
    it = Receiver()
    for unit in range(4):
        it.end.offer(SENDER, envelope(unit))
    it.end.take("encoder")
    it.end.horizon = 1
    (owed,) = it.acks()
    assert (owed.next, owed.stepped, owed.credit, owed.horizon) == (4, 1, WINDOW - 3, 1)


def test_a_repeat_is_dropped_and_acknowledged_again() -> None:
    it = Receiver()
    it.end.offer(SENDER, envelope(0))
    it.acks()
    assert it.end.offer(SENDER, envelope(0)) is Verdict.REPEAT
    assert it.arrived == [0]
    assert [owed.next for owed in it.acks()] == [1]


def test_a_hole_is_asked_for_at_once_and_not_again_within_40_ms() -> None:
    it = Receiver()
    assert it.end.offer(SENDER, envelope(2)) is Verdict.HOLE
    assert it.post.urgent == [True]
    (owed,) = it.acks()
    assert (owed.next, owed.repair) == (0, True)
    it.end.offer(SENDER, envelope(3))
    assert it.post.urgent == [True, False]
    assert [owed.repair for owed in it.acks()] == [False]
    it.clock.now += 0.041
    it.end.offer(SENDER, envelope(4))
    assert it.post.urgent == [True, False, True]
    assert [owed.repair for owed in it.acks()] == [True]
    assert it.arrived == []


def test_a_full_inlet_says_so_and_gives_credit_when_units_are_used() -> None:
    it = Receiver()
    for unit in range(WINDOW):
        it.end.offer(SENDER, envelope(unit))
    assert it.end.offer(SENDER, envelope(WINDOW)) is Verdict.FULL
    (owed,) = it.acks()
    assert (owed.next, owed.credit) == (WINDOW, 0)
    assert it.end.take("encoder").unit == 0
    (owed,) = it.acks()
    assert (owed.next, owed.credit) == (WINDOW, 1)
    assert it.end.offer(SENDER, envelope(WINDOW)) is Verdict.ACCEPTED


def test_who_catches_up_does_not_wait_for_the_next_tick() -> None:
    """An heir that replayed a long context stood still at each window until acknowledgements were due anyway."""
    it = Receiver()
    for unit in range(WINDOW):
        it.end.offer(SENDER, envelope(unit))
    it.post.urgent.clear()
    for _ in range(WINDOW // 2):
        it.end.take("encoder")
    assert it.post.urgent == [False] * (WINDOW // 2 - 1) + [True]
    assert [owed.credit for _, owed in it.end.acks()] == [WINDOW // 2]
    it.end.take("encoder")
    assert it.post.urgent[-1] is False, "it has just been told"


def test_credit_is_told_only_where_it_is_short() -> None:
    """A sender that has half a window left is told more with the next acknowledgement anyway."""
    it = Receiver()
    for unit in range(WINDOW // 2):
        it.end.offer(SENDER, envelope(unit))
    it.acks()
    it.end.take("encoder")
    assert len(it.acks()) == 1
    it.end.take("encoder")
    assert it.acks() == []


def test_a_unit_for_another_addressee_or_stage_is_fenced_and_not_acknowledged() -> None:
    it = Receiver()
    assert it.end.offer(SENDER, envelope(0, to=NEW)) is Verdict.FENCED
    assert it.end.offer(SENDER, envelope(0, dst="talker")) is Verdict.FENCED
    assert (it.arrived, it.acks(), it.post.urgent) == ([], [], [])
    assert it.end.counts == Counter({Verdict.FENCED: 2})


def test_a_unit_of_an_old_epoch_is_fenced() -> None:
    it = Receiver([(SENT_BY, 0), (NEW, 1)])
    assert it.end.offer(SENDER, envelope(0)) is Verdict.ACCEPTED
    assert it.end.offer(SENDER, envelope(1)) is Verdict.FENCED
    assert it.end.offer(SENDER, envelope(1, NEW)) is Verdict.ACCEPTED
    assert it.arrived == [0, 1]


def test_units_of_a_newer_epoch_wait_for_the_route_that_explains_them() -> None:
    it = Receiver()
    it.end.offer(SENDER, envelope(0))
    it.acks()
    assert [it.end.offer("encoder.enc-2", envelope(unit, NEW)) for unit in (1, 2)] == [Verdict.HELD] * 2
    assert (it.arrived, it.acks()) == ([0], [])
    it.clock.now += HOLD_S - 0.001
    it.end.check()
    it.wire((SENT_BY, 0), (NEW, 1))
    assert it.arrived == [0, 1, 2]
    assert [to for to, _ in it.end.acks()] == ["encoder.enc-2"]


@pytest.mark.parametrize("checked", [True, False])
def test_no_unit_waits_longer_than_a_second(checked: bool) -> None:
    it = Receiver()
    it.end.offer(SENDER, envelope(0, NEW))
    it.clock.now += HOLD_S
    if checked:
        it.end.check()
    it.wire((NEW, 0))
    assert it.arrived == []
    assert it.end.offer(SENDER, envelope(0, NEW)) is Verdict.ACCEPTED


def test_a_route_that_does_not_explain_them_prolongs_nothing() -> None:
    it = Receiver()
    it.end.offer(SENDER, envelope(0, (3, 1)))
    it.clock.now += 0.6
    it.wire((SENT_BY, 0), (NEW, 5))
    it.clock.now += 0.6
    it.wire(((3, 1), 0))
    assert it.arrived == []


def test_what_is_held_is_bounded() -> None:
    it = Receiver()
    for unit in range(5 * WINDOW):
        it.end.offer(SENDER, envelope(unit, NEW))
    for unit in range(5 * WINDOW):
        it.end.offer(SENDER, envelope(unit, (1, 8)))
    assert it.end.counts[Verdict.HELD] == 10 * WINDOW
    assert len(it.end._held) == 2 * WINDOW
    it.wire((NEW, 0), ((1, 8), WINDOW))
    assert it.arrived == list(range(WINDOW))


def test_what_waited_too_long_makes_room() -> None:
    it = Receiver()
    for unit in range(2 * WINDOW):
        it.end.offer(SENDER, envelope(unit, (1, 6)))
    it.clock.now += HOLD_S
    it.end.check()
    it.end.offer(SENDER, envelope(0, NEW))
    it.wire((NEW, 0))
    assert it.arrived == [0]


def test_units_that_come_before_any_route_are_held() -> None:
    it = Receiver([])
    assert it.end.offer(SENDER, envelope(0)) is Verdict.HELD
    it.wire((SENT_BY, 0))
    assert it.arrived == [0]


def test_an_older_wiring_is_ignored() -> None:
    it = Receiver()
    it.wire((NEW, 0))
    assert it.end.version == (1, 2)
    assert it.end.apply(Wiring((1, 2), True, {}, {})) is False
    assert it.end.apply(Wiring((1, 1), True, {}, {})) is False
    assert it.end.apply(Wiring((2, 0), True, {}, {})) is True


def test_two_senders_of_an_edge_are_each_acknowledged() -> None:
    """A repeat by the old source, and the new one's first unit, within one acknowledgement."""
    it = Receiver([(SENT_BY, 0), (NEW, 1)])
    it.end.offer(SENDER, envelope(0))
    it.acks()
    it.end.offer(SENDER, envelope(0))
    it.end.offer("encoder.enc-2", envelope(1, NEW))
    owed = dict(it.end.acks())
    assert {to: each.next for to, each in owed.items()} == {SENDER: 2, "encoder.enc-2": 2}


# ---------------------------------------------------------------- sending


def test_a_unit_goes_out_with_all_that_it_carries() -> None:
    it = Sender()
    it.emit(1, size=3)
    ((to, sent),) = it.post.units
    made = emission(0, 3)
    assert to == RECEIVER
    assert (sent.sid, sent.src, sent.dst, sent.unit, sent.epoch, sent.to) == (
        "live_x",
        "encoder",
        "llm",
        0,
        SENT_BY,
        TO,
    )
    assert (sent.body, sent.records, sent.text, sent.flags, sent.heard) == (
        made.body,
        made.records,
        made.text,
        made.flags,
        made.heard,
    )
    assert sent.heard != ()


def test_at_most_a_window_is_under_way() -> None:
    it = Sender()
    it.emit(WINDOW + 5)
    assert it.post.numbers() == list(range(WINDOW))
    it.end.on_ack(ack(3, WINDOW))
    assert it.post.numbers() == [WINDOW, WINDOW + 1, WINDOW + 2]


def test_acknowledgements_of_another_epoch_or_edge_mean_nothing() -> None:
    it = Sender()
    it.emit(WINDOW + 5)
    it.post.numbers()
    it.end.on_ack(ack(3, to=NEW))
    it.end.on_ack(Ack("live_x", "encoder", "talker", TO, 3, 3, 0, WINDOW))
    assert it.post.numbers() == []


def test_what_is_not_acknowledged_is_sent_again_one_unit_first() -> None:
    it = Sender()
    it.emit(3)
    it.post.numbers()
    assert it.after(RESEND_S - 0.01) == []
    assert it.after(0.02) == [0]
    assert it.after(RESEND_S) == []
    assert it.after(RESEND_S) == [0]
    assert it.end.resent == 2
    it.end.on_ack(ack(1))
    assert it.post.numbers() == [1, 2]
    it.end.on_ack(ack(3))
    assert it.after(10.0) == []


def test_a_stalled_receiver_is_not_sent_everything_again_with_each_new_unit() -> None:
    """The resend of the first unit took the others for unsent, so that the next unit made sent them all: ten times
    what the live audio is, to a worker that stands still, and through the bus that everybody shares."""
    it = Sender()
    it.emit(3)
    it.post.numbers()
    assert it.after(RESEND_S + 0.01) == [0]
    it.emit(1)
    assert it.post.numbers() == [3]
    it.end.on_ack(ack(1))
    assert it.post.numbers() == [1, 2, 3]
    it.end.on_ack(ack(2))
    assert it.post.numbers() == []


def test_patience_begins_with_what_is_sent_first() -> None:
    it = Sender()
    it.clock.now += 50
    it.emit(1)
    assert it.post.numbers() == [0]
    assert it.after(RESEND_S - 0.01) == []
    it.end.on_ack(ack(1))
    it.clock.now += 50
    it.emit(1)
    assert it.post.numbers() == [1]
    assert it.after(RESEND_S - 0.01) == []
    assert it.after(0.02) == [1]


def test_a_repair_request_is_answered_at_once() -> None:
    it = Sender()
    it.emit(5)
    it.post.numbers()
    it.end.on_ack(ack(2, repair=True))
    assert it.post.numbers() == [2, 3, 4]
    it.end.on_ack(ack(2, repair=True))
    assert it.post.numbers() == []


def test_a_lost_credit_does_not_hang_the_edge() -> None:
    """The acknowledgement that gave credit was lost, and with nothing under way no other would come."""
    it = Sender()
    it.emit(WINDOW + 3)
    it.end.on_ack(ack(WINDOW, 0))
    it.post.numbers()
    assert it.after(RESEND_S + 0.01) == [WINDOW], "the probe"
    it.end.on_ack(ack(WINDOW + 1, WINDOW - 1))
    assert it.post.numbers() == [WINDOW + 1, WINDOW + 2]


def test_a_probe_counts_as_sent() -> None:
    """The root sheds what was never sent to any encoder.  A probe was not counted as sent, so a unit that the encoder
    had accepted could be replaced by silence; once it was acknowledged and released, that raised `KeyError`."""
    it = Sender()
    it.emit(WINDOW + 3)
    it.end.on_ack(ack(WINDOW, 0))
    assert it.end.rings["llm"].sent == WINDOW
    it.after(RESEND_S + 0.01)
    assert it.end.rings["llm"].sent == WINDOW + 1


def test_the_ring_keeps_what_may_be_asked_for() -> None:
    it = Sender()
    it.emit(6)
    it.end.on_ack(ack(5, horizon=2))
    assert it.end.rings["llm"].start == 2
    it.end.on_ack(ack(3, horizon=5))
    assert it.end.rings["llm"].start == 5


def test_the_ring_is_bounded_in_bytes_but_for_what_is_not_acknowledged() -> None:
    it = Sender(ring_bytes=2 * emission(0, 1000).size)
    it.emit(6, size=1000)
    it.end.on_ack(ack(2))
    assert it.end.rings["llm"].start == 2
    it.end.on_ack(ack(6))
    assert it.end.rings["llm"].start == 4


def test_several_addressees_have_each_their_own_progress() -> None:
    it = Sender(outflow(), outflow(HEIR, NEW, start=2))
    it.emit(4)
    sent = {to: [each.unit for at, each in it.post.units if at == to] for to in (RECEIVER, HEIR)}
    assert sent == {RECEIVER: [0, 1, 2, 3], HEIR: [2, 3]}
    assert {each.to for at, each in it.post.units if at == HEIR} == {NEW}
    it.post.numbers()
    it.end.on_ack(ack(4, horizon=4))
    assert it.end.rings["llm"].start == 2, "the heir has nothing yet"
    assert it.after(RESEND_S) == [2]
    it.end.on_ack(ack(4, to=NEW, horizon=3))
    assert it.end.rings["llm"].start == 3


def test_an_outlet_that_ended_gets_no_more_and_holds_nobody_up() -> None:
    """An owner that was replaced has all its units but stays wired to serve repairs.  It counted as lagging behind, so
    that the ring grew and, two windows later, nothing more was made."""
    it = Sender(outflow(until=3), outflow(HEIR, NEW, start=3))
    it.emit(3)
    it.end.on_ack(ack(3, horizon=3))
    for unit in range(3, 5 * WINDOW):
        assert it.end.room()
        it.emit(1)
        it.end.on_ack(ack(unit + 1, to=NEW, horizon=unit + 1))
    assert {each.unit for to, each in it.post.units if to == RECEIVER} == {0, 1, 2}
    assert it.end.rings["llm"].end == 5 * WINDOW
    assert it.end.rings["llm"].start == 3, "its horizon counts"


def test_an_outlet_that_ended_keeps_what_it_lacks() -> None:
    it = Sender(outflow(until=3), outflow(HEIR, NEW, start=3), ring_bytes=0)
    it.emit(5)
    it.end.on_ack(ack(5, to=NEW, horizon=5))
    it.end.on_ack(ack(1, horizon=5))
    assert it.end.rings["llm"].start == 1
    it.end.on_ack(ack(3, horizon=5))
    assert it.end.rings["llm"].start == 5


def test_an_outlet_may_get_its_end_later() -> None:
    it = Sender()
    it.emit(2)
    it.wire(outflow(until=4), outflow(HEIR, NEW, start=4))
    it.emit(4)
    assert [(to, each.unit) for to, each in it.post.units] == [
        (RECEIVER, 0),
        (RECEIVER, 1),
        (RECEIVER, 2),
        (RECEIVER, 3),
        (HEIR, 4),
        (HEIR, 5),
    ]


def test_a_rewired_outlet_goes_on_where_it_was() -> None:
    it = Sender()
    it.emit(4)
    it.end.on_ack(ack(2))
    it.post.numbers()
    it.wire(outflow(), outflow(HEIR, NEW, start=2))
    assert [(to, each.unit) for to, each in it.post.units] == [(HEIR, 2), (HEIR, 3)]
    it.post.numbers()
    it.wire(outflow(HEIR, NEW, start=2))
    it.emit(1)
    assert [(to, each.unit) for to, each in it.post.units] == [(HEIR, 4)]


def test_what_was_made_before_the_route_goes_out_with_it() -> None:
    it = Sender()
    it.end.apply(Wiring((1, 2), True, {}, {"llm": []}))
    it.emit(3)
    assert it.post.numbers() == []
    it.wire(outflow())
    assert it.post.numbers() == [0, 1, 2]


def test_there_is_room_for_two_windows_of_the_slowest_addressee() -> None:
    it = Sender(outflow(), outflow(HEIR, NEW))
    it.emit(2 * WINDOW - 1)
    assert it.end.room()
    it.emit(1)
    assert not it.end.room()
    it.end.on_ack(ack(1))
    assert not it.end.room()
    it.end.on_ack(ack(1, to=NEW))
    assert it.end.room()


def test_a_sender_may_begin_anywhere() -> None:
    it = Sender(outflow(start=7), begin=7)
    it.emit(2)
    assert it.post.numbers() == [7, 8]
    with pytest.raises(ValueError, match="9 is next"):
        it.end.emit("llm", emission(8))


@pytest.mark.parametrize(("unit_s", "units"), [(0.08, 25), (1.0, 2), (5.0, 2)])
def test_two_seconds_are_under_way(unit_s: float, units: int) -> None:
    assert window_units(unit_s) == units
