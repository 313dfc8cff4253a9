"""A client that stops reading, on a real socket: it is given up in time, and what it can still read says why."""

import asyncio
import base64
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from contract.fake_host import EchoHost, serving
from contract.strict_events import strict_event

pytestmark = pytest.mark.contract

SECOND = base64.b64encode(bytes(8000)).decode()
"""Of µ-law."""


@asynccontextmanager
async def narrow(address: str) -> AsyncIterator[ClientConnection]:
    """A connection whose receive buffers are so small that the server notices soon."""
    host, _, port = address.partition(":")
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (host, int(port)))
    url = f"ws://{address}/v1/live/sessions"
    async with connect(url, sock=plain, compression=None, max_queue=1, proxy=None) as connected:
        yield connected


def test_a_reader_that_stays_away_is_closed() -> None:
    host = EchoHost()
    seconds = 0

    async def talk(address: str) -> None:
        nonlocal seconds
        async with narrow(address) as client:
            start = {"model": "echo", "audio": {"format": {"type": "audio/pcmu", "rate": 8000}}}
            await client.send(json.dumps({"type": "session.start", "session": start}))
            assert strict_event(await client.recv())["type"] == "session.started"
            while not host.left.is_set():
                with contextlib.suppress(ConnectionClosed):
                    await client.send(json.dumps({"type": "session.input_audio.append", "audio": SECOND}))
                    seconds += 1
                await asyncio.to_thread(host.left.wait, 0.02)
            events = []
            with contextlib.suppress(ConnectionClosed):
                while True:
                    events.append(strict_event(await client.recv()))
        assert client.close_code == 1013
        errors = [event["error"] for event in events if event["type"] == "error"]
        assert [error["code"] for error in errors] == ["output_backlog"]
        assert events[-1]["type"] == "error"
        [dropped_ms] = re.findall(r"(\d+) ms", errors[0]["message"])
        heard = sum(
            len(base64.b64decode(event["delta"]))
            for event in events
            if event["type"] == "session.output_audio.delta"
        )
        # The audio of the last append may come after the end that the append itself brings about.
        untold_ms = len(host.sessions[0].heard) // 8 - heard // 8 - int(dropped_ms)
        assert untold_ms in (0, 1000)
        assert host.sessions[0].gone == 1

    with serving(host, output_backlog_s=2.0, output_backlog_close_s=0.5) as address:
        asyncio.run(asyncio.wait_for(talk(address), 60))
    assert seconds > 2
