"""Whom an open server lets in, in a real browser: its own pages, and no other page on this machine or elsewhere."""

import asyncio
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from browser import Page, browser, found
from contract.fake_host import EchoHost, serving
from deployment import deployment

pytestmark = pytest.mark.e2e

CONVERSE = """
(() => new Promise(resolve => {
    const socket = new WebSocket(%r, %r), seen = [];
    const start = {type: "session.start", session: {model: %r}};
    const append = {type: "session.input_audio.append", audio: btoa("\\0".repeat(3840))};
    socket.onopen = () => [start, append].forEach(event => socket.send(JSON.stringify(event)));
    socket.onmessage = ({data}) => {
        seen.push(JSON.parse(data).type);
        if (seen.at(-1) === "session.output_audio.delta") socket.send('{"type": "session.close"}');
    };
    socket.onclose = ({code}) => resolve([seen, code, socket.protocol]);
}))()
"""
"""A short session: types of the events that came, close code, subprotocol."""
SANDBOXED = """
(() => new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts";
    frame.srcdoc = `<script>
        const socket = new WebSocket(%r);
        socket.onclose = ({code}) => parent.postMessage([origin, code], "*");
    </script>`;
    onmessage = ({data}) => resolve(data);
    document.body.append(frame);
}))()
"""
"""A socket from a frame without an origin: what its page says of its origin, close code."""
TURNED = "--host-resolver-rules=MAP rebound.example 127.0.0.1"
REFUSED: list[Any] = [[], 1006, ""]


@pytest.fixture(scope="module")
def chromium() -> str:
    path = found()
    if path is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    return path


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A page at another port of this machine; yields its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


async def converse(tab: Page, live_url: str, model: str, *protocols: str) -> list[Any]:
    said: list[Any] = await tab.evaluate(CONVERSE % (live_url, list(protocols), model))
    return said


def test_an_open_server_talks_to_its_own_pages_only(chromium: str, elsewhere: str) -> None:
    async def look(url: str, live_url: str, keyed_url: str) -> None:
        async with browser(chromium, TURNED) as running:
            tab = await running.page()

            # A page of the server's own.  It has no other than its answers yet.
            await tab.goto(f"{url}/v1/models")
            seen, code, _ = await converse(tab, live_url, "parrot")
            assert (seen[0], seen[-1], code) == ("session.started", "session.closed", 1000)
            assert "session.output_audio.delta" in seen

            # A page of another port.  It reaches this machine: with a key, on a server that has one, it may come in.
            await tab.goto(elsewhere)
            assert await converse(tab, live_url, "parrot") == REFUSED
            assert await converse(tab, live_url, "parrot", "openai-live") == REFUSED
            key = ("openai-live", "openai-insecure-api-key.k")
            seen, code, protocol = await converse(tab, keyed_url, "echo", *key)
            assert (seen[0], seen[-1], code, protocol) == ("session.started", "session.closed", 1000, key[0])
            with pytest.raises(RuntimeError, match="Failed to fetch"):
                await tab.evaluate(f"fetch('{url}/v1/models')")

            # The same page in a frame that has no origin.
            sandboxed = await tab.evaluate(SANDBOXED % (live_url,))
            assert sandboxed == ["null", 1006]

            # A page whose name was turned to this machine: for the browser it is of the same origin as the server.
            turned = url.replace("127.0.0.1", "rebound.example")
            await tab.goto(f"{turned}/v1/models")
            assert await tab.evaluate("document.body.innerText") != ""
            assert await converse(tab, live_url.replace("127.0.0.1", "rebound.example"), "parrot") == REFUSED
            assert await tab.evaluate("fetch('/v1/models').then(answer => answer.status)") == 403

    with deployment() as served, serving(EchoHost(), keys=["k"]) as keyed:
        asyncio.run(look(served.url, served.live_url, f"ws://{keyed}/v1/live/sessions"))
