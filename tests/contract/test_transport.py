"""What the transport does by itself, without an event: docs/protocol.md says so."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from contract.fake_host import EchoHost, serving
from duologue_api import server

pytestmark = pytest.mark.contract

PING, CLOSE = b"\x89", b"\x88"
NO_MASK = bytes(4)
UPGRADE = (
    "GET /v1/live/sessions HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@contextmanager
def upgraded(address: str) -> Iterator[socket.socket]:
    name, _, port = address.rpartition(":")
    with socket.create_connection((name, int(port)), timeout=10) as peer:
        peer.sendall(UPGRADE.format(host=address).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += peer.recv(1)
        assert head.startswith(b"HTTP/1.1 101")
        yield peer


def rest(peer: socket.socket) -> bytes:
    """All frames until the server closes."""
    got = b""
    while piece := peer.recv(4096):
        got += piece
    return got


def code_of(close: bytes) -> int:
    assert close[:1] == CLOSE
    code: int = struct.unpack("!H", close[2:4])[0]
    return code


def test_a_silent_client_is_asked_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Incident: uvicorn before 0.54 takes `ws_ping_interval` and, with this implementation of WebSockets, does not
    ping.  A client whose network has gone kept its session, and load balancers cut those that were only listening."""
    monkeypatch.setattr(server, "PING_S", 0.2)
    host = EchoHost()
    with serving(host) as address, upgraded(address) as peer:
        frames = rest(peer)
        assert frames[:1] == PING
        assert code_of(frames[6:]) == 1011, "after the ping of four bytes"
        assert host.left.wait(5)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x82" + NO_MASK + b"\xff\xfe", 1007),
        (b"\x81\xff" + struct.pack("!Q", server.WS_MAX_BYTES + 1) + NO_MASK, 1009),
    ],
    ids=["no UTF-8", "too long"],
)
def test_what_the_transport_cannot_take_ends_that_client(frame: bytes, code: int) -> None:
    host = EchoHost()
    with serving(host) as address, upgraded(address) as peer:
        peer.sendall(frame)
        assert code_of(rest(peer)) == code
        assert host.left.wait(5)
