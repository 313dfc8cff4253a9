"""One session's state at a stage: when it can step, and what it sends."""

from typing import Any

import pytest

from duologue.bus import messages as m
from duologue.bus.delivery import Verdict
from duologue.models import BadOption, manifest
from duologue.stage.model import Result
from duologue.stage.owner import Owner, Phase
from edge import WINDOW, Clock, Post
from scripted import Scripted

pytestmark = pytest.mark.unit

EPOCHS: dict[str, m.Epoch] = {
    "root": (1, 0),
    "encoder": (1, 1),
    "llm": (1, 2),
    "talker": (1, 3),
    "codec": (1, 4),
}


def owned(stage: str, *, loop: bool = False, records: dict[int, dict[str, Any]] | None = None) -> Any:
    """An open owner with its clock, its post, and who was told that it may be ready."""
    options = {"loop": loop}
    edges = manifest("parrot").edges(options)
    inflows = {edge.src: m.Inflow([(EPOCHS[edge.src], 0)], 0) for edge in edges if edge.dst == stage}
    outflows = {
        edge.dst: [m.Outflow(f"{edge.dst}.x", EPOCHS[edge.dst])] for edge in edges if edge.src == stage
    }
    wiring = m.Wiring((1, 1), True, inflows, outflows)
    start = m.Start(7, options, records=records or {})
    claim = m.Claim(
        m.WIRE, m.LEDGER, "live_x", stage, "parrot", EPOCHS[stage], "api.a", start, wiring, resumable=True
    )
    clock, post, looks = Clock(), Post(), []
    owner = Owner(claim, manifest("parrot"), post=post, clock=clock, arrived=looks.append, window=WINDOW)
    owner.phase = Phase.OPEN
    return owner, clock, post, looks


def give(owner: Owner, src: str, unit: int, **fields: Any) -> Verdict:
    body = {"root": m.Audio, "encoder": m.Features, "llm": m.Condition, "talker": m.Codes}[src]()
    envelope = m.Envelope(m.WIRE, "live_x", src, owner.stage, unit, EPOCHS[src], owner.epoch, body, **fields)
    return owner.endpoint.offer(f"{src}.x", envelope)


def test_a_claim_becomes_an_owner() -> None:
    owner, *_ = owned("llm")
    assert (owner.sid, owner.epoch, owner.stage, owner.root) == ("live_x", (1, 2), "llm", "api.a")
    assert (owner.resumable, owner.unit, owner.go, owner.state) == (True, 0, True, None)


def test_options_that_the_model_does_not_know_make_no_owner() -> None:
    with pytest.raises(BadOption):
        Owner(
            m.Claim(
                m.WIRE,
                m.LEDGER,
                "live_x",
                "llm",
                "parrot",
                (1, 2),
                "api.a",
                m.Start(7, {"from_the_future": 1}),
                m.Wiring((1, 1), True, {}, {}),
            ),
            manifest("parrot"),
            post=Post(),
            clock=Clock(),
            arrived=lambda _: None,
            window=WINDOW,
        )


def test_without_an_addressee_it_does_not_step() -> None:
    """A claim whose route lacked the next stage was stepped all the same, and the worker took the `KeyError` for a
    broken model: it ended, with everybody's sessions."""
    owner, *_ = owned("llm")
    del owner.endpoint.outlets["talker"], owner.endpoint.rings["talker"]
    give(owner, "encoder", 0)
    assert owner.due() is None
    owner.endpoint.apply(m.Wiring((1, 2), True, {}, {"talker": [m.Outflow("talker.x", EPOCHS["talker"])]}))
    assert owner.due() is not None


def test_it_steps_when_its_input_is_there() -> None:
    owner, _, _, looks = owned("llm")
    assert owner.due() is None
    assert give(owner, "encoder", 1) is Verdict.HOLE
    assert looks == []
    assert give(owner, "encoder", 0) is Verdict.ACCEPTED
    assert looks == [owner]
    unit = owner.due()
    assert (unit.number, dict(unit.inputs), unit.record) == (0, {"encoder": m.Features()}, None)


@pytest.mark.parametrize("why", ["opening", "stepping", "not to go", "closed"])
def test_it_does_not_step_while(why: str) -> None:
    owner, *_ = owned("llm")
    give(owner, "encoder", 0)
    match why:
        case "opening":
            owner.phase = Phase.OPENING
        case "closed":
            owner.phase = Phase.CLOSED
        case "stepping":
            owner.stepping = True
        case "not to go":
            owner.go = False
    assert owner.due() is None


