"""A headless Chromium, driven over its DevTools protocol (https://chromedevtools.github.io/devtools-protocol)."""

import asyncio
import base64
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
    "--window-size=1280,900",
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
UNTIL_S = 20.0


def found() -> str | None:
    """Where a Chromium is."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """A tab."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser, self._session = browser, session
        self.complaints: list[str] = []
        """What the console showed as an error, a refusal by the content security policy included.  Up to date after
        each call."""

    async def goto(self, url: str) -> None:
        """Returns when the document is there, whatever its status.  Raises `RuntimeError` when there is none."""
        went = await self.call("Page.navigate", url=url)
        if "errorText" in went:
            raise RuntimeError(f"{url}: {went['errorText']}")
        await self.evaluate(LOADED)

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise.  Raises `RuntimeError`."""
        said = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in said:
            raise RuntimeError(said["exceptionDetails"]["exception"]["description"])
        return said["result"].get("value")

    async def until(self, expression: str, timeout_s: float = UNTIL_S) -> Any:
        """The value of `expression` once it is truthy.  Raises `TimeoutError`, saying what it was last."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while not (value := await self.evaluate(expression)):
            if loop.time() > until:
                raise TimeoutError(f"{expression} is still {value!r}; {self.complaints}")
            await asyncio.sleep(0.05)
        return value

    async def click(self, selector: str) -> None:
        """As a person would: on what is there at the middle of the element."""
        x, y = await self.evaluate(
            f"""(() => {{
                const element = document.querySelector({json.dumps(selector)});
                element.scrollIntoView({{block: "nearest"}});
                const {{left, top, width, height}} = element.getBoundingClientRect();
                return [left + width / 2, top + height / 2];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def press(self, key: str, code: int, text: str = "") -> None:
        """A key, by its name and its Windows key code."""
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    async def shows_as(
        self, width: int, height: int, *, dark: bool = False, still: bool = False, scale: float = 1
    ) -> None:
        """A window of that size, in CSS pixels, and what the user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        preferred = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        features = [{"name": name, "value": value} for name, value in preferred.items()]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def picture(self) -> bytes:
        """PNG of what the window shows."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    def on_event(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                said = [str(each.get("value", each.get("description"))) for each in params["args"]]
                self.complaints.append(" ".join(said))
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.complaints.append(details.get("exception", details).get("description", details["text"]))
            case "Audits.issueAdded" if "Policy" in params["issue"]["code"]:
                self.complaints.append(json.dumps(params["issue"]["details"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Any call of the protocol.  Raises `RuntimeError` where it is refused."""
        return await self._browser.call(method, session=self._session, **params)


class Browser:
    """A running Chromium, spoken to by one task at a time."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._pages: dict[str, Page] = {}

    async def page(self) -> Page:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        for domain in ("Log", "Runtime", "Audits", "Page"):
            await page.call(f"{domain}.enable")
        return page

    async def call(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Raises `RuntimeError` for a call that the browser refuses."""
        call = {"id": next(self._ids), "method": method, "params": params}
        await self._socket.send(json.dumps(call if session is None else {**call, "sessionId": session}))
        while (said := json.loads(await self._socket.recv())).get("id") != call["id"]:
            if (page := self._pages.get(said.get("sessionId", ""))) and "method" in said:
                page.on_event(said["method"], said["params"])
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
