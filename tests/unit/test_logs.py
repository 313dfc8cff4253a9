"""What must never be in a log: audio, text and keys, at whatever level, also when things go wrong (openai-python#3846: the
debug log printed raw audio and transcripts)."""

import asyncio
import base64
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import structlog
from starlette.types import ASGIApp, Message, Scope

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.cli.logs import configure, report_bug
from duologue.errors import place_of
from duologue.inprocess import InProcess
from duologue.stage.model import SessionError
from duologue.virtual import run_virtual
from duologue_api.app import LIVE, create_app

pytestmark = pytest.mark.unit

KEY, WRONG_KEY = "duo-key-4f1c9a7e", "wrong-key-8b2d6c30"
TEXT = "my card number is 4929"
PCM = np.full(1920, 12_345, "<i2").tobytes()
FORBIDDEN = {
    "the key": KEY,
    "a wrong key": WRONG_KEY,
    "text": TEXT,
    "audio": base64.b64encode(PCM[:24]).decode(),
    "audio in hexadecimal": PCM[:12].hex(),
    "audio as Python shows it": repr(PCM[:12])[2:-1],
    "transcript": " u0 u1",
}


@pytest.fixture
def logged(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Everything logged so far at debug level, as the services log."""
    before = structlog.get_config()
    configure("debug", "json")

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    yield lines
    structlog.configure(**before)


def assert_discreet(lines: list[dict[str, Any]]) -> None:
    said = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    assert [what for what, secret in FORBIDDEN.items() if secret in said] == []


class Peer:
    """A client of the ASGI app, without a socket."""

    def __init__(self, app: ASGIApp, key: str = KEY, *, browser: bool = False) -> None:
        self._app = app
        self._browser = browser
        """Shows its key as a browser must: in a subprotocol."""
        self.chosen: str | None = None
        self._inbox: asyncio.Queue[Message] = asyncio.Queue(1000)
        self._inbox.put_nowait({"type": "websocket.connect"})
        self._key = key
        self.events: list[dict[str, Any]] = []
        self.closed = asyncio.Event()
        self.moved = asyncio.Event()

    async def send(self, message: Message) -> None:
        if message["type"] == "websocket.send":
            self.events.append(json.loads(message["text"]))
        elif message["type"] == "websocket.accept":
            self.chosen = message.get("subprotocol")
        elif message["type"] in ("websocket.close", "websocket.http.response.start"):
            self.closed.set()
        self.moved.set()

    async def serve(self) -> None:
        protocols = ["openai-live", f"openai-insecure-api-key.{self._key}"] if self._browser else []
        shown = (
            ("sec-websocket-protocol", ", ".join(protocols))
            if protocols
            else ("authorization", f"Bearer {self._key}")
        )
        headers = [shown, ("host", "here")]
        scope: Scope = {
            "type": "websocket",
            "path": LIVE,
            "headers": [(name.encode(), value.encode()) for name, value in headers],
            "query_string": f"text={TEXT}".encode(),
            "subprotocols": protocols,
            "extensions": {"websocket.http.response": {}},
        }
        await self._app(scope, self._inbox.get, self.send)

    def say(self, text: str | dict[str, Any]) -> None:
        text = text if isinstance(text, str) else json.dumps(text)
        self._inbox.put_nowait({"type": "websocket.receive", "text": text})

    def say_bytes(self, data: bytes) -> None:
        self._inbox.put_nowait({"type": "websocket.receive", "bytes": data})

    def append(self, pcm: bytes = PCM) -> None:
        self.say({"type": "session.input_audio.append", "audio": base64.b64encode(pcm).decode()})

    async def until(self, type_: str) -> dict[str, Any]:
        while not (found := [event for event in self.events if event["type"] == type_]):
            self.moved.clear()
            await self.moved.wait()
        return found[0]


START = {"type": "session.start", "session": {"model": "parrot", "instructions": TEXT}, "event_id": TEXT}


def converse(script: Callable[[InProcess, Peer], Any], key: str = KEY, *, browser: bool = False) -> None:
    async def scenario() -> None:
        async with InProcess("parrot") as deployment:
            peer = Peer(create_app(deployment.pod, keys=[KEY]), key, browser=browser)
            serving = asyncio.create_task(peer.serve())
            await script(deployment, peer)
            await peer.closed.wait()
            await serving

    run_virtual(scenario(), limit_s=300)


async def talk(deployment: InProcess, peer: Peer) -> None:
    """A whole session, in which the parrot speaks."""
    peer.say(START)
    await peer.until("session.started")
    for number in range(40):
        peer.append(PCM if number < 10 else bytes(len(PCM)))
        await asyncio.sleep(0.08)
    peer.say({"type": "session.close"})
    await peer.until("session.closed")
    assert any(event["type"] == "session.output_transcript.delta" for event in peer.events)


def test_a_session(logged: Callable[[], list[dict[str, Any]]]) -> None:
    converse(talk)
    lines = logged()
    assert_discreet(lines)
    assert {"session started", "session ended"} <= {line["event"] for line in lines}
    assert all(line["sid"].startswith("live_") for line in lines if "session" in line["event"])


def test_frames_that_are_refused(logged: Callable[[], list[dict[str, Any]]]) -> None:
    async def script(deployment: InProcess, peer: Peer) -> None:
        audio = base64.b64encode(PCM).decode()
        peer.say(START)
        await peer.until("session.started")
        for frame in (
            f"{{{TEXT}",
            {"type": TEXT},
            {"type": "session.input_audio.append", "audio": audio + "!"},
            {"type": "session.input_audio.append", "audio": audio[:8], TEXT: audio},
            {"type": "session.input_audio.append", "audio": base64.b64encode(PCM[:3]).decode()},
            {"type": "session.start", "session": {"model": TEXT}},
        ):
            peer.say(frame)
        peer.say_bytes(PCM)
        peer.say({"type": "session.close"})
        await peer.until("session.closed")
        assert len([event for event in peer.events if event["type"] == "error"]) >= 6

    converse(script)
    assert_discreet(logged())


@pytest.mark.parametrize("field", ["model", "voice", "instructions", TEXT])
def test_a_start_that_is_refused(logged: Callable[[], list[dict[str, Any]]], field: str) -> None:
    async def script(deployment: InProcess, peer: Peer) -> None:
        peer.say({"type": "session.start", "session": {"model": "parrot", field: {TEXT: TEXT}}})
        await peer.until("error")

    converse(script)
    assert_discreet(logged())


def test_a_wrong_key(logged: Callable[[], list[dict[str, Any]]]) -> None:
    async def script(deployment: InProcess, peer: Peer) -> None:
        assert peer.events == []

    converse(script, WRONG_KEY)
    assert_discreet(logged())


def test_a_browsers_keys(logged: Callable[[], list[dict[str, Any]]]) -> None:
    async def let_in(deployment: InProcess, peer: Peer) -> None:
        await talk(deployment, peer)
        assert peer.chosen == "openai-live", "the key is not echoed"

    async def kept_out(deployment: InProcess, peer: Peer) -> None:
        await peer.closed.wait()
        assert (peer.events, peer.chosen) == ([], None)

    converse(let_in, browser=True)
    converse(kept_out, WRONG_KEY, browser=True)
    assert_discreet(logged())


def test_garbage_on_the_bus(logged: Callable[[], list[dict[str, Any]]]) -> None:
    """Whatever is wrong with a message: the log tells where, not what it was."""
    garbage = [
        TEXT.encode(),
        m._encoder.encode([TEXT, 1]),
        m._encoder.encode(["failed", 1, TEXT, TEXT]),
        m._encoder.encode([1, TEXT, PCM]),
        m._encoder.encode({TEXT: PCM}),
    ]

    async def script(deployment: InProcess, peer: Peer) -> None:
        await asyncio.sleep(1.0)
        transport = deployment.transports[0]
        addresses = [deployment.pod.address, *(shell.address for shell in deployment.shells)]
        for data in garbage:
            transport.publish(subjects.heartbeat("encoder.garbage"), data)
            for address in addresses:
                for subject in (subjects.inbox, subjects.acks, subjects.control, subjects.claims):
                    transport.publish(subject(address), data)
        await asyncio.sleep(1.0)
        await talk(deployment, peer)

    converse(script)
    lines = logged()
    assert_discreet(lines)
    malformed = {line["event"] for line in lines if line["event"].startswith("malformed")}
    assert malformed == {f"malformed {what}" for what in ("bundle", "acks", "claim", "control", "heartbeat")}


@pytest.mark.parametrize("what", ["session", "process", "edge"])
def test_bugs_that_quote_what_they_met(
    logged: Callable[[], list[dict[str, Any]]], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that gives a session up says why in its own words; everything else is a bug, whose message can't be
    trusted."""

    async def script(deployment: InProcess, peer: Peer) -> None:
        peer.say(START)
        await peer.until("session.started")
        [root] = deployment.pod.roots.values()

        def step(batch: Any) -> Any:
            if what == "process":
                raise ValueError(TEXT)
            return [SessionError(f"unit of {len(PCM)} bytes") for _ in batch]

        def append(pcm: bytes, event_id: str | None) -> None:
            raise KeyError(TEXT, pcm)

        if what == "edge":
            monkeypatch.setattr(root, "append", append)
        else:
            monkeypatch.setattr(deployment.shell("llm").model, "step", step)
        peer.append()
        if what == "process":
            while not deployment.fatal:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert deployment.fatal[0].startswith("llm: step: ValueError, ")
            assert "test_logs.py:" in deployment.fatal[0]
            assert TEXT not in deployment.fatal[0]
            peer.say({"type": "session.close"})
        await peer.closed.wait()

    converse(script)
    lines = logged()
    assert_discreet(lines)
    if what == "session":
        assert "unit of 3840 bytes" in {line.get("why") for line in lines}
    if what == "edge":
        [bug] = [line for line in lines if line["event"] == "session ended by a bug"]
        assert bug["error"] == "KeyError"


def test_bugs_in_callbacks_and_tasks(logged: Callable[[], list[dict[str, Any]]]) -> None:
    """asyncio's own words quote the arguments of a callback, and the exception of a task."""

    async def task() -> None:
        raise ValueError(TEXT)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(report_bug)
        loop.call_soon(int, TEXT)
        lost = asyncio.create_task(task())
        await asyncio.sleep(0)
        del lost
        gc.collect()
        loop.call_exception_handler({"message": "something without an exception"})

    asyncio.run(main())
    lines = logged()
    assert_discreet(lines)
    assert [(line["event"], line.get("error")) for line in lines] == [
        ("bug", "ValueError"),
        ("bug", "ValueError"),
        ("bug", None),
    ]
    assert "never retrieved" in lines[1]["what"]
    assert lines[2]["what"] == "something without an exception"


def test_other_libraries_log_in_the_same_form_and_without_messages_of_exceptions() -> None:
    """In a process of its own: pytest has handlers of its own."""
    code = f"""
import logging
from duologue.cli.logs import configure
configure("debug", "json")
logging.getLogger("library").debug({TEXT!r})
try:
    raise ValueError({TEXT!r})
except ValueError:
    logging.getLogger("library").exception("it failed")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    [line] = [json.loads(text) for text in done.stderr.splitlines()]
    assert_discreet([line])
    assert (line["event"], line["logger"], line["level"], line["error"]) == (
        "it failed",
        "library",
        "error",
        "ValueError",
    )


def test_an_exception_is_told_by_its_place_and_what_it_came_from() -> None:
    try:
        try:
            raise KeyError(TEXT)
        except KeyError as error:
            raise RuntimeError(TEXT) from error
    except RuntimeError as error:
        told = place_of(error)
    assert told["error"] == "RuntimeError"
    assert "test_logs.py:" in told["where"][-1]
    [before] = told["came_from"]
    assert before["error"] == "KeyError"
    assert TEXT not in json.dumps(told)


def test_exceptions_that_came_from_each_other_end() -> None:
    one, two = ValueError(), KeyError()
    one.__cause__, two.__cause__ = two, one
    assert [each["error"] for each in place_of(one)["came_from"]] == ["KeyError"]
