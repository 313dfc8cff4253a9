"""Seals, as the owner of a stage and its worker take them."""

from typing import Any

import pytest

from duologue.bus import messages as m
from duologue.bus.delivery import Verdict
from duologue.models import manifest
from duologue.stage.owner import Owner, Phase
from duologue.stage.sealing import answers, seal
from edge import WINDOW, Clock, Post

pytestmark = pytest.mark.unit

OLD, NEW, OWN, AFTER = (1, 2), (1, 9), (1, 3), (1, 4)


def talker(sid: str = "live_a", **start: Any) -> tuple[Owner, Post]:
    wiring = m.Wiring((1, 1), True, {"llm": m.Inflow([(OLD, 0)])}, {"codec": [m.Outflow("codec.x", AFTER)]})
    claim = m.Claim(m.WIRE, m.LEDGER, sid, "talker", "parrot", OWN, "api.a", m.Start(7, **start), wiring)
    post = Post()
    owner = Owner(
        claim, manifest("parrot"), post=post, clock=Clock(), arrived=lambda owner: None, window=WINDOW
    )
    owner.phase = Phase.OPEN
    return owner, post


def unit(number: int, epoch: m.Epoch = OLD, **fields: Any) -> m.Envelope:
    return m.Envelope(m.WIRE, "live_a", "llm", "talker", number, epoch, OWN, m.Condition(), **fields)


def of(*epochs: m.Epoch, sid: str = "live_a", since: int = 0, fresh: bool = False) -> m.SealOf:
    return m.SealOf(sid, 1, 5, list(epochs), since, fresh)


def test_a_sealed_epoch_is_not_heard_any_more() -> None:
    owner, _ = talker()
    assert owner.endpoint.offer("llm.x", unit(0)) is Verdict.ACCEPTED
    seal([owner], of(OLD))
    assert owner.endpoint.offer("llm.x", unit(1)) is Verdict.FENCED
    assert owner.endpoint.offer("llm.y", unit(1, NEW)) is Verdict.HELD, "its route is on its way"
    seal([owner], of(fresh=True))
    assert owner.endpoint.offer("llm.x", unit(1)) is Verdict.ACCEPTED


def test_nothing_is_sent_to_who_is_replaced_nor_does_its_word_count() -> None:
    """The acknowledgements of one that lives on unseen would make the ring forget what its heir needs."""
    owner, post = talker()
    for number in range(3):
        owner.endpoint.offer("llm.x", unit(number))
    from duologue.bus.delivery import Emission

    owner.endpoint.emit("codec", Emission(0, m.Codes(), {}))
    assert len(post.units) == 1
    seal([owner], of(AFTER))
    owner.endpoint.emit("codec", Emission(1, m.Codes(), {}))
    owner.endpoint.on_ack(m.Ack("live_a", "talker", "codec", AFTER, 1, 1, 1, 9))
    assert len(post.units) == 1
    assert owner.endpoint.rings["codec"].start == 0
    heir = (1, 8)
    route = m.Wiring((1, 2), True, {"llm": m.Inflow([(OLD, 0)])}, {"codec": [m.Outflow("codec.y", heir)]})
    owner.endpoint.apply(route)
    assert [(to, sent.unit, sent.to) for to, sent in post.units[1:]] == [
        ("codec.y", 0, heir),
        ("codec.y", 1, heir),
    ]


def test_an_owner_tells_how_it_stands() -> None:
    owner, _ = talker()
    owner.endpoint.offer("llm.x", unit(0, records={"llm": [0, 0, 0]}, horizons={"encoder": 0, "llm": 0}))
    owner.endpoint.offer("llm.x", unit(1, records={"llm": [1, 0, 0]}, horizons={"encoder": 0, "llm": 0}))
    sealed = seal([owner], of(since=1))
    [standing] = sealed.standings
    assert (sealed.sid, sealed.root_epoch, sealed.round) == ("live_a", 1, 5)
    assert (standing.stage, standing.epoch, standing.unit) == ("talker", OWN, 0)
    assert (standing.next, standing.kept) == ({"llm": 2}, {"codec": 0})
    assert standing.decided == {1: m.Decided({"llm": [1, 0, 0]}, {"encoder": 0, "llm": 0})}


def test_the_replaced_and_those_of_others_say_nothing() -> None:
    mine, other = talker()[0], talker("live_b")[0]
    assert seal([mine, other], of(OWN)).standings == []
    assert len(seal([mine, other], of(OLD)).standings) == 1


def test_answers_are_split_between_sessions() -> None:
    records = {"llm": "x" * 200_000}
    big = m.Standing("talker", OWN, 0, {}, {}, {0: m.Decided(records, {})})
    sealed = [m.SealedOf(f"live_{number}", 1, 1, [big]) for number in range(5)]
    parts = [m.decode_control(data) for data in answers("talker.x", sealed)]
    assert all(isinstance(part, m.Sealed) for part in parts)
    assert [[each.sid for each in part.sessions] for part in parts] == [  # type: ignore[union-attr]
        ["live_0", "live_1"],
        ["live_2", "live_3"],
        ["live_4"],
    ]
    assert all(len(data) < m.MAX_MESSAGE_BYTES for data in answers("talker.x", sealed))
    assert list(answers("talker.x", [])) == []


def test_an_heir_reads_record_like_inputs_from_records() -> None:
    """And takes those that are not known yet as they come."""
    start = m.Start(7, {"loop": True}, 5, 5, {5: {"llm": [0, 0, 0], "talker": 0.5}}, {"llm": 7, "talker": 6})
    wiring = m.Wiring(
        (1, 1),
        True,
        {"encoder": m.Inflow([(OLD, 0)], 5), "talker": m.Inflow([(AFTER, 0)], 6)},
        {"talker": [m.Outflow("talker.x", AFTER, 6)]},
    )
    claim = m.Claim(m.WIRE, m.LEDGER, "live_a", "llm", "parrot", OWN, "api.a", start, wiring)
    owner = Owner(
        claim, manifest("parrot"), post=Post(), clock=Clock(), arrived=lambda owner: None, window=WINDOW
    )
    owner.phase, owner.unit = Phase.OPEN, 6

    def give(src: str, number: int, epoch: m.Epoch, body: m.Body) -> None:
        owner.endpoint.offer(f"{src}.x", m.Envelope(m.WIRE, "live_a", src, "llm", number, epoch, OWN, body))

    give("encoder", 5, OLD, m.Features())
    owner.endpoint.take("encoder")
    give("encoder", 6, OLD, m.Features())
    due = owner.due()
    assert due is not None
    assert due.inputs["talker"].tensors["d"].array() == 0.5
    owner.unit = 7
    owner.endpoint.take("encoder")
    give("encoder", 7, OLD, m.Features())
    assert owner.due() is None
    give("talker", 6, AFTER, m.Codes())
    due = owner.due()
    assert due is not None
    assert due.inputs["talker"].marker
