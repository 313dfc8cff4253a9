"""Incident: uvicorn before 0.54 takes `ws_ping_interval` and, with this implementation of WebSockets, does not ping.
A client whose network has gone kept its session, and load balancers cut those that were only listening."""

import socket

import pytest

from contract.fake_host import EchoHost, serving
from duologue_api import server

pytestmark = pytest.mark.contract

PING, CLOSE = b"\x89", b"\x88"
UPGRADE = (
    "GET /v1/live/sessions HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def test_a_silent_client_is_asked_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PING_S", 0.2)
    host = EchoHost()
    with serving(host) as address:
        name, _, port = address.rpartition(":")
        with socket.create_connection((name, int(port)), timeout=10) as peer:
            peer.sendall(UPGRADE.format(host=address).encode())
            got = b""
            while piece := peer.recv(4096):
                got += piece
        head, _, frames = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101")
        assert frames[:1] == PING
        assert frames[6:7] == CLOSE, "after the ping of four bytes"
        assert int.from_bytes(frames[8:10], "big") == 1011
        assert host.left.wait(5)
