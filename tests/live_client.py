"""A strict client of the Live protocol: each event is held against the SDK's type for it, and against what came before."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from contract.strict_events import strict_event

RATE, UNIT = 24_000, 1920
GIVE_UP_S = 60.0
"""A test that waits this long has failed; nothing is measured by it."""

Pcm = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Fragment:
    """A piece of transcript; milliseconds of the session."""

    text: str
    start_ms: int
    end_ms: int


class LiveSession:
    """One session as its client sees it; `start` comes first.  Everything that arrives is taken at once by a task of
    its own, except while `reading` is cleared."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.started: dict[str, Any] | None = None
        self.closed: dict[str, Any] | None = None
        self.close_code: int | None = None
        """Set once the server has closed the connection."""
        self.units: list[bytes] = []
        """Output audio, as it was cut."""
        self.transcript: list[Fragment] = []
        self.usage: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.notices: list[dict[str, Any]] = []
        self.samples_in = self.samples_out = 0
        self.reading = asyncio.Event()
        self.reading.set()
        self._ids: set[str] = set()
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    # ---------------------------------------------------------------- out

    async def send(self, event: dict[str, Any]) -> None:
        await self.socket.send(json.dumps(event))

    async def start(self, **session: Any) -> None:
        """Sends `session.start`; `until(lambda: self.started)` waits for the answer."""
        await self.send({"type": "session.start", "session": {"model": "parrot", **session}})

    async def append(self, pcm: bytes) -> None:
        self.samples_in += len(pcm) // 2
        await self.send({"type": "session.input_audio.append", "audio": base64.b64encode(pcm).decode()})

    async def stream(
        self,
        recording: Pcm,
        *,
        chunk_bytes: int = 3840,
        pace: float | None = None,
        window_s: float = 2.0,
        late_s: float = 0.0,
    ) -> None:
        """Sends int16 [n] at a multiple of real time, each append when its first sample is due, the first after
        `late_s`.  Without a pace: as fast as the answers come, whole units at most `window_s` ahead of them."""
        data = recording.astype("<i2").tobytes()
        loop = asyncio.get_running_loop()
        began = loop.time() + late_s
        window = max(round(window_s * RATE), chunk_bytes // 2) + UNIT
        for at in range(0, len(data), chunk_bytes):
            chunk = data[at : at + chunk_bytes]
            if pace is not None:
                await asyncio.sleep(began + at / 2 / RATE / pace - loop.time())
            else:
                complete = (self.samples_in + len(chunk) // 2) // UNIT * UNIT
                await self.answered(complete - window)
            await self.append(chunk)

    async def finish(self) -> None:
        """Waits for the answers to all whole units, then closes the session and waits for the server's close."""
        await self.answered(self.samples_in // UNIT * UNIT)
        await self.close()

    async def close(self) -> None:
        await self.send({"type": "session.close"})
        await self.ended()

    # ---------------------------------------------------------------- in

    async def until(self, condition: Callable[[], Any], timeout_s: float = GIVE_UP_S) -> None:
        """Returns once `condition` holds.  Raises what is wrong with an event that came, `ConnectionError` when the
        server has closed, `TimeoutError`."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                if self._reader.done():
                    self._reader.result()
                    raise ConnectionError(f"closed with {self.close_code}: {self.errors or self.closed}")
                self._changed.clear()
                await self._changed.wait()

    async def answered(self, samples: int) -> None:
        """Returns once so much output has come."""
        await self.until(lambda: self.samples_out >= samples)

    async def ended(self, timeout_s: float = GIVE_UP_S) -> None:
        """Returns once the server has closed the connection."""
        await self.until(lambda: self.close_code is not None, timeout_s)

    async def _read(self) -> None:
        try:
            while True:
                await self.reading.wait()
                self._take(strict_event(await self.socket.recv()))
                self._changed.set()
        except ConnectionClosed:
            self.close_code = self.socket.close_code
        finally:
            self._changed.set()

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        assert self.closed is None, f"{kind} after session.closed"
        if "event_id" in event:
            assert event["event_id"] not in self._ids, f"{kind} with an id that was used before"
            self._ids.add(event["event_id"])
        if self.started is None:
            assert kind in ("session.started", "error"), f"{kind} before session.started"
        match kind:
            case "session.started":
                assert self.started is None, "session.started twice"
                self.started = event["session"]
            case "session.output_audio.delta":
                self.units.append(base64.b64decode(event["delta"], validate=True))
                self.samples_out += len(self.units[-1]) // 2
            case "session.output_transcript.delta":
                self.transcript.append(Fragment(event["delta"], event["start_ms"], event["end_ms"]))
            case "session.usage.updated":
                self.usage.append(event)
            case "session.closed":
                self.closed = event
            case "error":
                self.errors.append(event["error"])
            case _:
                self.notices.append(event)

    # ---------------------------------------------------------------- what came

    @property
    def pcm16(self) -> Pcm:
        """All output, int16."""
        return np.frombuffer(b"".join(self.units), "<i2").astype(np.int16)

    @property
    def text(self) -> str:
        return "".join(fragment.text for fragment in self.transcript)

    async def leave(self) -> None:
        """Ends the reading and, where the server has not closed yet, cuts the connection."""
        self.socket.transport.abort()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


@asynccontextmanager
async def open_socket(live_url: str, **options: Any) -> AsyncIterator[ClientConnection]:
    """A bare connection, for a test that breaks rules."""
    async with connect(live_url, compression=None, max_size=None, proxy=None, **options) as socket:
        yield socket


@asynccontextmanager
async def connected(live_url: str, **options: Any) -> AsyncIterator[LiveSession]:
    """A connection before `session.start`; cut at the end if the test has not closed it."""
    async with open_socket(live_url, **options) as socket:
        session = LiveSession(socket)
        try:
            yield session
        finally:
            await session.leave()


@asynccontextmanager
async def started(live_url: str, **session: Any) -> AsyncIterator[LiveSession]:
    """A session that has started."""
    async with connected(live_url) as live:
        await live.start(**session)
        await live.until(lambda: live.started)
        yield live


async def converse(live_url: str, recording: Pcm, **how: Any) -> LiveSession:
    """A whole session: `recording` streamed (see `LiveSession.stream`), all of it answered, closed."""
    async with started(live_url) as live:
        await live.stream(recording, **how)
        await live.finish()
        return live
