"""A headless Chromium, driven over its DevTools protocol (https://chromedevtools.github.io/devtools-protocol)."""

import asyncio
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOADED = """
new Promise(resolve => document.readyState === "complete" ? resolve() : addEventListener("load", resolve))
    .then(() => null)
"""
GIVE_UP_S = 60.0


def found() -> str | None:
    """Where a Chromium is."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """A tab."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser, self._session = browser, session

    async def goto(self, url: str) -> None:
        """Returns when the document is there, whatever its status.  Raises `RuntimeError` when there is none."""
        went = await self._call("Page.navigate", url=url)
        if "errorText" in went:
            raise RuntimeError(f"{url}: {went['errorText']}")
        await self.evaluate(LOADED)

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise.  Raises `RuntimeError`."""
        said = await self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in said:
            raise RuntimeError(said["exceptionDetails"]["exception"]["description"])
        return said["result"].get("value")

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._browser.call(method, session=self._session, **params)


class Browser:
    """A running Chromium, spoken to by one task at a time."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)

    async def page(self) -> Page:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        return Page(self, attached["sessionId"])

    async def call(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Raises `RuntimeError` for a call that the browser refuses."""
        call = {"id": next(self._ids), "method": method, "params": params}
        await self._socket.send(json.dumps(call if session is None else {**call, "sessionId": session}))
        while (said := json.loads(await self._socket.recv())).get("id") != call["id"]:
            pass  # events
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']['message']}")
        result: dict[str, Any] = said["result"]
        return result


@asynccontextmanager
async def browser(path: str, *flags: str) -> AsyncIterator[Browser]:
    """The Chromium at `path`, with a profile of its own."""
    # Its sandbox refuses to run as root.
    rooted = ("--no-sandbox",) if os.getuid() == 0 else ()
    with tempfile.TemporaryDirectory(prefix="duologue-chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            path, *FLAGS, *rooted, f"--user-data-dir={profile}", *flags, "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            async with asyncio.timeout(GIVE_UP_S):
                said = b""
                while not said.startswith(b"DevTools listening on "):
                    said = await process.stderr.readline()
                    assert said, "Chromium ended"
                url = said.decode().split()[-1]
                async with connect(url, max_size=None, compression=None, proxy=None) as socket:
                    opened = Browser(socket)
                    yield opened
                    await opened.call("Browser.close")
                    await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
