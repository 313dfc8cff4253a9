"""Text frames into commands."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue.errors import TABLE
from duologue_api.live.commands import (
    MAX_BRACKETS,
    MAX_DEPTH,
    MAX_FRAME_BYTES,
    MAX_QUOTES,
    MAX_SESSION_BYTES,
    UNSUPPORTED,
    Append,
    Close,
    Command,
    Mute,
    Start,
    Update,
    parse,
)
from duologue_api.live.refused import Refused

pytestmark = pytest.mark.unit

APPEND = "session.input_audio.append"


def refused(text: str) -> Refused:
    with pytest.raises(Refused) as caught:
        parse(text)
    assert caught.value.code in TABLE
    return caught.value


@given(st.binary(min_size=1, max_size=200).map(lambda data: data * 2), st.none() | st.text(max_size=512))
def test_audio_comes_through(pcm: bytes, event_id: str | None) -> None:
    frame: dict[str, Any] = {"type": APPEND, "audio": base64.b64encode(pcm).decode(), "event_id": event_id}
    expected = Append(pcm, event_id)
    assert parse(json.dumps(frame)) == expected
    assert parse(json.dumps(dict(reversed(frame.items())), ensure_ascii=False)) == expected


def test_a_start_brings_what_it_says_unchecked() -> None:
    frame = '{"session": {"model": [1.5, null, {"a": "é"}]}, "event_id": "e", "type": "session.start"}'
    assert parse(frame) == Start({"model": [1.5, None, {"a": "é"}]}, "e")
    assert parse('{"type":"session.start","session":null}') == Start(None, None)


def test_close() -> None:
    assert parse('{"type":"session.close","event_id":null}') == Close(None)
    assert parse('{"type":"session.close","event_id":"c"}') == Close("c")


def test_muting() -> None:
    assert parse('{"type":"session.input_audio.mute"}') == Mute(True, None)
    assert parse('{"type":"session.input_audio.unmute","event_id":"u"}') == Mute(False, "u")


def test_an_update_brings_what_it_says_unchecked() -> None:
    frame = {"type": "session.update", "session": {"triggers": [], "x": 1}, "event_id": "u"}
    assert parse(json.dumps(frame)) == Update({"triggers": [], "x": 1}, "u")
    error = refused('{"type":"session.update","event_id":"u"}')
    assert (error.code, error.param, error.event_id, error.command) == (
        "missing_required_parameter",
        "session",
        "u",
        "session.update",
    )
    assert refused(json.dumps({**frame, "session": "x" * MAX_SESSION_BYTES})).command == "session.update"


def test_a_byte_may_be_a_sample() -> None:
    frame = json.dumps({"type": APPEND, "audio": base64.b64encode(b"abc").decode(), "event_id": "e"})
    assert parse(frame, sample_bytes=1) == Append(b"abc", "e")
    error = refused(frame)
    assert (error.code, error.param, error.event_id) == ("invalid_audio", "audio", "e")


def test_fields_that_nobody_asked_for_are_ignored() -> None:
    frame = {"type": APPEND, "audio": "AAA=", "timestamp": [{"ms": 1}]}
    assert parse(json.dumps(frame)) == Append(b"\0\0", None)
    assert parse('{"type":"session.close","why":{"bored":true}}') == Close(None)


def outcome(text: str) -> Command | Refused:
    try:
        return parse(text)
    except Refused as error:
        return error


@pytest.mark.parametrize("command", sorted(UNSUPPORTED))
def test_what_is_not_supported_is_refused_with_its_id(command: str) -> None:
    error = refused(json.dumps({"type": command, "event_id": "e", "content": "x", "delegation_id": None}))
    assert (error.code, error.event_id, error.command) == ("unsupported_event", "e", command)
    assert command in error.message


def test_event_ids_have_a_limit() -> None:
    longest = "é" * 512
    assert parse(json.dumps({"type": "session.close", "event_id": longest})) == Close(longest)
    for frame in ({"type": "session.close"}, {"type": APPEND, "audio": "AAA="}):
        error = refused(json.dumps({**frame, "event_id": longest + "x"}))
        assert (error.code, error.param, error.event_id) == ("invalid_event", "event_id", None)


def test_a_refused_start_is_known_as_one() -> None:
    for fields in ({}, {"session": {}, "event_id": 5}, {"session": {"x": "y" * MAX_SESSION_BYTES}}):
        assert refused(json.dumps({"type": "session.start", **fields})).command == "session.start"
    assert refused('{"type":"session.start","session":[1e999]}').command == "session.start"
    assert refused('{"type":"session.start","session":["\\ud800"]}').code == "invalid_event"


# ---------------------------------------------------------------- limits


def append_of(size: int, fill: str = "A") -> str:
    """An append of `size` bytes of UTF-8."""
    shell = '{"type":"session.input_audio.append","x":"","audio":"AAA="}'
    return shell.replace('"x":""', f'"x":"{fill * ((size - len(shell)) // len(fill.encode()))}"')


@pytest.mark.parametrize("fill", ["A", "é"])
def test_frames_have_a_limit_in_bytes(fill: str) -> None:
    assert isinstance(parse(append_of(MAX_FRAME_BYTES, fill)), Append)
    error = refused(append_of(MAX_FRAME_BYTES + len(fill.encode()), fill))
    assert (error.code, error.event_id) == ("invalid_event", None)


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    """A close that is `depth` deep, the frame itself counted."""
    return '{"type":"session.close","x":' + opening * (depth - 1) + "1" + closing * (depth - 1) + "}"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"x":', "}"), ('[{"]":', "}]")])
def test_nesting_has_a_limit(opening: str, closing: str) -> None:
    levels = opening.count("[") + opening.count("{")
    deepest = (MAX_DEPTH - 1) // levels + 1
    assert parse(nested(deepest, opening, closing)) == Close(None)
    assert "nested" in refused(nested(deepest + 1, opening, closing)).message


def test_width_is_not_depth() -> None:
    wide = '{"type":"session.close","x":[' + ",".join(['{"a":[]}'] * 1000) + "]}"
    assert parse(wide) == Close(None)


def test_brackets_in_text_are_text() -> None:
    text = '[{"' * 500 + '\\"' * 3
    assert parse(json.dumps({"type": "session.close", "x": text, "y": "\\"})) == Close(None)


def test_strings_of_a_nested_frame_have_a_limit() -> None:
    """A frame of 1.3 million strings held up every session of the pod for half a second, to be followed."""

    def flat(strings: int) -> str:
        return '{"type":"session.close","x":' + "[[]," * 62 + ",".join(['""'] * strings) + "]" * 62 + "}"

    room = MAX_QUOTES // 2 - 4  # beside those of the names and the type
    assert parse(flat(room)) == Close(None)
    assert "nested" in refused(flat(room + 2)).message
    assert "nested" in refused(flat(1).replace('""', '"' + "\\\\" * MAX_QUOTES + '"')).message


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, (dict, list)) + max(map(depth_of, inner), default=0)


TRICKY = st.text(alphabet='{}[]"\\/ué,:', max_size=6)
TREES = st.recursive(
    TRICKY | st.integers(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(TRICKY, below, max_size=3),
    max_leaves=20,
)


@given(TREES, st.integers(MAX_DEPTH - 12, MAX_DEPTH), st.booleans())
def test_depth_is_that_of_the_json(tree: Any, below: int, escaped: bool) -> None:
    deep = tree
    for _ in range(below):
        deep = [deep]
    frame = {"type": "session.close", "x": deep, "y": ["["] * MAX_DEPTH}
    taken = isinstance(outcome(json.dumps(frame, ensure_ascii=escaped)), Close)
    assert taken is (depth_of(frame) <= MAX_DEPTH)


@pytest.mark.parametrize(
    "frame",
    [
        "[" * (MAX_FRAME_BYTES - 1),
        "[]" * (MAX_BRACKETS + 1),
        '{"x":' * 100_000,
        '"' + '\\"' * 500_000 + "[" * 100,
        '"' * 500_000 + "[" * 100,
        "[" * 65_000 + '"x",' * 100_000,
    ],
)
def test_hostile_nesting_is_refused(frame: str) -> None:
    assert refused(frame).code == "invalid_event"


@given(st.text(max_size=50) | st.text(alphabet='{}[]",:\\ntruefalse0123456789.eE- ', max_size=80))
def test_any_text_is_a_command_or_refused(text: str) -> None:
    command = outcome(text)
    assert isinstance(command, Command) or command.code == "invalid_event"


FIELDS = st.dictionaries(
    st.sampled_from(["type", "event_id", "audio", "session", "x"]),
    st.sampled_from([APPEND, "session.start", "session.close", "response.create"])
    | st.text(max_size=6)
    | st.none()
    | st.integers()
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=3), st.booleans(), max_size=2),
)


@given(FIELDS)
def test_any_object_is_a_command_or_refused_with_its_id(fields: dict[str, Any]) -> None:
    event_id = fields.get("event_id")
    command = outcome(json.dumps(fields))
    assert command.event_id == (event_id if isinstance(event_id, str) else None)
    assert isinstance(command, Command) or command.code in TABLE
