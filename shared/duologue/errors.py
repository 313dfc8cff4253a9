"""One table of every error code that a client can see: its type, and what becomes of the connection.

Three families.  The client's errors are answered on the socket and the session lives (`ends` is `None`); the
session's end it with `session.closed` and that reason; the process's kill the process, whose sessions move, so that
no client sees them.  Types and codes keep clear of those that make clients give up for good (`insufficient_quota`
and its like), `invalid_api_key` and `forbidden` excepted, where that is meant.
"""

import traceback
from dataclasses import dataclass
from typing import Any, Literal

CloseReason = Literal["close_requested", "expired", "content", "remote_hangup", "connection_lost"]
"""Reasons of `session.closed`."""

NORMAL = 1000
"""Close code after every `session.closed`, and only there."""
POLICY = 1008
"""Close code of a refusal that a retry won't change."""
BROKEN = 1011
"""Close code of a failure that is ours."""
RETRY = 1013
"""Close code of a refusal that a retry may change."""


FRAMES = 20
"""Of an exception that are told, the innermost."""


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """A row of the table."""

    type: str
    close: int | None = None
    """WebSocket close code where the error is the last event: in place of `session.started`, or when a limit ends
    the connection.  `None`: the connection always outlives it."""
    ends: CloseReason | None = None
    """Reason of the `session.closed` (then close code 1000) by which it ends a session that has started."""
    status: int = 400
    """HTTP status, where the answer is one of HTTP."""


def _client(close: int | None = POLICY, status: int = 400) -> ErrorKind:
    return ErrorKind("invalid_request_error", close=close, status=status)


def _server(close: int, ends: CloseReason | None, status: int = 503) -> ErrorKind:
    return ErrorKind("server_error", close=close, ends=ends, status=status)


TABLE: dict[str, ErrorKind] = {
    "invalid_event": _client(),
    "unsupported_event": _client(None),
    "invalid_audio": _client(None),
    "unknown_parameter": _client(),
    "missing_required_parameter": _client(),
    "invalid_value": _client(),
    "immutable_field_update": _client(None),
    "model_not_found": _client(status=404),
    "start_timeout": _client(),
    "input_backlog": _client(RETRY),
    "output_backlog": _client(RETRY),
    "session_limit_reached": ErrorKind("rate_limit_error", close=RETRY, ends="connection_lost", status=429),
    "model_unavailable": _server(RETRY, "connection_lost"),
    "server_draining": _server(RETRY, "expired"),
    "session_failed": _server(BROKEN, "connection_lost", 500),
    "internal_error": _server(BROKEN, "connection_lost", 500),
    "invalid_api_key": ErrorKind("authentication_error", close=POLICY, status=401),
    "forbidden": ErrorKind("permission_error", close=POLICY, status=403),
    "not_found": _client(None, 404),
    "session_id_not_found": _client(None, 404),
    "method_not_allowed": _client(None, 405),
    "upgrade_required": _client(None, 426),
    "not_implemented": _client(None, 501),
}


def kind(code: str) -> ErrorKind:
    """The row of `code`; that of `session_failed` for one that only a newer peer on the bus knows."""
    return TABLE.get(code, TABLE["session_failed"])


def close_code(code: str) -> int:
    """The WebSocket close code where the error of `code` is the last event."""
    return kind(code).close or POLICY


def place_of(error: BaseException) -> dict[str, Any]:
    """An exception for the log: its type and where it was raised, but not its message, which may quote what a client
    said.  The same of what it came from, the oldest last."""
    said: dict[str, Any] = {"error": type(error).__name__, "where": _frames(error)}
    before, seen = error.__cause__ or error.__context__, {id(error)}
    came_from = []
    while before is not None and id(before) not in seen:
        seen.add(id(before))
        came_from.append({"error": type(before).__name__, "where": _frames(before)})
        before = before.__cause__ or before.__context__
    return said | ({"came_from": came_from} if came_from else {})


def _frames(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return [f"{frame.filename}:{frame.lineno}" for frame in frames]
