"""Keys and origins."""

import pytest
from starlette.requests import HTTPConnection

from duologue_api.auth import Keys, from_here, given_keys

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


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "127.0.0.1:8700"),
        ("http://127.0.0.1:8700", "127.0.0.1:8700"),
        ("http://localhost:3000", "127.0.0.1:8700"),
        ("http://app.localhost", "127.0.0.1:8700"),
        ("http://[::1]:3000", "[::1]:8700"),
        ("http://127.8.8.8", "voice.example"),
        ("https://voice.example", "voice.example"),
        ("https://voice.example", "voice.example:443"),
        ("https://voice.example:8443", "voice.example:8443"),
        ("https://VOICE.example", "voice.EXAMPLE"),
    ],
)
def test_pages_from_here(origin: str | None, host: str) -> None:
    assert from_here(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("null", "127.0.0.1:8700"),
        ("", "127.0.0.1:8700"),
        ("https://elsewhere.example", "127.0.0.1:8700"),
        ("https://voice.example", "voice.example:8443"),
        ("https://voice.example:1", "voice.example:2"),
        ("https://localhost.elsewhere.example", "127.0.0.1:8700"),
        ("https://127.0.0.1.elsewhere.example", "127.0.0.1:8700"),
        ("https://elsewhere.example", ""),
        ("file://", "127.0.0.1:8700"),
        ("file://127.0.0.1", "127.0.0.1:8700"),
        ("http://127.0.0.1:port", "127.0.0.1:8700"),
        ("http://[::1", "127.0.0.1:8700"),
        ("chrome-extension://abcdef", "127.0.0.1:8700"),
    ],
)
def test_pages_from_elsewhere(origin: str, host: str) -> None:
    assert not from_here(origin, host)
