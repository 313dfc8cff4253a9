"""What the talk page says when something is wrong, in a real browser: in plain words, and with a way on."""

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import Browser, Page, browser
from contract.fake_host import EchoHost, serving
from deployment import deployment
from duologue.client import LiveClient
from talking_browser import ALLOWED, FAKE_DEVICE, PHASE, RATE, chromium, listener, notice, start, stop, text

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SILENCE = np.zeros(RATE, np.int16)
KEY, WRONG = "right-key-5d1e", "wrong-key-77c0"


async def opened(running: Browser, url: str) -> Page:
    tab = await running.page()
    await tab.goto(f"{url}/")
    return tab


async def type_key(tab: Page, key: str) -> None:
    await tab.until("!document.querySelector('#key-field').hidden")
    await tab.evaluate(f"document.querySelector('#key').value = {key!r}")
    await tab.click("#key-field button")


def test_no_microphone_or_none_allowed() -> None:
    async def scenario(url: str) -> None:
        async with browser(chromium(), FAKE_DEVICE) as running:
            tab = await opened(running, url)
            await tab.until("document.querySelector('#model').value")
            microphone = {"permission": {"name": "microphone"}, "origin": url}
            await running.call("Browser.setPermission", setting="denied", **microphone)
            await tab.click("#talk")
            assert await notice(tab) == "The microphone is not allowed"
            assert await tab.evaluate(PHASE) == "idle"
            assert await text(tab, "#talk-label") == "Start talking"

            await running.call("Browser.setPermission", setting="granted", **microphone)
            await tab.click("#again")
            await tab.until(f"{PHASE} === 'live'")
            assert await text(tab, "#notice") == ""
            await stop(tab)
        async with browser(chromium(), ALLOWED) as running:
            tab = await opened(running, url)
            # As on a machine that has none; Chromium's fake device stands in for whatever this one has.
            await tab.evaluate(
                "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotFoundError'); }"
            )
            await tab.until("document.querySelector('#model').value")
            await tab.click("#talk")
            assert await notice(tab) == "There is no microphone"

    with serving(EchoHost()) as address:
        asyncio.run(scenario(f"http://{address}"))


def test_who_changes_their_mind_while_the_browser_asks_is_not_heard() -> None:
    """Once the button did nothing then, and the microphone was opened all the same."""
    granted = """
        (ask => {
            window.streams = [];
            navigator.mediaDevices.getUserMedia = async wanted => {
                await new Promise(answer => { window.allow = answer; });
                const stream = await ask(wanted);
                window.streams.push(stream);
                return stream;
            };
        })(navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices))
    """
    host = EchoHost()

    async def scenario(url: str) -> None:
        async with browser(chromium(), FAKE_DEVICE, ALLOWED) as running:
            tab = await opened(running, url)
            await tab.until("document.querySelector('#model').value")
            await tab.evaluate(granted)
            await tab.click("#talk")
            await tab.until("Boolean(window.allow)")
            await tab.click("#talk")
            assert await tab.evaluate(PHASE) == "idle"
            await tab.evaluate("window.allow()")
            tracks = "window.streams.flatMap(stream => stream.getTracks().map(track => track.readyState))"
            await tab.until(f"String({tracks}) === 'ended'")
            assert await tab.evaluate(PHASE) == "idle"
            assert await text(tab, "#notice") == ""
            assert tab.complaints == []

            await tab.evaluate("window.allow = null")
            await tab.click("#talk")
            await tab.until("Boolean(window.allow)")
            await tab.evaluate("window.allow()")
            await tab.until(f"{PHASE} === 'live'")
            await stop(tab)

    with serving(host) as address:
        asyncio.run(scenario(f"http://{address}"))
    assert len(host.sessions) == 1


def test_a_page_that_is_not_secure_is_told_how_it_would_be() -> None:
    async def scenario(url: str) -> None:
        rules = "--host-resolver-rules=MAP talk.example 127.0.0.1"
        async with browser(chromium(), FAKE_DEVICE, ALLOWED, rules) as running:
            tab = await opened(running, url.replace("127.0.0.1", "talk.example"))
            await type_key(tab, KEY)
            await tab.until("document.querySelector('#model').value === 'echo'")
            await tab.click("#talk")
            assert await notice(tab) == "The browser gives no microphone here"
            assert "HTTPS" in await text(tab, "#notice-text")

    with serving(EchoHost(), keys=[KEY]) as address:
        asyncio.run(scenario(f"http://{address}"))


