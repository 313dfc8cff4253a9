"""Any message by its fields' names, and what is none as it is."""

from typing import Any

import msgpack
import numpy as np
import pytest

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.tape import Copy
from duologue.tap.decoding import Decoded, decode

pytestmark = pytest.mark.unit

TO = "llm.llm-1"
ANSWER = "_INBOX.abc.7"


def decoded(subject: str, message: m.Struct | bytes, whole: bool = False) -> Decoded:
    data = message if isinstance(message, bytes) else m.encode(message)
    return decode(Copy(m.WIRE, subject, "", data), whole)


def bundle(body: m.AnyBody, **fields: Any) -> m.Bundle:
    unit = m.Envelope(m.WIRE, "live_1", "encoder", "llm", 17, (1, 2), (1, 3), body, **fields)
    return m.Bundle(m.WIRE, "encoder.enc-1", [unit])


def test_a_unit_says_everything_but_its_samples() -> None:
    sent = bundle(m.Features.of({"feature": np.array([3.0, -4.0])}), records={"llm": [1, 2, 0]}, text=" u2")
    found = decoded(subjects.inbox(TO), sent)
    assert (found.kind, found.type) == ("in", "Bundle")
    [unit] = found.fields["units"]
    assert unit["body"] == {
        "type": "features",
        "v": 1,
        "tensors": {
            "feature": {
                "dtype": "<f8",
                "shape": [2],
                "bytes": 16,
                "min": -4.0,
                "max": 3.0,
                "rms": pytest.approx(3.5355339),
            }
        },
    }
    assert (unit["sid"], unit["src"], unit["dst"], unit["unit"]) == ("live_1", "encoder", "llm", 17)
    assert (unit["epoch"], unit["to"]) == ([1, 2], [1, 3])
    assert (unit["records"], unit["text"]) == ({"llm": [1, 2, 0]}, " u2")


def test_samples_only_when_asked_for() -> None:
    pcm = np.arange(-500, 500, dtype=np.int16)
    sent = bundle(m.Audio.of({"pcm": pcm}))
    assert pcm.tobytes()[:8] not in repr(decoded(subjects.inbox(TO), sent)).encode()
    told = decoded(subjects.inbox(TO), sent, whole=True).fields["units"][0]["body"]["tensors"]["pcm"]
    assert told["data"] == pcm.tobytes()


@pytest.mark.parametrize(
    ("subject", "message", "kind", "fields"),
    [
        (
            subjects.acks(TO),
            m.Acks(1, "codec.c", [m.Ack("live_1", "llm", "talker", (1, 2), 5, 4, 3, 20, True)]),
            "ack",
            {
                "v": 1,
                "sender": "codec.c",
                "acks": [
                    {
                        "sid": "live_1",
                        "src": "llm",
                        "dst": "talker",
                        "to": [1, 2],
                        "next": 5,
                        "stepped": 4,
                        "horizon": 3,
                        "credit": 20,
                        "repair": True,
                    }
                ],
            },
        ),
        (
            subjects.control(TO),
            m.Route(
                1,
                "live_1",
                (1, 2),
                m.Wiring(
                    (1, 2),
                    True,
                    {"encoder": m.Inflow([((1, 1), 0)])},
                    {"talker": [m.Outflow("talker.t", (1, 3))]},
                    {"llm": [("llm.l", (1, 2), 0)]},
                ),
            ),
            "ctl",
            {
                "type": "route",
                "v": 1,
                "sid": "live_1",
                "epoch": [1, 2],
                "wiring": {
                    "version": [1, 2],
                    "go": True,
                    "inflows": {"encoder": {"entries": [[[1, 1], 0]], "next": 0}},
                    "outflows": {
                        "talker": [{"address": "talker.t", "epoch": [1, 3], "start": 0, "until": -1}]
                    },
                    "told": {"llm": [["llm.l", [1, 2], 0]]},
                },
            },
        ),
        (
            subjects.event("closed", "live_1"),
            m.Event(1, "closed", "live_1", {"units_in": 3}),
            "ev",
            {"v": 1, "kind": "closed", "sid": "live_1", "detail": {"units_in": 3}},
        ),
        (
            ANSWER,
            m.Claimed(1, "live_1", (1, 2), m.FULL, "no place", 1),
            "claim",
            {
                "v": 1,
                "sid": "live_1",
                "epoch": [1, 2],
                "state": "full",
                "message": "no place",
                "root_epoch": 1,
            },
        ),
        (
            ANSWER,
            m.Yours(1, [("live_1", (1, 2))]),
            "ctl",
            {"type": "yours", "v": 1, "no": [["live_1", [1, 2]]]},
        ),
    ],
)
def test_fields_have_the_contracts_names(
    subject: str, message: m.Struct, kind: str, fields: dict[str, Any]
) -> None:
    assert decoded(subject, message) == Decoded(kind, type(message).__name__, fields)


