"""A headless Chromium at the talk page, with a recording for a microphone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from browser import Browser, Page, browser, found
from duologue.audio.wav import write_wav
from duologue.testing.spoken import spoken

FAKE_DEVICE = "--use-fake-device-for-media-stream"
ALLOWED = "--use-fake-ui-for-media-stream"
"""Nobody is asked whether the page may use the microphone."""
RATE = 48_000
PHASE = "document.body.dataset.phase"


def chromium() -> str:
    """Where it is; skips the test where there is none."""
    path = found()
    if path is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    return path


@asynccontextmanager
async def listener(
    pcm16: npt.NDArray[np.int16], folder: Path, *flags: str, rate: int = RATE
) -> AsyncIterator[Browser]:
    """Chromium, whose microphone hears `pcm16` from when it is first opened on, and silence from its end on."""
    recording = folder / "microphone.wav"
    write_wav(recording, pcm16, rate)
    heard = f"--use-file-for-fake-audio-capture={recording}%noloop"
    async with browser(chromium(), FAKE_DEVICE, ALLOWED, heard, *flags) as running:
        yield running


def asking(*questions: tuple[str, float], lead_s: float = 1.5) -> npt.NDArray[np.int16]:
    """What a caller says: (text, seconds of silence after it), one after the other; int16 at `RATE`.  `lead_s` of silence
    come first: meanwhile the session starts."""
    pieces = [np.zeros(round(lead_s * RATE), np.int16)]
    for words, pause_s in questions:
        pieces += [spoken(words, RATE), np.zeros(round(pause_s * RATE), np.int16)]
    return np.concatenate(pieces)


async def text(tab: Page, selector: str) -> str:
    """What an element shows; empty where it is hidden or there is none."""
    shown = "element?.checkVisibility() ? element.innerText : ''"
    found = await tab.evaluate(f"(element => {shown})(document.querySelector({selector!r}))")
    return str(found).strip()


async def start(tab: Page, url: str) -> None:
    """Opens the page and presses the microphone; returns when the session has started."""
    await tab.goto(f"{url}/")
    await tab.until("document.querySelector('#model').value")
    await tab.click("#talk")
    await tab.until(f"{PHASE} === 'live'")


async def stop(tab: Page) -> None:
    await tab.click("#talk")
    await tab.until(f"{PHASE} === 'idle'")


async def notice(tab: Page) -> str:
    """The title of the problem that is told, once there is one."""
    await tab.until("!document.querySelector('#notice').hidden")
    return await text(tab, "#notice-title")
