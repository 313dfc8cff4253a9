"""Who may come in: Bearer keys, or on an open server whoever is not another site's web page."""

import hmac
from collections.abc import Iterator, Sequence
from hashlib import sha256
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from duologue_api.answers import refusal

SUBPROTOCOL = "openai-live"
"""What a browser asks for beside its key; the one that is echoed."""
KEY_SUBPROTOCOL = "openai-insecure-api-key."
"""A browser can't set headers on a WebSocket: the key follows this prefix in a subprotocol.  Never echoed."""
GUARDED = "/v1"
_DEFAULT_PORTS = {80, 443}


class Keys:
    """The keys of this server, kept as digests."""

    def __init__(self, keys: Sequence[str]) -> None:
        """No keys make an open server.  Raises `ValueError` for a blank one."""
        if any(not key.strip() for key in keys):
            raise ValueError("a blank key would let everybody in")
        self._digests = [sha256(key.encode()).digest() for key in keys]

    @property
    def open(self) -> bool:
        return not self._digests

    def admit(self, given: str) -> bool:
        """Takes the same time whichever key it is, and wherever it differs."""
        digest = sha256(given.encode()).digest()
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def given_keys(connection: HTTPConnection) -> Iterator[str]:
    """The keys that a client shows."""
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        yield key.strip()
    for protocol in connection.scope.get("subprotocols", ()):
        if protocol.startswith(KEY_SUBPROTOCOL):
            yield protocol.removeprefix(KEY_SUBPROTOCOL)


def from_here(origin: str | None, host: str) -> bool:
    """Whether a request with this `Origin` may use an open server on `host` (the `Host` header).  Any web page can
    reach a server on the loopback of whoever looks at it, so only pages from here or from the loopback pass.
    Clients that are no browsers send no `Origin`."""
    if origin is None:
        return True
    try:
        page, here = urlsplit(origin), urlsplit(f"//{host}")
        ports = [None if port in _DEFAULT_PORTS else port for port in (page.port, here.port)]
    except ValueError:
        return False
    if page.scheme not in ("http", "https") or not page.hostname:
        return False
    if _loopback(page.hostname):
        return True
    return page.hostname == here.hostname and ports[0] == ports[1]


def _loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware before everything under `/v1`: 401 without a key of ours, 403 for a foreign page."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not scope["path"].startswith(GUARDED):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        if self._keys.open:
            if from_here(connection.headers.get("origin"), connection.headers.get("host", "")):
                await self._app(scope, receive, send)
                return
            answer = refusal("forbidden", "This open server takes no requests from pages of other sites.")
        else:
            if any(self._keys.admit(key) for key in given_keys(connection)):
                await self._app(scope, receive, send)
                return
            answer = refusal("invalid_api_key", "No valid API key: send Authorization: Bearer <key>.")
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(answer)
        else:
            await answer(scope, receive, send)
