"""The wire: every message round-trips, tolerates appended fields, and garbage is `Malformed`."""

import contextlib
import types
import typing
from functools import cache
from typing import Any

import msgpack
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duologue.bus import messages
from duologue.bus.messages import (
    Ack,
    Acks,
    Audio,
    Body,
    Bundle,
    Codes,
    Control,
    Done,
    Envelope,
    Event,
    Heartbeat,
    Inflow,
    Malformed,
    Number,
    Speech,
    Struct,
    Suspect,
    Tensor,
    decode,
    decode_control,
    encode,
)
from duologue.bus.subjects import Address

pytestmark = pytest.mark.unit

TYPES = [
    found
    for found in vars(messages).values()
    if isinstance(found, type) and issubclass(found, Struct) and found not in (Struct, Body, Control)
]
TAGGED = [found for found in TYPES if issubclass(found, Body | Control)]
BY_NAME = {"ids": lambda found: found.__name__}

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: INT64,
    str: st.text(max_size=8),
    Address: st.from_regex(r"(api|llm)\.[-_a-zA-Z0-9]{1,20}", fullmatch=True),
    Number: st.integers(0, 2**53),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=16),
}
LEAVES = st.one_of(st.none(), *VALUES.values())
VALUES[Any] = st.one_of(
    LEAVES,
    st.lists(LEAVES, max_size=2),
    st.dictionaries(st.one_of(st.text(max_size=4), INT64), LEAVES, max_size=2),
)
few = settings(max_examples=10, deadline=None)
"""Of each of some thirty types; machines may be slow."""
patient = settings(deadline=None)


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of type `kind` may have."""
    if kind in VALUES:
        return VALUES[kind]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if inner[-1] is Ellipsis:
            return st.lists(values(inner[0]), max_size=4).map(tuple)
        return st.tuples(*map(values, inner))
    if origin is list:
        return st.lists(values(inner[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=3)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values, inner))
    return built(kind)


@cache
def built(kind: type[Struct]) -> st.SearchStrategy[Any]:
    return st.builds(kind, *(values(field.type) for field in msgspec.structs.fields(kind)))


def plain(data: bytes) -> Any:
    """What somebody without our types reads."""
    return msgpack.unpackb(data, strict_map_key=False)


def repacked(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def required(kind: type[Struct]) -> int:
    """Entries that can't be missing, the tag included."""
    fields = sum(field.required for field in msgspec.structs.fields(kind))
    return fields + issubclass(kind, Body | Control)


def test_no_type_was_missed() -> None:
    assert {Envelope, Bundle, Acks, Heartbeat, Tensor, Speech, Done} <= set(TYPES)
    assert len(TYPES) > 25


@pytest.mark.parametrize("kind", TYPES, **BY_NAME)
@few
@given(st.data())
def test_every_message_comes_back_and_anybody_can_read_it(kind: type[Struct], data: st.DataObject) -> None:
    message = data.draw(built(kind))
    again = decode(encode(message), kind)
    assert again == message
    assert type(again) is kind
    raw = plain(encode(message))
    assert isinstance(raw, list)
    assert len(raw) == len(msgspec.structs.fields(kind)) + (kind in TAGGED)
    assert decode(repacked(raw), kind) == message


@pytest.mark.parametrize("kind", TYPES, **BY_NAME)
@few
@given(st.data())
def test_fields_may_be_appended_and_not_be_there_yet(kind: type[Struct], data: st.DataObject) -> None:
    message = data.draw(built(kind))
    raw = plain(encode(message))
    newer = raw + data.draw(st.lists(VALUES[Any], min_size=1, max_size=3))
    assert decode(repacked(newer), kind) == message
    older = decode(repacked(raw[: required(kind)]), kind)
    for field in msgspec.structs.fields(kind):
        if field.required:
            assert getattr(older, field.name) == getattr(message, field.name)
        elif field.default is not msgspec.NODEFAULT:
            assert getattr(older, field.name) == field.default
        else:
            assert getattr(older, field.name) == field.default_factory()
    if required(kind):
        with pytest.raises(Malformed):
            decode(repacked(raw[: required(kind) - 1]), kind)


@pytest.mark.parametrize("kind", TYPES, **BY_NAME)
def test_the_version_or_the_tag_comes_first(kind: type[Struct]) -> None:
    names = [field.name for field in msgspec.structs.fields(kind)]
    assert "v" not in names[1:]


def test_tags_are_what_observers_see() -> None:
    assert plain(encode(Audio.of({}))) == ["audio", 1, {}]
    assert plain(encode(Done(1, "well"))) == ["done", 1, "well"]


@patient
@given(st.one_of(*map(built, TAGGED)))
def test_tags_tell_messages_apart(message: Any) -> None:
    if isinstance(message, Control):
        assert decode_control(encode(message)) == message
        with pytest.raises(Malformed):
            decode(encode(message), Audio)
    else:
        with pytest.raises(Malformed):
            decode_control(encode(message))
        envelope = Envelope(1, "live_x", "a", "b", 0, (0, 0), (0, 0), message)
        assert type(decode(encode(envelope), Envelope).body) is type(message)


GARBAGE = [
    b"",
    b"\xc1",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x90",
    b"\x80",
    b"\xc0",
    b"\x93\x01\xa2\xff\xfe\x90",
    b"\xdd\xff\xff\xff\xff",
    bytes(100),
]


@pytest.mark.parametrize("kind", TYPES, **BY_NAME)
def test_garbage_is_malformed(kind: type[Struct]) -> None:
    for data in GARBAGE:
        with pytest.raises(Malformed, match=kind.__name__):
            decode(data, kind)
        with pytest.raises(Malformed, match="control"):
            decode_control(data)


