"""Server events of the Live protocol, as far as a client looks into them (`/v1/live/sessions`)."""

import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pybase64


class BadEvent(ValueError):
    """A frame that is no server event."""


@dataclass(frozen=True, slots=True)
class Event:
    """`fields` are the event as it came, of audio without the base64 text."""

    fields: Mapping[str, Any]

    @property
    def type(self) -> str:
        return str(self.fields["type"])

    @property
    def client_event_id(self) -> str | None:
        """The `event_id` of the command that this answers."""
        found = self.fields.get("client_event_id")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class AudioDelta(Event):
    """`session.output_audio.delta`; `audio` in the session's format, usually int16 bytes."""

    audio: bytes


@dataclass(frozen=True, slots=True)
class TranscriptDelta(Event):
    """`session.output_transcript.delta`, or with `heard` the user's, at half-open milliseconds of the session."""

    text: str
    start_ms: int
    end_ms: int
    heard: bool


@dataclass(frozen=True, slots=True)
class UsageUpdated(Event):
    """`session.usage.updated`: seconds of session clock so far."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """`session.closed`: the last event of a session."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ErrorEvent(Event):
    """`error`: a command was refused or something was lost; the session goes on."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Info(Event):
    """`info`: a notice."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Other(Event):
    """Any other event."""


def decode(frame: str | bytes) -> Event:
    """The event in a text frame.  Raises `BadEvent`."""
    try:
        fields = orjson.loads(frame)
    except orjson.JSONDecodeError as error:
        raise BadEvent(f"the server sent no JSON: {error}") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("type"), str):
        raise BadEvent("the server sent an event without a type")
    try:
        return _KINDS.get(fields["type"], Other)(fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadEvent(f"the server sent a malformed {fields['type']}: {error!r}") from None


def _audio(fields: dict[str, Any]) -> Event:
    delta = fields.pop("delta")
    try:
        return AudioDelta(fields, pybase64.b64decode(delta, validate=True))
    except binascii.Error as error:
        raise BadEvent(f"the server sent audio that is no base64: {error}") from None


def _transcript(fields: dict[str, Any]) -> Event:
    heard = fields["type"] == "session.input_transcript.delta"
    return TranscriptDelta(
        fields, str(fields["delta"]), int(fields["start_ms"]), int(fields["end_ms"]), heard
    )


def _usage(fields: dict[str, Any]) -> Event:
    return UsageUpdated(fields, float(fields["usage"]["seconds"]))


def _closed(fields: dict[str, Any]) -> Event:
    return Closed(fields, str(fields["reason"]), float((fields.get("usage") or {}).get("seconds", 0.0)))


def _error(fields: dict[str, Any]) -> Event:
    # Servers are known to send a null code.
    error = fields["error"]
    return ErrorEvent(
        fields, str(error.get("code") or error.get("type") or ""), str(error.get("message") or "")
    )


def _info(fields: dict[str, Any]) -> Event:
    return Info(fields, str(fields.get("code") or ""), str(fields.get("message") or ""))


_KINDS: dict[str, Callable[[dict[str, Any]], Event]] = {
    "session.output_audio.delta": _audio,
    "session.output_transcript.delta": _transcript,
    "session.input_transcript.delta": _transcript,
    "session.usage.updated": _usage,
    "session.closed": _closed,
    "error": _error,
    "info": _info,
}
