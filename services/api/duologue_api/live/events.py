"""The server's events, as they stand on the wire (types of openai-python 3.57, `openai.types.live`).

What has no default is always sent; what has one is left out while it has that value.
"""

import secrets
from typing import Any, Literal

import msgspec
import pybase64

from duologue.errors import CloseReason, kind


def new_event_id() -> str:
    return f"event_{secrets.token_hex(12)}"


class Part(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """Base of what events are made of."""


class AudioFormat(Part, frozen=True, kw_only=True):
    type: str
    rate: int
    """Samples a second."""


class VoiceId(Part, frozen=True, kw_only=True):
    id: str


class AudioOutput(Part, frozen=True, kw_only=True):
    voice: str | VoiceId


class Audio(Part, frozen=True, kw_only=True):
    format: AudioFormat
    output: AudioOutput


class SessionResource(Part, frozen=True, kw_only=True):
    """The resolved configuration, defaults included, and what the server assigned."""

    id: str
    expires_at: int
    """Unix seconds."""
    model: str
    status: Literal["active"]
    audio: Audio
    delegation: dict[str, Any]
    input: list[dict[str, Any]]
    store: bool
    instructions: str | None = None
    triggers: list[dict[str, Any]] = []
    client: dict[str, Any] | None = None
    safety_identifier: str | None = None


class Usage(Part, frozen=True, kw_only=True):
    seconds: float
    """Whole seconds of the session clock so far."""


class ContextWindow(Part, frozen=True, kw_only=True):
    usage_ratio: float


class ErrorDetail(Part, frozen=True, kw_only=True):
    type: str
    code: str
    message: str
    param: str | None = None
    client_event_id: str | None = None


class Event(Part, frozen=True, kw_only=True, tag_field="type", tag=True):
    """Base of the events that have an id; `client_event_id` is that of the command answered."""

    event_id: str = msgspec.field(default_factory=new_event_id)
    client_event_id: str | None = None


class SessionStarted(Event, frozen=True, kw_only=True, tag="session.started"):
    session: SessionResource


class SessionUpdated(Event, frozen=True, kw_only=True, tag="session.updated"):
    session: SessionResource


class InputAudioMuted(Event, frozen=True, kw_only=True, tag="session.input_audio.muted"):
    pass


class InputAudioUnmuted(Event, frozen=True, kw_only=True, tag="session.input_audio.unmuted"):
    pass


class OutputAudioDelta(Part, frozen=True, tag_field="type", tag="session.output_audio.delta"):
    """The one event without an id.  On the primary socket it carries no times either."""

    delta: bytes
    """Audio in the session's format; becomes base64 when it is encoded."""


class OutputTranscriptDelta(Event, frozen=True, kw_only=True, tag="session.output_transcript.delta"):
    """Times are ms of the session clock; starts never decrease within a session."""

    delta: str
    start_ms: int
    end_ms: int


class InputTranscriptDelta(Event, frozen=True, kw_only=True, tag="session.input_transcript.delta"):
    """Times as in `OutputTranscriptDelta`."""

    delta: str
    start_ms: int
    end_ms: int


class UsageUpdated(Event, frozen=True, kw_only=True, tag="session.usage.updated"):
    usage: Usage
    context_window: ContextWindow | None = None


class SessionClosed(Event, frozen=True, kw_only=True, tag="session.closed"):
    reason: CloseReason
    session: SessionResource
    usage: Usage


class ErrorEvent(Event, frozen=True, kw_only=True, tag="error"):
    error: ErrorDetail


class Info(Event, frozen=True, kw_only=True, tag="info"):
    """A notice.  Clients misread event types that they don't know, so whatever else there is to say goes here."""

    code: str
    message: str


ServerEvent = (
    SessionStarted
    | SessionUpdated
    | InputAudioMuted
    | InputAudioUnmuted
    | OutputAudioDelta
    | OutputTranscriptDelta
    | InputTranscriptDelta
    | UsageUpdated
    | SessionClosed
    | ErrorEvent
    | Info
)


def error(
    code: str, message: str, *, param: str | None = None, client_event_id: str | None = None
) -> ErrorEvent:
    """The `error` event of `code`; its type comes from the table."""
    detail = ErrorDetail(
        type=kind(code).type, code=code, message=message, param=param, client_event_id=client_event_id
    )
    return ErrorEvent(error=detail, client_event_id=client_event_id)


_encoder = msgspec.json.Encoder()


def encode(event: ServerEvent) -> str:
    """A text frame."""
    if type(event) is OutputAudioDelta:
        # As msgspec does, whose base64 takes ten times as long.  There is one of these for every unit.
        audio = pybase64.b64encode_as_string(event.delta)
        return f'{{"type":"session.output_audio.delta","delta":"{audio}"}}'
    return _encoder.encode(event).decode()
