"""Which messages are shown."""

from typing import Any

import numpy as np
import pytest

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.tape import Copy
from duologue.tap.choosing import MOST_INBOXES, Choice, NoSubject, kinds_of

pytestmark = pytest.mark.unit

LLM, TALKER = "llm.llm-1", "talker.tal-1"


def copy(subject: str, message: m.Struct) -> Copy:
    return Copy(m.WIRE, subject, "", m.encode(message))


def bundle(*sids: str) -> Copy:
    units = [
        m.Envelope(m.WIRE, sid, "encoder", "llm", 0, (1, 1), (1, 2), m.Features.of({"feature": np.ones(2)}))
        for sid in sids
    ]
    return copy(subjects.inbox(LLM), m.Bundle(m.WIRE, "encoder.enc-1", units))


def fields(choice: Choice, seen: Copy) -> Any:
    found = choice.read(seen)
    return None if found is None else found.fields


@pytest.mark.parametrize(
    ("pattern", "kinds"),
    [
        (">", subjects.KINDS),
        ("duo.v1.>", subjects.KINDS),
        ("duo.v1.*.llm.*", subjects.KINDS),
        ("*.*.in.>", ("in",)),
        ("duo.v1.in.llm.llm-1", ("in",)),
        ("duo.v1.hb.*.*", ("hb",)),
    ],
)
def test_the_kinds_of_a_pattern(pattern: str, kinds: tuple[str, ...]) -> None:
    assert kinds_of(pattern) == kinds


@pytest.mark.parametrize(
    "pattern", ["", "x.>", "duo", "duo.v1", "duo.v1.in", "duo.v2.>", "duo.v1.nonsense.>", "_INBOX.>"]
)
def test_a_pattern_of_nothing(pattern: str) -> None:
    with pytest.raises(NoSubject, match=r"duo\.v1\.in\.>"):
        kinds_of(pattern)


def test_by_kind() -> None:
    choice = Choice(("claim",))
    assert fields(choice, copy("_INBOX.x.1", m.Claimed(1, "live_1", (1, 2), m.OPEN)))["state"] == m.OPEN
    assert choice.read(copy("_INBOX.x.1", m.Done(1))) is None
    assert choice.read(bundle("live_1")) is None


def test_by_subject() -> None:
    choice = Choice(subjects.KINDS, pattern="duo.v1.*.llm.*")
    assert choice.read(bundle("live_1")) is not None
    assert choice.read(copy(subjects.inbox(TALKER), m.Bundle(1, LLM, []))) is None
    assert choice.read(copy("_INBOX.x.1", m.Done(1))) is None


def test_of_a_session_its_own_units_alone() -> None:
    choice = Choice(subjects.KINDS, sid="live_1")
    assert [unit["sid"] for unit in fields(choice, bundle("live_0", "live_1", "live_2"))["units"]] == [
        "live_1"
    ]
    assert choice.read(bundle("live_2")) is None
    assert choice.read(bundle("live_11")) is None, "the beginning of another id"
    acks = [m.Ack(sid, "llm", "talker", (1, 2), 1, 1, 1, 1) for sid in ("live_1", "live_2")]
    assert len(fields(choice, copy(subjects.acks(LLM), m.Acks(1, TALKER, acks)))["acks"]) == 1


def test_of_a_session_all_else_that_names_it() -> None:
    choice = Choice(subjects.KINDS, sid="live_1")
    assert choice.read(copy(subjects.control(LLM), m.Mine(1, LLM, [("live_1", (1, 2))]))) is not None
    assert choice.read(copy(subjects.control(LLM), m.Mine(1, LLM, [("live_2", (1, 2))]))) is None
    assert choice.read(copy(subjects.event("closed", "live_1"), m.Event(1, "closed", "live_1"))) is not None
    assert choice.read(copy(subjects.heartbeat(LLM), m.Heartbeat(1, 1, LLM, m.READY, {}))) is None
    assert choice.read(Copy(m.WIRE, subjects.inbox(LLM), "", b"\x93live_1")) is not None, "malformed"


def test_of_a_session_the_503s_of_those_it_sent_to() -> None:
    choice = Choice(subjects.KINDS, sid="live_1")
    gone = Copy(m.WIRE, subjects.inbox(LLM), no_responders=True)
    assert choice.read(gone) is None
    choice.read(bundle("live_2"))
    assert choice.read(gone) is None
    choice.read(bundle("live_1"))
    assert choice.read(gone) is not None
    for number in range(MOST_INBOXES):
        choice.read(copy(f"duo.v1.ctl.llm.{number}", m.Close(1, "live_1", [])))
    assert choice.read(gone) is None, "so much is not remembered"
