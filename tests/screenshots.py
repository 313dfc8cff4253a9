"""Pictures of the talk page in a conversation: phone and desktop, light and dark.

`python tests/screenshots.py FOLDER [MODEL [RECORDING.wav]]` writes <device>-<scheme>.png.  The recording is what the
microphone hears; without one, it is examples/hello.wav.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np

from browser import Page
from deployment import deployment
from duologue.audio.wav import read_wav
from talking_browser import PHASE, listener, start, stop

HELLO = Path(__file__).resolve().parents[1] / "examples/hello.wav"
SIZES = {"phone": (390, 844, 2.0), "desktop": (1200, 750, 1.0)}
LEAD_S = 1.5


async def pictures(url: str, folder: Path, recording: Path, talk_s: float) -> None:
    heard = read_wav(recording)
    lead = np.zeros(round(LEAD_S * heard.rate), np.int16)
    pcm16 = np.concatenate([lead, np.rint(32767 * heard.samples).astype(np.int16)])
    for device, (width, height, scale) in SIZES.items():
        for dark in (False, True):
            with tempfile.TemporaryDirectory() as scratch:
                async with listener(pcm16, Path(scratch), rate=heard.rate) as running:
                    tab = await running.page()
                    await tab.shows_as(width, height, dark=dark, scale=scale)
                    await start(tab, url)
                    await _talked(tab, talk_s + heard.seconds)
                    path = folder / f"{device}-{'dark' if dark else 'light'}.png"
                    path.write_bytes(await tab.picture())
                    print(path)
                    await stop(tab)


async def _talked(tab: Page, talk_s: float) -> None:
    """Until the conversation has gone on for so long and the model speaks, or was to."""
    await asyncio.sleep(LEAD_S + talk_s)
    try:
        await tab.until("document.body.dataset.state === 'speaking'", 3)
        await asyncio.sleep(0.3)
    except TimeoutError:
        assert await tab.evaluate(PHASE) == "live"


def main(folder: str, model: str = "parrot", recording: str = str(HELLO), talk_s: str = "1") -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    with deployment(arguments=["--model", model] if model != "parrot" else []) as served:
        asyncio.run(pictures(served.url, Path(folder), Path(recording), float(talk_s)))


if __name__ == "__main__":
    main(*sys.argv[1:])
