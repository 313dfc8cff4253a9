"""What the transport does by itself, without an event: docs/protocol.md says so."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from contract.fake_host import EchoHost, serving
from duologue_api import frames, requests, server

pytestmark = pytest.mark.contract

PING, PONG, CLOSE = b"\x89", b"\x8a", b"\x88"
BEGUN, PART = b"\x01", b"\x00"
"""A text message that has more parts, and one of them."""
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


@pytest.mark.parametrize(
    ("begun", "frame"),
    [
        (BEGUN + b"\x80" + NO_MASK, PART + b"\x80" + NO_MASK),
        (BEGUN + b"\x80" + NO_MASK, PART + b"\x81" + NO_MASK + b" "),
        (b"", PING + b"\x80" + NO_MASK),
        (b"", PONG + b"\x80" + NO_MASK),
    ],
    ids=["empty parts", "parts of a byte", "pings", "pongs"],
)
def test_frames_that_say_nothing_end_that_client(begun: bytes, frame: bytes) -> None:
    """Incident: a client that sent a message in parts of one byte, or nothing but pings, held up all sessions of its
    pod for as long as it liked, and the parts of one unfinished message took a gigabyte."""
    host = EchoHost()
    with serving(host) as address, upgraded(address) as peer:
        peer.sendall(begun)
        sent = 0
        with suppress(OSError):
            while sent < 40 * frames.BURST:
                peer.sendall(1024 * frame)
                sent += 1024
        assert host.left.wait(5), f"{sent} frames were taken"


def test_a_command_in_many_parts_is_one_command() -> None:
    host = EchoHost()
    text = b'{"type": "session.start", "session": {"model": "echo"}}'
    with serving(host) as address, upgraded(address) as peer:
        for at, byte in enumerate(text):
            first, last = b"\x01" if at == 0 else PART, at == len(text) - 1
            head = bytes([first[0] | (0x80 if last else 0)])
            peer.sendall(head + b"\x81" + NO_MASK + bytes([byte]))
        assert b"session.started" in peer.recv(4096)


def test_who_does_not_read_gets_no_pongs() -> None:
    """Incident: each ping was answered, read or not, and the pongs piled up in the pod's memory."""
    queued: list[int] = []

    class Watched(frames.BoundedFrames):
        def handle_ping(self) -> None:
            super().handle_ping()
            queued.append(self.transport.get_write_buffer_size())

    host = EchoHost()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "BoundedFrames", Watched)
        patch.setattr(frames, "BURST", 100_000)
        with serving(host) as address, upgraded(address) as peer:
            for _ in range(400):
                peer.sendall(100 * (PING + b"\xfd" + NO_MASK + bytes(125)))
    assert max(queued) < 256 << 10


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Cookie: " + 9000 * "c", 431),
        ("\r\n".join(f"X-{n}: x" for n in range(200)), 431),
        ("Content-Length: 1", 400),
    ],
    ids=["long", "many", "with a body"],
)
def test_an_upgrade_that_cannot_be_read_is_answered(header: str, status: int) -> None:
    """Incident: a browser with many cookies for localhost waited for ever, and its socket stayed open."""
    with serving(EchoHost()) as address:
        name, _, port = address.rpartition(":")
        with socket.create_connection((name, int(port)), timeout=10) as peer:
            peer.sendall(UPGRADE.format(host=address).replace("\r\n\r\n", f"\r\n{header}\r\n\r\n").encode())
            assert rest(peer).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize(
    "begun", ["", "GET / HT", "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /healthz"]
)
def test_who_asks_for_nothing_is_let_go(begun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Incident: sockets that were opened and never used, or whose peer had gone, stayed until no more could be opened."""
    monkeypatch.setattr(requests, "REQUEST_S", 0.3)
    with serving(EchoHost()) as address, upgraded(address) as session:
        name, _, port = address.rpartition(":")
        with socket.create_connection((name, int(port)), timeout=10) as peer:
            peer.sendall(begun.encode())
            assert rest(peer).count(b"HTTP/1.1") == begun.count("\r\n\r\n")
        session.sendall(PING + b"\x80" + NO_MASK)
        assert session.recv(2) == PONG + b"\0", "a WebSocket lives on"
