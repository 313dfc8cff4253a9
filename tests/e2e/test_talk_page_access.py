"""The talk page on a small screen, in both colour schemes, to a screen reader, and under its content security policy."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from browser import Page, browser
from contract.fake_host import EchoHost, serving
from talking_browser import chromium

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

PHONE, DESKTOP = (360, 740), (1280, 800)
CONTROLS = {
    "button", "textbox", "combobox", "link", "checkbox", "meter", "DisclosureTriangle", "log", "region", "form",
    "img", "image", "list", "complementary", "status", "alert",
}  # fmt: skip
NAMELESS = {"list", "status", "alert", "form"}
"""Roles that need no name of their own."""

CONTRASTS = """
(() => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = element => {
        for (let at = element; at; at = at.parentElement) {
            const [r, g, b, alpha = 1] = numbers(getComputedStyle(at).backgroundColor);
            if (alpha === 1) return [r, g, b];
        }
        return [255, 255, 255];
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement, words = walker.currentNode.textContent.trim();
        if (!words || !element.checkVisibility() || element.closest(".unseen, noscript, :disabled")) continue;
        const [light, dark] = [numbers(getComputedStyle(element).color), behind(element)]
            .map(luminance).sort((a, b) => b - a);
        found.push([(light + 0.05) / (dark + 0.05), words]);
    }
    return found.sort(([a], [b]) => a - b);
})()
"""
"""(contrast by WCAG 2, text) of every text that is shown, the worst first."""
SIZES = """
[...document.querySelectorAll("button, select, input, textarea, summary, a")]
    .filter(element => element.checkVisibility() && !element.matches(".skip"))
    .map(element => [element.id || element.className || element.textContent.trim(),
        Math.round(element.getBoundingClientRect().width), Math.round(element.getBoundingClientRect().height)])
"""
TOO_WIDE = """
[...document.querySelectorAll("body *")].filter(element => element.checkVisibility()
    && !element.closest(".unseen, .skip") && element.getBoundingClientRect().right > innerWidth + 1)
    .map(element => element.id || element.className || element.tagName)
"""
FILLED = """
(async () => {
    const {Transcript} = await import("/page/transcript.js");
    document.querySelector("#empty").hidden = true;
    const transcript = new Transcript(document.querySelector("#turns"), document.createElement("div"));
    const say = (side, delta, start_ms) => transcript.add(side, {delta, start_ms, end_ms: start_ms + 900});
    say("user", "What is seven plus five?", 1000);
    say("assistant", " Seven plus five is twelve, and thisisaverylongwordwithoutanyblankthatmustbebrokensomewhere.", 3000);
    for (const id of ["notice", "again", "key-field"]) document.querySelector("#" + id).hidden = false;
    document.querySelector("#notice-title").textContent = "The server is full";
    document.querySelector("#notice-text").textContent = "All its places are taken. Try again in a moment.";
    document.querySelector("#again").textContent = "Try again";
    for (const details of document.querySelectorAll("details")) details.open = true;
})()
"""
"""With everything shown at once that can be shown."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(EchoHost()) as address:
        yield f"http://{address}"


async def filled(tab: Page, url: str, size: tuple[int, int], *, dark: bool = False) -> None:
    await tab.shows_as(*size, dark=dark)
    await tab.goto(f"{url}/")
    await tab.until("document.querySelector('#model').value")
    await tab.evaluate(FILLED)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_everything_can_be_read_and_hit(url: str, size: tuple[int, int], dark: bool) -> None:
    async def look() -> None:
        async with browser(chromium()) as running:
            tab = await running.page()
            await filled(tab, url, size, dark=dark)
            contrasts: list[Any] = await tab.evaluate(CONTRASTS)
            assert len(contrasts) > 25
            assert [each for each in contrasts if each[0] < 4.5] == []  # WCAG 2.2, 1.4.3
            small = [each for each in await tab.evaluate(SIZES) if min(each[1:]) < 24]  # 2.5.8
            assert small == []
            assert await tab.evaluate(TOO_WIDE) == []
            assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            [talk] = [each for each in await tab.evaluate(SIZES) if each[0] == "talk"]
            assert min(talk[1:]) >= 64
            assert tab.complaints == []

    asyncio.run(look())


