"""The server's events against the SDK's own types."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contract.strict_events import BY_TYPE, strict_event
from duologue.errors import TABLE
from duologue_api.live import events
from duologue_api.live.config import check
from duologue_api.port import ModelStatus

pytestmark = pytest.mark.unit

MODELS = (ModelStatus("m", "", True, ("robin",), 0.08),)
RESOURCE = check({"model": "m"}, MODELS).resource("live_1", 1_800_000_000)
USAGE = events.Usage(seconds=3.0)

ALL: list[events.ServerEvent] = [
    events.SessionStarted(session=RESOURCE, client_event_id="e"),
    events.SessionUpdated(session=RESOURCE),
    events.InputAudioMuted(client_event_id="e"),
    events.InputAudioUnmuted(),
    events.OutputAudioDelta(delta=b"\x01\x02\xff\x00"),
    events.OutputTranscriptDelta(delta=" ü", start_ms=0, end_ms=0),
    events.InputTranscriptDelta(delta="", start_ms=80, end_ms=160),
    events.UsageUpdated(usage=USAGE),
    events.UsageUpdated(usage=USAGE, context_window=events.ContextWindow(usage_ratio=0.0)),
    events.SessionClosed(reason="connection_lost", session=RESOURCE, usage=USAGE),
    events.error("invalid_audio", "Why.", param="audio", client_event_id="e"),
    events.error("session_failed", "Why."),
    events.Info(code="voice_mapped", message="Why."),
]


@pytest.mark.parametrize("event", ALL, ids=lambda event: type(event).__name__)
def test_every_event_is_strictly_one_of_the_sdks(event: events.ServerEvent) -> None:
    decoded = strict_event(events.encode(event))
    assert "None" not in json.dumps(decoded)
    if not isinstance(event, events.OutputAudioDelta):
        assert decoded["event_id"] == event.event_id
        assert decoded.get("client_event_id") == event.client_event_id


def test_all_events_are_tried() -> None:
    assert {type(event) for event in ALL} == set(events.ServerEvent.__args__)


def test_ids_are_unique() -> None:
    ids = {events.new_event_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(event_id.startswith("event_") for event_id in ids)


def test_audio_is_base64_and_nothing_else() -> None:
    decoded = json.loads(events.encode(events.OutputAudioDelta(delta=bytes(range(256)))))
    assert set(decoded) == {"type", "delta"}
    assert base64.b64decode(decoded["delta"], validate=True) == bytes(range(256))


@given(st.binary(max_size=400))
def test_audio_is_written_as_every_other_event(pcm: bytes) -> None:
    event = events.OutputAudioDelta(delta=pcm)
    assert events.encode(event) == msgspec.json.encode(event).decode()


def test_zeros_and_empty_texts_are_sent() -> None:
    decoded = json.loads(events.encode(events.OutputTranscriptDelta(delta="", start_ms=0, end_ms=0)))
    assert {key: decoded[key] for key in ("delta", "start_ms", "end_ms")} == {
        "delta": "",
        "start_ms": 0,
        "end_ms": 0,
    }
    assert json.loads(events.encode(events.UsageUpdated(usage=events.Usage(seconds=0.0))))["usage"] == {
        "seconds": 0.0
    }


def test_a_session_shows_its_defaults() -> None:
    session = json.loads(events.encode(events.SessionStarted(session=RESOURCE)))["session"]
    assert session == {
        "id": "live_1",
        "expires_at": 1_800_000_000,
        "model": "m",
        "status": "active",
        "audio": {"format": {"type": "audio/pcm", "rate": 24000}, "output": {"voice": "robin"}},
        "delegation": {"type": "client"},
        "input": [],
        "store": False,
    }


def test_an_error_names_its_command_twice() -> None:
    decoded = json.loads(events.encode(events.error("invalid_value", "Why.", param="p", client_event_id="e")))
    assert decoded["client_event_id"] == "e"
    assert decoded["error"] == {
        "type": "invalid_request_error",
        "code": "invalid_value",
        "message": "Why.",
        "param": "p",
        "client_event_id": "e",
    }


LIVEKIT_FATAL = {
    "insufficient_quota",
    "credit_balance_exhausted",
    "account_deactivated",
    "billing_hard_limit_reached",
}


@pytest.mark.parametrize("code", sorted(TABLE))
def test_no_error_looks_fatal_by_accident(code: str) -> None:
    row = TABLE[code]
    assert code not in LIVEKIT_FATAL
    assert row.type not in LIVEKIT_FATAL | {"invalid_api_key", "forbidden"}
    # 1000 and 1001 are clean ends, and an application's own codes begin at 4000.
    assert row.close in (None, 1008, 1011, 1013)
    assert 400 <= row.status < 600


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"surprise": 1}, AssertionError),
        ({"session": {"id": "live_1"}}, ValidationError),
        ({"event_id": None}, ValidationError),
        ({"session": json.loads(events.encode(ALL[0]))["session"] | {"status": "closed"}}, ValidationError),
    ],
)
def test_the_check_itself_finds_what_is_wrong(change: dict[str, Any], problem: type[Exception]) -> None:
    event = json.loads(events.encode(ALL[0]))
    with pytest.raises(problem):
        strict_event(event | change)


def test_a_type_of_our_own_would_be_found() -> None:
    assert "session.heard" not in BY_TYPE
    with pytest.raises(KeyError):
        strict_event({"type": "session.heard"})
