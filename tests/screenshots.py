"""Pictures of the talk page in a conversation with the pocket model: phone and desktop, light and dark.

`python tests/screenshots.py FOLDER` writes <device>-<scheme>.png.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from deployment import deployment
from talking_browser import asking, listener, start, stop

SIZES = {"phone": (390, 844, 2.0), "desktop": (1200, 750, 1.0)}
QUESTIONS = (
    ("Hello, who are you?", 7.0),
    ("What is seven plus five?", 4.5),
    ("Please repeat: the train to the coast leaves at nine in the morning.", 1.9),
    ("What day is it?", 30.0),
)
"""What the caller says, and for how many seconds then nothing.  The third answer is interrupted."""


async def pictures(url: str, folder: Path) -> None:
    for device, (width, height, scale) in SIZES.items():
        for dark in (False, True):
            with tempfile.TemporaryDirectory() as scratch:
                async with listener(asking(*QUESTIONS), Path(scratch)) as running:
                    tab = await running.page()
                    await tab.shows_as(width, height, dark=dark, scale=scale)
                    await start(tab, url)
                    await tab.until("document.querySelectorAll('.turn.user').length >= 4", 50)
                    await tab.until("document.body.dataset.state === 'speaking'")
                    await asyncio.sleep(0.8)
                    path = folder / f"{device}-{'dark' if dark else 'light'}.png"
                    path.write_bytes(await tab.picture())
                    print(path)
                    await stop(tab)


def main(folder: str = "build/screenshots") -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    with deployment(model="pocket") as served:
        asyncio.run(pictures(served.url, Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