def test_keys(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    host = EchoHost()

    async def scenario(url: str) -> None:
        async with listener(SILENCE, tmp_path) as running:
            tab = await opened(running, url)
            assert await notice(tab) == "This server asks for a key"
            assert await tab.evaluate("document.activeElement.id") == "key"
            # Chromium's console tells every 401, and nothing else is wrong.
            assert [said for said in tab.complaints if "401" not in said] == []

            await type_key(tab, WRONG)
            await tab.until("document.querySelector('#notice-title').textContent.includes('does not know')")
            await type_key(tab, "two words")
            await tab.until("document.querySelector('#notice-title').textContent.includes('can\\'t send')")
            assert host.sessions == []

            await type_key(tab, KEY)
            await tab.until("document.querySelector('#notice').hidden")
            await tab.click("#talk")
            await tab.until(f"{PHASE} === 'live'")
            await tab.until("document.querySelector('.turn.user .words')?.textContent.startsWith('inin')")
            await stop(tab)
            # Nothing of it stays in the browser.
            kept = "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
            assert KEY not in await tab.evaluate(kept)

    with serving(host, keys=[KEY]) as address:
        asyncio.run(scenario(f"http://{address}"))
    assert len(host.sessions) == 1
    said = "".join(capfd.readouterr())
    assert KEY not in said
    assert WRONG not in said


def test_an_open_server_asks_for_no_key() -> None:
    async def scenario(url: str) -> None:
        async with browser(chromium()) as running:
            tab = await opened(running, url)
            await tab.until("document.querySelector('#model').value === 'echo'")
            assert await tab.evaluate("document.querySelector('#key-field').hidden")
            options = "[...document.querySelectorAll('#model option')].map(o => [o.textContent, o.disabled])"
            assert await tab.evaluate(options) == [["echo", False], ["mute (not ready)", True]]
            voices = "[...document.querySelectorAll('#voice option')].map(o => o.value)"
            assert await tab.evaluate(voices) == ["robin", "wren"]
            assert tab.complaints == []

    with serving(EchoHost()) as address:
        asyncio.run(scenario(f"http://{address}"))


def test_a_full_server_and_then_a_place(tmp_path: Path) -> None:
    async def scenario(url: str) -> None:
        async with listener(SILENCE, tmp_path) as running:
            tab = await opened(running, url)
            await tab.until("document.querySelector('#model').value")
            async with LiveClient.connect(url, model="parrot"):
                await tab.click("#talk")
                assert await notice(tab) == "The server is full"
                assert await tab.evaluate(PHASE) == "idle"
            await tab.click("#again")
            await tab.until(f"{PHASE} === 'live'")
            await stop(tab)

    with deployment(env={"DUO_PLACES": "1"}) as served:
        asyncio.run(scenario(served.url))


def test_a_lost_connection_and_a_new_one(tmp_path: Path) -> None:
    async def scenario(served: Any) -> None:
        async with listener(SILENCE, tmp_path) as running:
            tab = await running.page()
            await start(tab, served.url)
            os.kill(served.api_pids[0], signal.SIGKILL)
            assert await notice(tab) == "The connection was lost"
            assert await tab.evaluate(PHASE) == "idle"
            assert await text(tab, "#again") == "Reconnect"
            # `up` starts another pod at the same address.
            await tab.until("fetch('readyz').then(answer => answer.ok, () => false)")
            await tab.click("#again")
            await tab.until(f"{PHASE} === 'live'")
            await stop(tab)

    with deployment() as served:
        asyncio.run(scenario(served))


def test_a_server_that_is_gone() -> None:
    async def scenario() -> None:
        async with browser(chromium(), FAKE_DEVICE, ALLOWED) as running:
            with serving(EchoHost()) as address:
                tab = await opened(running, f"http://{address}")
                await tab.until("document.querySelector('#model').value")
            host, port = address.split(":")
            with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port))):
                pass
            await tab.click("#talk")
            assert await notice(tab) == "The server can't be reached"
            assert await tab.evaluate(PHASE) == "idle"

    asyncio.run(scenario())


def test_a_server_that_says_no_more_is_noticed() -> None:
    """A network that swallows everything closes no socket: the page has to look at the clock itself."""
    script = """
        (async () => {
            const {LiveClient} = await import("/page/live.js");
            const {FORMATS} = await import("/page/formats.js");
            let now = 0;
            performance.now = () => now;
            const said = [], sent = [];
            const socket = function () { return Object.assign(this, {
                bufferedAmount: 0, send: frame => sent.push(JSON.parse(frame)), close() {} }); };
            const handlers = Object.fromEntries(["started", "audio", "event", "quiet", "ended"].map(
                name => [name, given => said.push([name, given?.how ?? given])]));
            const client = new LiveClient("ws://x", {session: {}, format: FORMATS[0], handlers, socket});
            const hear = event => client.socket.onmessage({data: JSON.stringify(event)});
            const pass = seconds => { now += 1000 * seconds; return new Promise(done => setTimeout(done, 1100)); };
            client.append(new Uint8Array(2));
            client.socket.onopen();
            client.append(new Uint8Array(2));
            hear({type: "session.started", session: {id: "s"}});
            const told = [client.append(new Uint8Array(2)), client.append(new Uint8Array(0))];
            client.socket.bufferedAmount = 24000 * 2 * 5 * 4 / 3 + 1;
            told.push(client.append(new Uint8Array(2)));
            await pass(5);
            hear({type: "info", code: "c", message: "m"});
            await pass(41);
            return [said.filter(([name]) => name !== "event").map(([name, value]) => [name, value.id ?? value]),
                sent.map(event => event.type), told, client.unsent];
        })()
    """

    async def scenario(url: str) -> None:
        async with browser(chromium()) as running:
            tab = await opened(running, url)
            said, sent, told, unsent = await tab.evaluate(script)
            assert said == [
                ["started", "s"],
                ["quiet", True],
                ["quiet", False],
                ["quiet", True],
                ["ended", "lost"],
            ]
            assert sent == ["session.start", "session.input_audio.append"]
            assert told == [True, False, False]
            assert unsent == 2

    with serving(EchoHost()) as address:
        asyncio.run(scenario(f"http://{address}"))
