"""Keys, and who is asked for one."""

import asyncio
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from duologue_api.auth import Guard, Keys, given_keys

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("given", "admitted"),
    [("one", True), ("two", True), ("on", False), ("one ", False), ("ONE", False), ("", False), ("é", False)],
)
def test_only_known_keys_are_admitted(given: str, admitted: bool) -> None:
    assert Keys(["one", "two"]).admit(given) is admitted


def test_no_keys_make_an_open_server_that_admits_none() -> None:
    assert Keys([]).open
    assert not Keys([]).admit("")
    assert not Keys(["one"]).open


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_key_is_refused(blank: str) -> None:
    with pytest.raises(ValueError, match="blank"):
        Keys(["one", blank])


def test_keys_are_not_kept_in_clear() -> None:
    assert "hunter2" not in repr(vars(Keys(["hunter2"])))


@pytest.mark.parametrize(
    ("header", "protocols", "keys"),
    [
        ("Bearer k", [], ["k"]),
        ("bearer   k ", [], ["k"]),
        ("Bearer", [], []),
        ("Bearer ", [], []),
        ("Basic k", [], []),
        ("k", [], []),
        (None, [], []),
        (None, ["openai-live", "openai-insecure-api-key.k"], ["k"]),
        ("Bearer a", ["openai-insecure-api-key.b"], ["a", "b"]),
        (None, ["openai-live", "k"], []),
    ],
)
def test_where_keys_are_shown(header: str | None, protocols: list[str], keys: list[str]) -> None:
    headers = [(b"authorization", header.encode())] if header is not None else []
    connection = HTTPConnection({"type": "websocket", "headers": headers, "subprotocols": protocols})
    assert list(given_keys(connection)) == keys


def status(keys: Keys, path: str, **headers: str) -> int | None:
    """Of the refusal of a GET; `None`: it came through."""
    sent: list[int | None] = []

    async def app(*_: object) -> None:
        sent.append(None)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            sent.append(message["status"])

    async def receive() -> Any:
        raise AssertionError("read")

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path, "headers": raw}
    asyncio.run(Guard(app, keys)(scope, receive, send))
    [only] = sent
    return only


@pytest.mark.parametrize("path", ["/v1/models", "/v1", "/v1/nothing", "/metrics", "/healthz", "/"])
def test_who_is_asked(path: str) -> None:
    guarded = 401 if path.startswith("/v1") else None
    keyed, everybody = Keys(["k"]), Keys([])
    assert status(keyed, path, host="voice.example") == guarded
    assert status(keyed, path, host="voice.example", authorization="Bearer k", origin="null") is None
    assert status(everybody, path, host="localhost:8700") is None
    assert status(everybody, path, host="localhost:8700", authorization="Bearer k") is None
    assert status(everybody, path, host="localhost:8700", origin="null") == 403
    assert status(everybody, path, host="voice.example") == 403