def test_everything_has_a_name(url: str) -> None:
    async def look() -> None:
        async with browser(chromium()) as running:
            tab = await running.page()
            await filled(tab, url, DESKTOP)
            await tab.call("Accessibility.enable")
            nodes = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
            seen = [
                (node["role"]["value"], node.get("name", {}).get("value", ""))
                for node in nodes
                if not node["ignored"] and node["role"]["value"] in CONTROLS
            ]
            assert {role for role, _ in seen} >= {"button", "textbox", "combobox", "meter", "log", "status"}
            assert [role for role, name in seen if not name and role not in NAMELESS] == []
            assert ("button", "Start talking") in seen
            assert ("button", "How this is measured") in seen
            assert {name for role, name in seen if role == "combobox"} == {"Model", "Voice", "Audio"}
            assert {name for role, name in seen if role == "meter"} == {"You", "Model"}
            headings = [node["name"]["value"] for node in nodes if node["role"]["value"] == "heading"]
            assert headings[0] == "Duologue"
            assert await tab.evaluate("[document.documentElement.lang, document.title]") == [
                "en",
                "Talk · Duologue",
            ]
            ids: list[str] = await tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
            assert len(set(ids)) == len(ids)

    asyncio.run(look())


def test_focus_is_seen_and_motion_can_be_had_without(url: str) -> None:
    async def look() -> None:
        async with browser(chromium()) as running:
            tab = await running.page()
            await tab.shows_as(*DESKTOP, still=True)
            await tab.goto(f"{url}/")
            await tab.until("document.querySelector('#model').value")
            unseen = []
            for _ in range(12):
                await tab.press("Tab", 9)
                style = "getComputedStyle(document.activeElement)"
                where, line, width = await tab.evaluate(
                    f"[document.activeElement.outerHTML.slice(0, 60), {style}.outlineStyle, {style}.outlineWidth]"
                )
                # Behind the last control it is the browser's own turn.
                if not where.startswith("<body") and (line == "none" or width == "0px"):
                    unseen.append(where)
            assert unseen == []
            running_now = "document.getAnimations().filter(each => each instanceof CSSAnimation).length"
            for state in ("listening", "speaking"):
                await tab.evaluate(
                    f"Object.assign(document.body.dataset, {{phase: 'live', state: '{state}'}}) && null"
                )
                assert await tab.evaluate(running_now) == 0
            await tab.shows_as(*DESKTOP, still=False)
            await tab.evaluate("document.body.dataset.state = 'listening'")
            assert await tab.evaluate(running_now) == 1

    asyncio.run(look())


def test_nothing_comes_from_elsewhere_and_nothing_foreign_runs(url: str) -> None:
    async def look() -> None:
        async with browser(chromium()) as running:
            tab = await running.page()
            await tab.goto(f"{url}/")
            await tab.until("document.querySelector('#model').value")
            loaded: list[str] = await tab.evaluate(
                "performance.getEntriesByType('resource').map(entry => entry.name)"
            )
            assert len(loaded) > 10
            assert [each for each in loaded if not each.startswith(f"{url}/")] == []
            assert tab.complaints == []

            await tab.evaluate(
                """
                (() => {
                    const script = document.createElement("script");
                    script.textContent = "window.ran = true";
                    document.head.append(script);
                    const image = document.createElement("img");
                    image.src = "http://192.0.2.1/x.png";
                    document.body.append(image);
                    document.body.insertAdjacentHTML("beforeend", "<p style='color: red' onclick='window.ran = true'>");
                    document.body.lastChild.click();
                })()
                """
            )
            assert await tab.evaluate("window.ran ?? false") is False
            assert (
                await tab.evaluate("fetch('http://192.0.2.1/').then(() => 'came', () => 'refused')")
                == "refused"
            )
            refused = " ".join(tab.complaints)
            assert all(
                directive in refused for directive in ("script-src", "img-src", "style-src", "connect-src")
            )

    asyncio.run(look())