def test_a_lagging_input_is_that_of_an_earlier_unit() -> None:
    owner, *_ = owned("llm", loop=True)
    give(owner, "encoder", 0)
    assert owner.due().inputs == {"encoder": m.Features()}, "unit 0 has none"
    owner.stepped(Result({"talker": m.Condition()}), 0)
    give(owner, "encoder", 1)
    assert owner.due() is None
    give(owner, "talker", 0)
    assert owner.due().inputs == {"encoder": m.Features(), "talker": m.Codes()}
    owner.stepped(Result({"talker": m.Condition()}), 0)
    inlets = owner.endpoint.inlets
    assert (inlets["encoder"].used, inlets["talker"].used) == (2, 1)


def test_it_does_not_step_while_who_comes_next_is_far_behind() -> None:
    owner, *_ = owned("llm")
    for unit in range(2 * WINDOW):
        give(owner, "encoder", unit)
        assert owner.due() is not None
        owner.stepped(Result({"talker": m.Condition()}), unit)
    give(owner, "encoder", 2 * WINDOW)
    assert owner.due() is None
    owner.endpoint.on_ack(m.Ack("live_x", "llm", "talker", (1, 3), 1, 1, 0, WINDOW))
    assert owner.due() is not None


def test_a_known_decision_comes_with_the_unit() -> None:
    owner, *_ = owned("llm", records={0: {"llm": [0, 0, 0], "talker": 0.5}, 1: {"talker": 0.5}})
    give(owner, "encoder", 0)
    assert owner.due().record == [0, 0, 0]
    owner.stepped(Result({"talker": m.Condition()}), 0)
    give(owner, "encoder", 1)
    assert owner.due().record is None


def test_what_came_with_a_unit_goes_on_with_it() -> None:
    owner, _, post, _ = owned("llm")
    brought = {
        "records": {"root": "shed"},
        "text": "a",
        "flags": m.SHED,
        "trace": "00-t",
        "context_used": 0.1,
        "heard": (m.Heard(" hi", 0, 1),),
    }
    more = (m.Heard(" you", 1, 2),)
    give(owner, "encoder", 0, **brought)
    owner.stepped(Result({"talker": m.Condition()}, [1, 2, 0], " b", 0.25, more), 0)
    give(owner, "encoder", 1, **brought)
    owner.stepped(Result({"talker": m.Condition()}), 1)
    first, second = (sent for _, sent in post.units)
    assert (first.unit, first.records, first.text) == (0, {"root": "shed", "llm": [1, 2, 0]}, "a b")
    assert (first.flags, first.trace, first.context_used) == (m.SHED, "00-t", 0.25)
    assert (second.unit, second.records, second.text) == (1, {"root": "shed"}, "a")
    assert (second.flags, second.trace, second.context_used) == (m.SHED, "00-t", 0.1)
    assert (first.heard, second.heard) == ((m.Heard(" hi", 0, 1), *more), (m.Heard(" hi", 0, 1),))
    assert owner.unit == 2


def test_only_the_main_edge_carries_records_and_transcripts() -> None:
    owner, _, post, _ = owned("talker", loop=True)
    heard = (m.Heard(" hi", 0, 1),)
    give(owner, "llm", 0, records={"llm": [0, 0, 0]}, text="a", heard=heard)
    owner.stepped(Result({"codec": m.Codes(), "llm": m.Codes()}, 0.5), 0)
    by_edge = {sent.dst: sent for _, sent in post.units}
    assert (by_edge["codec"].records, by_edge["codec"].text) == ({"llm": [0, 0, 0], "talker": 0.5}, "a")
    assert (by_edge["llm"].records, by_edge["llm"].text) == ({"talker": 0.5}, "")
    assert (by_edge["codec"].heard, by_edge["llm"].heard) == (heard, ())


def test_a_result_without_a_body_for_a_destination_is_an_error() -> None:
    owner, *_ = owned("talker", loop=True)
    give(owner, "llm", 0)
    with pytest.raises(KeyError, match="llm"):
        owner.stepped(Result({"codec": m.Codes()}), 0)


def test_its_root_is_heard_by_its_units_alone() -> None:
    owner, clock, _, _ = owned("encoder")
    owner.orphan_since = owner.gone_since = clock.now
    clock.now += 5
    give(owner, "root", 0)
    assert (owner.heard, owner.orphan_since, owner.gone_since) == (clock.now, None, None)
    owner, clock, _, _ = owned("llm")
    clock.now += 5
    give(owner, "encoder", 0)
    assert owner.heard == clock.now - 5


def test_nothing_of_an_opening_runs_before_it_is_advanced() -> None:
    model = Scripted("llm")
    owner, *_ = owned("llm")
    opening = owner.opening(model)
    assert model.log == []
    assert next(opening).name == 7
