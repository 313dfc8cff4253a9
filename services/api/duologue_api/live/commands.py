"""Text frames into commands.  What is not one is `Refused`, and the session lives on."""

from dataclasses import dataclass

import msgspec
import numpy as np
import pybase64

from duologue_api.live.refused import Refused, shown
from duologue_api.live.table import UNSUPPORTED

MAX_FRAME_BYTES = 4 << 20
MAX_SESSION_BYTES = 1 << 20
"""Of `session`: it has to be read as a whole, at once, on the loop that all sessions share."""
MAX_DEPTH = 64
MAX_BRACKETS = 1 << 16
MAX_QUOTES = 1 << 17
"""Those around strings, and as many backslashes.  To follow the nesting of a frame with more would hold up every other
session."""
MAX_EVENT_ID = 512
"""Characters."""


@dataclass(frozen=True, slots=True)
class Start:
    session: object
    """Decoded JSON, not yet checked."""
    event_id: str | None


@dataclass(frozen=True, slots=True)
class Append:
    audio: bytes
    """In the session's format, at least one sample."""
    event_id: str | None


@dataclass(frozen=True, slots=True)
class Mute:
    on: bool
    event_id: str | None


@dataclass(frozen=True, slots=True)
class Update:
    session: object
    """Decoded JSON, not yet checked."""
    event_id: str | None


@dataclass(frozen=True, slots=True)
class Close:
    event_id: str | None


Command = Start | Append | Mute | Update | Close


class _Append(msgspec.Struct, tag_field="type", tag="session.input_audio.append", gc=False):
    audio: str
    event_id: str | None = None


class _Frame(msgspec.Struct, gc=False):
    """Any command; what is not asked for is skipped, and costs no Python object."""

    type: msgspec.Raw = msgspec.Raw()
    event_id: msgspec.Raw = msgspec.Raw()
    session: msgspec.Raw = msgspec.Raw()


_append = msgspec.json.Decoder(_Append)
_frame = msgspec.json.Decoder(_Frame)
_text = msgspec.json.Decoder(str)
_anything = msgspec.json.Decoder()

_ALIKE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def parse(text: str, sample_bytes: int = 2) -> Command:
    """One text frame, of a session whose samples have so many bytes.  Unknown fields beside those of the command are
    ignored.  Raises `Refused`."""
    if len(text) > MAX_FRAME_BYTES or (not text.isascii() and len(text.encode()) > MAX_FRAME_BYTES):
        raise Refused("invalid_event", f"The frame is longer than {MAX_FRAME_BYTES} bytes.")
    if _too_deep(text):
        raise Refused(
            "invalid_event", f"The frame is nested more than {MAX_DEPTH} deep, or has too many parts."
        )
    try:
        frame = _append.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _parse_any(text)
    return _audio(frame.audio, sample_bytes, _checked_id(frame.event_id, "session.input_audio.append"))


def _parse_any(text: str) -> Command:
    try:
        frame = _frame.decode(text)
    except msgspec.ValidationError:
        raise Refused("invalid_event", "The frame is not a JSON object.") from None
    except (msgspec.DecodeError, RecursionError):
        raise Refused("invalid_event", "The frame is not JSON.") from None
    command = _string(frame.type)
    given_id = bytes(frame.event_id)
    event_id = None if given_id in (b"", b"null") else _string(frame.event_id)
    if event_id is None and given_id not in (b"", b"null"):
        raise Refused("invalid_event", "event_id is not a string.", param="event_id", command=command)
    event_id = _checked_id(event_id, command)
    match command:
        case None:
            raise Refused("invalid_event", "type must be a string.", param="type", event_id=event_id)
        case "session.start":
            return Start(_session(frame.session, command, event_id), event_id)
        case "session.update":
            return Update(_session(frame.session, command, event_id), event_id)
        case "session.input_audio.mute" | "session.input_audio.unmute":
            return Mute(command == "session.input_audio.mute", event_id)
        case "session.close":
            return Close(event_id)
        case "session.input_audio.append":
            raise _bad_audio("audio must be a string of base64.", event_id)
        case _ if command in UNSUPPORTED:
            why = f"{command} is not supported by this server."
            raise Refused("unsupported_event", why, param="type", event_id=event_id, command=command)
    raise Refused("invalid_event", f"Unknown type: {shown(command)}.", param="type", event_id=event_id)


def _string(raw: msgspec.Raw) -> str | None:
    try:
        return _text.decode(raw)
    except msgspec.DecodeError:
        return None


def _checked_id(event_id: str | None, command: str | None) -> str | None:
    if event_id is not None and len(event_id) > MAX_EVENT_ID:
        why = f"event_id is longer than {MAX_EVENT_ID} characters."
        raise Refused("invalid_event", why, param="event_id", command=command)
    return event_id


def _session(raw: msgspec.Raw, command: str, event_id: str | None) -> object:
    size = len(bytes(raw))
    if not size:
        raise Refused(
            "missing_required_parameter",
            "Missing required parameter: 'session'.",
            param="session",
            event_id=event_id,
            command=command,
        )
    why = f"longer than {MAX_SESSION_BYTES} bytes"
    if size <= MAX_SESSION_BYTES:
        try:
            decoded: object = _anything.decode(raw)
            return decoded
        except (msgspec.DecodeError, RecursionError) as error:
            why = str(error)  # JSON by its grammar, but with a number out of range or half a surrogate pair
    raise Refused(
        "invalid_value",
        f"Invalid value: 'session': {why}.",
        param="session",
        event_id=event_id,
        command=command,
    )


def _audio(audio: str, sample_bytes: int, event_id: str | None) -> Append:
    if not audio:
        raise _bad_audio("audio is empty.", event_id)
    try:
        data = pybase64.b64decode(audio, validate=True)
    except ValueError:
        raise _bad_audio("audio is not valid base64.", event_id) from None
    if len(data) % sample_bytes:
        raise _bad_audio("PCM16 audio must contain an even number of bytes.", event_id)
    return Append(data, event_id)


def _bad_audio(why: str, event_id: str | None) -> Refused:
    command = "session.input_audio.append"
    return Refused("invalid_audio", why, param="audio", event_id=event_id, command=command)


def _too_deep(text: str) -> bool:
    """Whether brackets nest more than `MAX_DEPTH`."""
    # Almost every frame has only its first.  To find none is a tenth of the time that counting takes.
    if text.find("{", 1) < 0 and text.find("[", 1) < 0:
        return False
    opened = text.count("{") + text.count("[")
    if opened <= MAX_DEPTH:
        return False
    if opened > MAX_BRACKETS or text.count("\\") > MAX_QUOTES:
        return True
    bare = text.replace("\\\\", "").replace('\\"', "")  # what is left of quotes are those around strings
    if bare.count('"') > MAX_QUOTES:
        return True
    outside = "".join(bare.split('"')[::2])
    brackets = outside.encode(errors="replace").translate(_ALIKE, _NO_BRACKETS)
    steps = np.where(np.frombuffer(brackets, np.uint8) == ord("["), 1, -1)
    return bool(steps.size and steps.cumsum().max() > MAX_DEPTH)