@patient
@given(st.data())
def test_a_message_with_one_bit_wrong_is_read_or_malformed(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(TYPES))
    whole = bytearray(encode(data.draw(built(kind))))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(Malformed):
        assert type(decode(bytes(whole), kind)) is kind


@patient
@given(st.data())
def test_a_message_cut_short_or_run_over_is_malformed(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(TYPES))
    whole = encode(data.draw(built(kind)))
    with pytest.raises(Malformed):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))], kind)
    with pytest.raises(Malformed):
        decode(whole + data.draw(st.binary(min_size=1, max_size=4)), kind)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (["sid", "a", "b", [0], 0, 0, 0, 0], Ack),
        (["sid", "a", "b", [0, 0], "0", 0, 0, 0], Ack),
        ([[[[0, 0], 1.5]]], Inflow),
        ([1, "me", [[1, "sid"]]], Bundle),
        ([1, "me", {}], Bundle),
        (["<f8", [1], "not bytes"], Tensor),
    ],
)
def test_wrong_types_are_malformed(message: Any, kind: type[Struct]) -> None:
    with pytest.raises(Malformed):
        decode(repacked(message), kind)


# ---------------------------------------------------------------- tensors


ARRAYS = [
    np.arange(6, dtype=np.int16).reshape(2, 3),
    np.arange(6, dtype=np.float64).reshape(1, 2, 3) / 7,
    np.arange(6, dtype=">i4"),
    np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1::2],
    np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
    np.array([True, False]),
    np.array(3.5, np.float16),
    np.zeros((0, 7), np.int64),
    np.array([1 + 2j], np.complex64),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype.str}{array.shape}")
def test_an_array_comes_back_as_it_was(array: Any) -> None:
    tensor = decode(encode(Tensor.of(array)), Tensor)
    again = tensor.array()
    np.testing.assert_array_equal(again, array)
    assert again.shape == array.shape
    assert again.dtype == array.dtype.newbyteorder("<")
    assert not again.flags.writeable
    assert len(tensor.data) == array.nbytes


def test_the_bytes_are_little_endian_and_in_c_order() -> None:
    tensor = Tensor.of(np.array([[1, 2], [3, 4]], ">i2").T)
    assert tensor == Tensor("<i2", (2, 2), bytes([1, 0, 3, 0, 2, 0, 4, 0]))
    assert Tensor.of(np.array([1], np.uint8)).dtype == "|u1"


def test_a_tensor_in_big_endian_is_read_too() -> None:
    np.testing.assert_array_equal(Tensor(">i2", (2,), bytes([0, 1, 0, 2])).array(), [1, 2])


def test_an_array_of_objects_has_no_place_on_the_bus() -> None:
    with pytest.raises(ValueError, match="objects"):
        Tensor.of(np.array([None], object))


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("<f8", (2,), bytes(8)),
        Tensor("<f8", (1,), bytes(16)),
        Tensor("<f8", (1,), bytes(7)),
        Tensor("<f8", (0,), bytes(8)),
        Tensor("<f8", (2**40, 2**40), bytes(8)),
        Tensor("<f8", (1,) * 99, bytes(8)),
        Tensor("|O", (1,), bytes(8)),
        Tensor("f8,O", (1,), bytes(16)),
        Tensor("no such type", (1,), bytes(8)),
        Tensor("", (1,), bytes(8)),
        Tensor("|V0", (1,), b""),
        Tensor("<f8", (-1,), bytes(8)),
        Tensor("(1,", (1,), bytes(8)),
    ],
    ids=lambda tensor: f"{tensor.dtype}{tensor.shape[:3]}",
)
def test_a_tensor_that_is_none_is_malformed(tensor: Tensor) -> None:
    with pytest.raises(Malformed, match="tensor"):
        tensor.array()
    with pytest.raises(Malformed):
        Codes(1, {"x": tensor}).arrays()


def test_nesting_without_end_is_malformed() -> None:
    """`records` and `detail` take any value; msgspec follows their nesting by recursion."""
    deep = b"\x94\x01\xa1k\xa3sid\x81\xa1x" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(Malformed, match="Event"):
        decode(deep, Event)


def test_a_body_is_named_arrays_and_the_marker_has_none() -> None:
    pcm = np.arange(4, dtype=np.int16)
    body = decode(encode(Speech.of({"pcm": pcm, "empty": pcm[:0]})), Speech)
    assert not body.marker
    assert sorted(body.arrays()) == ["empty", "pcm"]
    np.testing.assert_array_equal(body.arrays()["pcm"], pcm)
    assert Speech().marker
    assert decode(encode(Speech()), Speech) == Speech.of({})


@pytest.mark.parametrize(
    "address",
    [
        "",
        "api",
        "api.",
        ".x",
        "api.a b",
        "api.x\r\nPUB a 0",
        "api.x\n",
        "api.>",
        "api.*",
        "nobody.x",
        "api." + "x" * 5000,
    ],
)
def test_what_nobody_can_be_reached_at_is_malformed(address: str) -> None:
    """A process answered a message from `api.xxxx…` with 5,000 characters; nats-server closed its connection for good
    (maximum control line exceeded), and the process ended with all its sessions."""
    for message, kind in ((Bundle(1, address, []), Bundle), (Acks(1, address, []), Acks)):
        with pytest.raises(Malformed):
            decode(encode(message), kind)
    with pytest.raises(Malformed):
        decode_control(encode(Suspect(1, address)))
