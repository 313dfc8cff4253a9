"""Where a Live server is: from what a user types to its WebSocket and HTTP addresses."""

import ipaddress
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_TO_SOCKET = {"ws": "ws", "http": "ws", "wss": "wss", "https": "wss"}
_SESSIONS = "/live/sessions"


class BadUrl(ValueError):
    """Not the address of a server."""


@dataclass(frozen=True, slots=True)
class Address:
    """`live` is the WebSocket address of sessions, `api` the HTTP address that ends in `/v1`."""

    live: str
    api: str

    @classmethod
    def of(cls, url: str) -> Self:
        """From `ws://`, `wss://`, `http://` or `https://` with or without `/v1` or `/v1/live/sessions`; anything
        before that is the prefix of a gateway and kept, as is a query.  Raises `BadUrl`."""
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError as error:
            raise BadUrl(f"{url!r} is no address: {error}") from None
        if parts.scheme not in _TO_SOCKET or not parts.hostname:
            raise BadUrl(f"{url!r} is no address; it looks like ws://127.0.0.1:8700 or https://host/v1")
        path = parts.path.rstrip("/").removesuffix(_SESSIONS)
        if not path.endswith("/v1"):
            path += "/v1"
        socket = _TO_SOCKET[parts.scheme]
        web = "https" if socket == "wss" else "http"
        return cls(
            urlunsplit((socket, parts.netloc, path + _SESSIONS, parts.query, "")),
            urlunsplit((web, parts.netloc, path, "", "")),
        )

    @property
    def loopback(self) -> bool:
        """Whether it is this machine, which is never reached through a proxy."""
        host = urlsplit(self.live).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")
