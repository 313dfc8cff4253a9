"""Who may come in: Bearer keys, or on an open server whoever is not another site's web page."""

import hmac
from collections.abc import Iterator, Sequence
from hashlib import sha256

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from duologue_api.answers import refusal
from duologue_api.origin import objection

SUBPROTOCOL = "openai-live"
"""What a browser asks for beside its key; the one that is echoed."""
KEY_SUBPROTOCOL = "openai-insecure-api-key."
"""A browser can't set headers on a WebSocket: the key follows this prefix in a subprotocol.  Never echoed."""
GUARDED = "/v1"


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


class Guard:
    """ASGI middleware: 401 for everything under `/v1` without a key of ours; without keys, 403 for a foreign page
    whatever it asks for."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answer(HTTPConnection(scope)) if scope["type"] in ("http", "websocket") else None
        if answer is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(answer)
        else:
            await answer(scope, receive, send)

    def _answer(self, connection: HTTPConnection) -> Response | None:
        """How the request is refused; `None`: it isn't."""
        if self._keys.open:
            why = objection(connection.headers)
            return refusal("forbidden", why) if why else None
        if not connection.scope["path"].startswith(GUARDED):
            return None
        if any(self._keys.admit(key) for key in given_keys(connection)):
            return None
        return refusal("invalid_api_key", "No valid API key: send Authorization: Bearer <key>.")
