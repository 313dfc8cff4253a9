"""The talk page in a real browser, whose microphone hears a recording, at a real deployment: whole conversations."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import Page
from deployment import Deployment, deployment
from duologue.audio.formats import FORMATS, Format
from duologue.testing.signals import bursts
from talking_browser import PHASE, RATE, listener, start, stop, text

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

LEAD_S = 1.5
"""Before the first sound; the session has started by then."""
MODEL_LEVEL = "Number(getComputedStyle(document.querySelector('#model-level')).getPropertyValue('--level'))"
EVERY_FORMAT = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


@pytest.fixture(scope="module")
def served() -> Iterator[Deployment]:
    with deployment(seed=3) as served:
        yield served


def spoken(turns: str) -> list[int]:
    """The numbers of the units that the parrot says, in order."""
    return [int(word[1:]) for word in turns.split() if word.startswith("u") and word[1:].isdigit()]


async def choose(tab: Page, select: str, value: str) -> None:
    await tab.evaluate(
        f"(e => {{ e.value = {value!r}; e.dispatchEvent(new Event('change')); }})"
        f"(document.querySelector({select!r}))"
    )


async def log(tab: Page) -> list[str]:
    """The event log, the oldest first, without times."""
    lines: list[str] = await tab.evaluate(
        "[...document.querySelectorAll('#log li')].map(li => li.lastChild.textContent).reverse()"
    )
    return lines


@EVERY_FORMAT
def test_a_whole_conversation(served: Deployment, form: Format, tmp_path: Path) -> None:
    heard = bursts([(LEAD_S, False), (1.2, True), (60, False)], 5, RATE)

    async def scenario() -> None:
        async with listener(heard, tmp_path) as running:
            tab = await running.page()
            await tab.goto(f"{served.url}/")
            await tab.until("document.querySelector('#model').value === 'parrot'")
            await choose(tab, "#format", form.name)
            await tab.click("#talk")
            await tab.until(f"{PHASE} === 'live'")
            assert (await text(tab, "#session-line")).startswith("parrot · live_")

            await tab.until("document.body.dataset.state === 'hearing'")
            await tab.until("document.body.dataset.state === 'speaking'")
            assert await text(tab, "#state") == "Speaking"
            await tab.until(f"{MODEL_LEVEL} > 0.5")
            await tab.until("document.body.dataset.state === 'listening'")
            turns = await text(tab, "#turns")
            assert await text(tab, "#first-audio") != "–"

            await stop(tab)
            assert (started := (await log(tab))[0]).startswith("session.started live_"), started
            assert any(line.startswith("session.closed: close_requested") for line in await log(tab))
            assert await text(tab, "#notice") == ""
            assert tab.complaints == []
            # 1.2 s are 15 units; hangover, the microphone's own processing and the part of a unit at both ends.
            units = spoken(turns)
            assert 13 <= len(units) <= 19, turns
            assert units == list(range(units[0], units[0] + len(units)))
            assert "Model 0:" in turns

    asyncio.run(scenario())


def test_what_is_muted_is_not_heard_and_stays_in_the_browser(served: Deployment, tmp_path: Path) -> None:
    loud = bursts([(LEAD_S, False), (60, True)], 5, RATE)
    sent = """
        window.sent = [];
        const send = WebSocket.prototype.send;
        WebSocket.prototype.send = function (frame) {
            const event = JSON.parse(frame), audio = atob(event.audio ?? "");
            window.sent.push([event.type, [...audio].some(letter => letter !== "\\0")]);
            if (window.sent.length > 500) window.sent.shift();
            return send.call(this, frame);
        };
    """

    async def scenario() -> None:
        async with listener(loud, tmp_path) as running:
            tab = await running.page()
            await tab.call("Page.addScriptToEvaluateOnNewDocument", source=sent)
            await start(tab, served.url)
            await tab.until("document.body.dataset.state === 'hearing'")
            await tab.click("#mute")
            assert await text(tab, "#mute") == "Muted"
            await tab.until(
                "document.querySelector('#log').textContent.includes('session.input_audio.muted')"
            )
            await tab.evaluate("window.sent = []")
            # The clock goes on, in silence, so that the parrot answers what it had heard.
            await tab.until("window.sent.length > 100")
            assert await tab.evaluate(
                "window.sent.every(([type, sound]) => type.endsWith('append') && !sound)"
            )
            await tab.until("document.querySelectorAll('.turn.assistant').length === 1")

            await tab.click("#mute")
            await tab.until("window.sent.some(([type]) => type === 'session.input_audio.unmute')")
            await tab.until("window.sent.at(-1)[1]")
            await stop(tab)
            assert tab.complaints == []

    asyncio.run(scenario())


def test_cutting_in_is_measured(served: Deployment, tmp_path: Path) -> None:
    parts = [(LEAD_S, False), (4.0, True), (2.0, False), (1.0, True), (60, False)]

    async def scenario() -> None:
        async with listener(bursts(parts, 5, RATE), tmp_path) as running:
            tab = await running.page()
            await start(tab, served.url)
            await tab.until("document.body.dataset.state === 'both'")
            await tab.until("document.querySelector('#interruption').textContent !== '–'")
            measured = (await text(tab, "#interruption")).split()
            # The parrot waits for three units of 80 ms; that is not to be had faster.
            assert int(measured[0]) >= 200
            assert measured[1] == "ms"
            await tab.until("document.body.dataset.state === 'speaking'")
            # It does not say all of the 4 s.
            turns: list[Any] = await tab.evaluate(
                "[...document.querySelectorAll('.turn .words')].map(p => p.textContent)"
            )
            assert 5 < len(spoken(turns[0])) < 45, turns
            await stop(tab)

    asyncio.run(scenario())


def test_by_keyboard_alone(served: Deployment, tmp_path: Path) -> None:
    heard = bursts([(LEAD_S, False), (1, True), (60, False)], 5, RATE)
    focused = "document.activeElement.id"

    async def tab_to(tab: Page, wanted: str) -> None:
        for _ in range(30):
            await tab.press("Tab", 9)
            if await tab.evaluate(focused) == wanted:
                return
        raise AssertionError(f"no way to {wanted} by Tab")

    async def scenario() -> None:
        async with listener(heard, tmp_path) as running:
            tab = await running.page()
            await tab.goto(f"{served.url}/")
            await tab.until("document.querySelector('#model').value")
            # The first stop is a link that leads past all settings.
            await tab.press("Tab", 9)
            assert await text(tab, ":focus") == "To the microphone"
            await tab.press("Enter", 13, "\r")
            assert await tab.evaluate(focused) == "talk"
            await tab.press("Enter", 13, "\r")
            await tab.until(f"{PHASE} === 'live'")
            await tab_to(tab, "mute")
            await tab.press(" ", 32, " ")
            assert await tab.evaluate("document.querySelector('#mute').ariaPressed") == "true"
            await tab_to(tab, "talk")
            await tab.press("Enter", 13, "\r")
            await tab.until(f"{PHASE} === 'idle'")
            assert tab.complaints == []

    asyncio.run(scenario())


def test_the_conversation_stays_where_another_one_begins(served: Deployment, tmp_path: Path) -> None:
    heard = bursts([(LEAD_S, False), *[(1.0, True), (2.5, False)] * 12], 5, RATE)

    async def scenario() -> None:
        async with listener(heard, tmp_path) as running:
            tab = await running.page()
            await start(tab, served.url)
            # Screen readers are told whole turns, one by one, and not every piece.
            await tab.until("document.querySelectorAll('#spoken p').length === 1")
            said = (await tab.evaluate("document.querySelector('#spoken p').textContent")).split()
            assert said[0] == "Model:"
            assert len(said) > 8
            await stop(tab)
            await tab.click("#talk")
            await tab.until("document.querySelectorAll('.turn').length === 2")
            rows = "[...document.querySelectorAll('#turns > li')].map(li => li.className)"
            assert await tab.evaluate(rows) == ["turn assistant", "rule", "turn assistant"]
            await stop(tab)
            assert tab.complaints == []

    asyncio.run(scenario())
