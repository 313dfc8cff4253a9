"""A message's line."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.tape import Copy
from duologue.tap.decoding import decode
from duologue.tap.lines import as_json, as_text

pytestmark = pytest.mark.unit

LLM = "llm.llm-1"
AT = 1_800_000_000.25


def copy(subject: str, message: m.Struct) -> Copy:
    return Copy(m.WIRE, subject, "_INBOX.x.1", m.encode(message))


def line(seen: Copy, whole: bool = False) -> str:
    """Without its time."""
    text = as_text(seen, decode(seen, whole), AT).plain
    assert "\n" not in text
    clock, _, rest = text.partition(" ")
    assert clock.endswith(":00.250")
    return rest


def bundle(*units: m.Envelope) -> Copy:
    return copy(subjects.inbox(LLM), m.Bundle(m.WIRE, "encoder.enc-1", list(units)))


def unit(number: int, body: m.AnyBody, **fields: Any) -> m.Envelope:
    return m.Envelope(m.WIRE, "live_1", "encoder", "llm", number, (1, 2), (1, 3), body, **fields)


def test_units() -> None:
    seen = bundle(
        unit(
            17,
            m.Features.of({"feature": np.array([3.0, -4.0])}),
            records={"llm": [1, 2, 0]},
            text=' "u2"',
            flags=m.SHED,
            trace="00-ab",
            context_used=0.125,
        ),
        unit(18, m.Features()),
    )
    assert line(seen) == (
        "in    encoder.enc-1 → llm.llm-1 live_1 encoder→llm #17 1.2→1.3 feature <f8[2] 16 B -4…3 rms 3.536 "
        '{"llm":[1,2,0]} " \\"u2\\"" shed context 12 % trace 00-ab | live_1 encoder→llm #18 1.2→1.3 marker'
    )
    assert line(bundle()) == "in    encoder.enc-1 → llm.llm-1 nothing (a probe)"


def test_samples_when_asked_for() -> None:
    pcm = np.array([1, 2], np.int16)
    seen = bundle(unit(0, m.Audio.of({"pcm": pcm})))
    data = base64.b64encode(pcm.tobytes()).decode()
    assert data not in line(seen)
    assert line(seen, whole=True).endswith(f"pcm <i2[2] 4 B 1…2 rms 1.581 {data}")


def test_acknowledgements() -> None:
    ack = m.Ack("live_1", "llm", "talker", (1, 4), 9, 8, 7, 25)
    again = m.Ack("live_1", "llm", "talker", (1, 4), 9, 8, 7, 25, True)
    assert line(copy(subjects.acks(LLM), m.Acks(1, "talker.tal-1", [ack, again]))) == (
        "ack   talker.tal-1 → llm.llm-1 live_1 llm→talker 1.4 next 9 stepped 8 horizon 7 credit 25 | "
        "live_1 llm→talker 1.4 next 9 stepped 8 horizon 7 credit 25 repair!"
    )


def test_all_other_kinds_by_their_fields() -> None:
    assert line(copy(subjects.control(LLM), m.Close(1, "live_1", [(1, 2)]))) == (
        'ctl   llm.llm-1 Close sid="live_1" epochs=[[1,2]]'
    )
    assert line(copy("_INBOX.x.1", m.Done(1, "2 sessions left"))) == (
        'ctl   answer Done message="2 sessions left"'
    )
    assert line(copy(subjects.event("opened", "live_1"), m.Event(1, "opened", "live_1", {"model": "p"}))) == (
        'ev    opened.live_1 Event kind="opened" sid="live_1" detail={"model":"p"}'
    )


def test_a_503() -> None:
    seen = Copy(m.WIRE, subjects.inbox(LLM), no_responders=True)
    assert line(seen) == "in    llm.llm-1 503: nobody listens there"
    assert json.loads(as_json(seen, decode(seen), AT)) == {
        "at": AT,
        "kind": "in",
        "subject": "duo.v1.in.llm.llm-1",
        "reply": "",
        "bytes": 0,
        "no_responders": True,
        "type": "",
        "message": None,
    }


def test_what_is_malformed() -> None:
    def of(data: bytes) -> str:
        return line(Copy(m.WIRE, subjects.inbox(LLM), "", data))

    assert of(b"\x92\x01\xa1x") == "in    x → llm.llm-1 nothing (a probe)"
    assert of(b"\x93\x01\xa1x\x91\x05") == "in    x → llm.llm-1 5"
    assert of(b"\xc1").startswith("in    llm.llm-1 ? undecodable=")


def test_a_terminal_is_not_at_the_buss_mercy() -> None:
    seen = copy(subjects.inbox(LLM), m.Bundle(1, "x\x1b[2J\n", []))
    assert line(seen) == "in    x\\x1b[2J\\x0a → llm.llm-1 nothing (a probe)"


def test_as_json() -> None:
    seen = bundle(unit(3, m.Audio.of({"pcm": np.array([1, 2], np.int16)}), records={"talker": float("nan")}))
    told = json.loads(as_json(seen, decode(seen), AT))
    assert (told["kind"], told["type"], told["subject"]) == ("in", "Bundle", subjects.inbox(LLM))
    assert (told["reply"], told["bytes"], told["at"]) == ("_INBOX.x.1", len(seen.data), AT)
    [found] = told["message"]["units"]
    assert (found["unit"], found["records"]) == (3, {"talker": None})
    assert set(found["body"]["tensors"]["pcm"]) == {"dtype", "shape", "bytes", "min", "max", "rms"}
    told = json.loads(as_json(seen, decode(seen, whole=True), AT))
    data = told["message"]["units"][0]["body"]["tensors"]["pcm"]["data"]
    assert base64.b64decode(data) == b"\1\0\2\0"


def test_keys_that_are_no_text() -> None:
    claim = m.Claim(
        1,
        1,
        "live_1",
        "llm",
        "p",
        (1, 1),
        "api.a",
        m.Start(0, records={3: {}}),
        m.Wiring((0, 1), True, {}, {}),
    )
    seen = copy(subjects.claims(LLM), claim)
    assert json.loads(as_json(seen, decode(seen), AT))["message"]["start"]["records"] == {"3": {}}
    assert '"records":{"3":{}}' in line(seen)
