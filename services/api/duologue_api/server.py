"""uvicorn as this service runs it."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from duologue_api.frames import BoundedFrames
from duologue_api.live.commands import MAX_FRAME_BYTES
from duologue_api.requests import PromptRequests

WS_MAX_BYTES = 2 * MAX_FRAME_BYTES
"""Above the limit of a command, so that a frame somewhat too long is answered by an event; beyond this one the
transport closes with 1009 and no word."""
PING_S = 20.0
SEND_BUFFER_BYTES = 64 * 1024
"""What the kernel holds of output, about 1 s of audio in base64.  Left to itself it would take a minute's worth
before anyone noticed that the reader is slow."""
STUCK_MS = 60_000
"""A peer that takes no byte for so long is dropped by the kernel, since only it can drop what it holds."""


class Server(uvicorn.Server):
    """Listens from the moment it is made; stops when `should_exit` is set.  Signals are its owner's business: a pod
    lets its sessions go before its sockets."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self._listener = listener

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await super().serve(sockets=sockets or [self._listener])

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(app: ASGIApp, host: str, port: int) -> Server:
    """A server on `host`, whose `serve()` is to be awaited; port 0: any free one.  Raises `OSError` where the
    address is taken or is none of this machine's."""
    config = uvicorn.Config(
        app,
        loop="auto",  # uvloop, where there is one
        http=PromptRequests,
        ws=BoundedFrames,
        ws_max_size=WS_MAX_BYTES,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",  # what it says below that quotes addresses and queries
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    return Server(config, _listen(host, port))


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn 0.54 takes every upgrade that is refused with a status of its own for a fault of ours."""
    return "returned without completing handshake" not in record.getMessage()


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MS)
        if family == socket.AF_INET6 and not host:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