def test_a_claim_and_a_heartbeat() -> None:
    start = m.Start(5, {"loop": True}, records={3: {"llm": [0, 0, 0]}})
    claim = m.Claim(1, 1, "live_1", "llm", "parrot", (1, 2), "api.a", start, m.Wiring((0, 1), False, {}, {}))
    found = decoded(subjects.claims(TO), claim)
    assert (found.type, found.fields["model"]) == ("Claim", "parrot")
    assert found.fields["start"]["records"] == {3: {"llm": [0, 0, 0]}}
    beat = m.Heartbeat(1, 1, TO, m.READY, {"parrot": m.Places(3, 4)}, step_ms=2.5)
    found = decoded(subjects.heartbeat(TO), beat)
    assert (found.kind, found.type, found.fields["step_ms"]) == ("hb", "Heartbeat", 2.5)
    [places] = found.fields["models"].values()
    assert (places["free"], places["sessions"]) == (3, 4)


def test_fields_of_a_newer_version_are_shown_too() -> None:
    newer = [*msgpack.unpackb(m.encode(m.Event(2, "moved", "live_1"))), {"since": 5}, b"samples"]
    found = decoded(subjects.event("moved", "live_1"), msgpack.packb(newer))
    assert found.fields == {
        "v": 2,
        "kind": "moved",
        "sid": "live_1",
        "detail": {},
        "more": [{"since": 5}, {"bytes": 7}],
    }


def test_fields_that_an_older_version_has_not_are_left_out() -> None:
    found = decoded(subjects.heartbeat(TO), msgpack.packb([1, 1, TO, "ready", {}]))
    assert found.fields == {"v": 1, "ledger": 1, "address": TO, "state": "ready", "models": {}}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, 5),
        (["unknown tag", 1, b"abc"], ["unknown tag", 1, {"bytes": 3}]),
        ({"a": [b"abc"], b"key": None}, {"a": [{"bytes": 3}], "b'key'": None}),
        (msgpack.ExtType(7, b"abcd"), {"ext": 7, "bytes": 4}),
    ],
)
def test_what_is_of_no_known_type_is_shown_raw(value: Any, shown: Any) -> None:
    assert decoded(subjects.control(TO), msgpack.packb(value)) == Decoded("ctl", "", shown)


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\x01", b"RIFF....WAVE", b"\x91" * 5000, b"\x81\x90\x01"]
)
@pytest.mark.parametrize("kind", subjects.KINDS)
def test_garbage_is_told_by_its_size(data: bytes, kind: str) -> None:
    found = decoded(f"duo.v1.{kind}.llm.llm-1", data)
    assert (found.kind, found.type, found.fields["bytes"]) == (kind, "", len(data))
    assert "data" not in found.fields
    assert decoded(f"duo.v1.{kind}.llm.llm-1", data, whole=True).fields["data"] == data


@pytest.mark.parametrize(
    "tensor",
    [
        ["<f8", [4], b"too few"],
        ["<f8", [4], 3],
        ["|O", [1], b"12345678"],
        ["nonsense", [1], b"12345678"],
        ["<f8", "shape", b""],
        ["<f8"],
        ["<f8", [-1], b"12345678"],
    ],
)
def test_what_is_no_tensor_is_shown_raw(tensor: list[Any]) -> None:
    good = msgpack.unpackb(m.encode(bundle(m.Audio.of({"pcm": np.zeros(1)}))))
    good[2][0][7][2]["pcm"] = tensor
    found = decoded(subjects.inbox(TO), msgpack.packb(good))
    shown = found.fields["units"][0]["body"]["tensors"]["pcm"]
    assert shown == [{"bytes": len(each)} if isinstance(each, bytes) else each for each in tensor]


@pytest.mark.parametrize(
    ("array", "low", "high"),
    [
        (np.array([True, False]), 0, 1),
        (np.array([-(2**40), 7]), -(2**40), 7),
        (np.array([[1.5], [2.5]], np.float16), 1.5, 2.5),
        (np.zeros(0), None, None),
        (np.array(["a"]), None, None),
    ],
)
def test_ranges_of_all_kinds_of_arrays(array: Any, low: float | None, high: float | None) -> None:
    found = decoded(subjects.inbox(TO), bundle(m.Codes.of({"x": array})))
    told = found.fields["units"][0]["body"]["tensors"]["x"]
    assert (told.get("min"), told.get("max")) == (low, high)
    assert (told["shape"], told["bytes"]) == (list(array.shape), array.nbytes)


def test_a_503_has_nothing_in_it() -> None:
    assert decode(Copy(m.WIRE, subjects.inbox(TO), no_responders=True)) == Decoded("in", "", None)
