"""Streams a recording through a session and collects the answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from duologue.audio.formats import PCM_24K, Format
from duologue.audio.framing import OddBytes
from duologue.client.events import AudioDelta, Closed, ErrorEvent, Event, Info, TranscriptDelta, UsageUpdated
from duologue.client.live import BadServer, ConnectionLost

SETTLE_S = 3.0
"""Once everything is sent: so long without output means that there is none to come."""
HELD_BACK_S = 0.15
"""What a server that resamples may hold back of each direction until the session ends."""


class Stalled(Exception):
    """The server stopped answering."""


class Session(Protocol):
    """What is needed of a `LiveClient`."""

    @property
    def session_id(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def format(self) -> Format: ...

    async def append(self, audio: bytes) -> None: ...

    async def finish(self) -> None: ...

    def __aiter__(self) -> AsyncIterator[Event]: ...


@dataclass(frozen=True, slots=True)
class TalkResult:
    """A conversation, audio at the session's rate and decoded.

    `first_audio_s`: from the first append to the arrival of the first output sample that is not silence;
    `first_audio_lag_s`: how long that sample came after its place in the session, i.e. the delay a listener has at
    real-time pace; both `None` for an answer of silence.  An incomplete last unit of the input counts; units are `None`
    where their length is not known.
    """

    session: str
    model: str
    rate: int
    input_samples: int
    pcm16: npt.NDArray[np.int16]
    transcript: tuple[TranscriptDelta, ...]
    heard: tuple[TranscriptDelta, ...]
    first_audio_s: float | None
    first_audio_lag_s: float | None
    units_in: int | None
    units_out: int | None
    seconds: float
    usage_seconds: float
    close_reason: str
    notices: tuple[ErrorEvent | Info, ...]

    @property
    def text(self) -> str:
        """What the model said."""
        return "".join(part.text for part in self.transcript)


@dataclass(slots=True)
class _Progress:
    sent: int = 0
    received: int = 0
    began: float | None = None
    first_audio: tuple[float, int] | None = None
    """When the first sample that is not zero came, and its number."""
    output: list[bytes] = field(default_factory=list)
    transcript: list[TranscriptDelta] = field(default_factory=list)
    notices: list[ErrorEvent | Info] = field(default_factory=list)
    usage_s: float = 0.0
    closed: Closed | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


async def stream(
    recording: npt.NDArray[np.int16],
    client: Session,
    *,
    chunk_bytes: int = 960,
    pace: float | None = 1.0,
    window_s: float = 2.0,
    unit_samples: int | None = None,
    stall_s: float = 30.0,
    on_event: Callable[[Event], None] | None = None,
    on_sent: Callable[[int], None] | None = None,
) -> TalkResult:
    """Sends int16 [n] at the session's rate in appends of `chunk_bytes` of its format, takes what comes, ends the
    session.

    `pace` is the multiple of real time, by the event loop's clock and without drift: an append leaves when its
    first sample is due.  `None` sends as fast as the answers come, at most `window_s` of input ahead of the output,
    so that no backlog of the server can fill up.  `on_sent` gets the samples sent so far.  Raises `ConnectionLost`,
    `Stalled` (no output while the window is full, or no end of the session, for `stall_s`).
    """
    if chunk_bytes <= 0 or chunk_bytes % client.format.sample_bytes:
        raise ValueError(f"chunks of {chunk_bytes} bytes are no whole samples")
    if pace is not None and pace <= 0:
        raise ValueError(f"a pace of {pace}")
    if window_s <= 0:
        raise ValueError(f"a window of {window_s} s")
    progress = _Progress()
    sender = asyncio.create_task(
        _send(recording, client, progress, chunk_bytes, pace, window_s, unit_samples, stall_s, on_sent)
    )
    receiver = asyncio.create_task(_receive(client, progress, on_event))
    try:
        await asyncio.wait({sender, receiver}, return_when=asyncio.FIRST_EXCEPTION)
        # Where both failed the receiver knows why.
        for task in (receiver, sender):
            if task.done():
                task.result()
    finally:
        for task in (receiver, sender):
            task.cancel()
        await asyncio.gather(sender, receiver, return_exceptions=True)
    return _result(client, progress, unit_samples)


async def _send(
    recording: npt.NDArray[np.int16],
    client: Session,
    progress: _Progress,
    chunk_bytes: int,
    pace: float | None,
    window_s: float,
    unit_samples: int | None,
    stall_s: float,
    on_sent: Callable[[int], None] | None,
) -> None:
    now = asyncio.get_running_loop().time
    rate, width = client.format.rate, client.format.sample_bytes
    data = client.format.encode(recording)
    window = max(int(window_s * rate), chunk_bytes // width)
    progress.began = began = now()
    try:
        for at in range(0, len(data), chunk_bytes):
            chunk = data[at : at + chunk_bytes]
            if pace is not None:
                await asyncio.sleep(began + at / width / rate / pace - now())
            else:
                ahead = progress.sent + len(chunk) // width - window
                if not await _received(progress, ahead, stall_s):
                    raise Stalled(f"no output for {stall_s:g} s after {progress.received / rate:.1f} s of it")
            if progress.ended.is_set():
                return
            await client.append(chunk)
            progress.sent += len(chunk) // width
            if on_sent is not None:
                on_sent(progress.sent)
        unit = unit_samples or 1
        held = 0 if client.format == PCM_24K else round(HELD_BACK_S * rate)
        await _received(progress, (progress.sent - held) // unit * unit - held, SETTLE_S)
        if held:
            await _received(progress, progress.sent // unit * unit, 2 * HELD_BACK_S)
        if not progress.ended.is_set():
            await client.finish()
            await _end(progress, stall_s)
    except ConnectionLost:
        # The receiver meets the same end, and may first find why in what is still to be read.
        return


async def _received(progress: _Progress, samples: int, quiet_s: float) -> bool:
    """Waits for `samples` of output or the end; false when nothing at all came for `quiet_s`."""
    while progress.received < samples and not progress.ended.is_set():
        progress.moved.clear()
        try:
            async with asyncio.timeout(quiet_s):
                await progress.moved.wait()
        except TimeoutError:
            return False
    return True


async def _end(progress: _Progress, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await progress.ended.wait()
    except TimeoutError:
        raise Stalled(f"no session.closed within {timeout_s:g} s") from None


async def _receive(client: Session, progress: _Progress, on_event: Callable[[Event], None] | None) -> None:
    now = asyncio.get_running_loop().time
    try:
        async for event in client:
            match event:
                case AudioDelta(audio=audio):
                    _take_audio(progress, client.format, audio, now())
                case TranscriptDelta():
                    progress.transcript.append(event)
                case UsageUpdated(seconds=seconds):
                    progress.usage_s = seconds
                case ErrorEvent() | Info():
                    progress.notices.append(event)
                case Closed(seconds=seconds):
                    progress.closed = event
                    progress.usage_s = max(progress.usage_s, seconds)
            if on_event is not None:
                on_event(event)
    finally:
        progress.ended.set()
        progress.moved.set()


def _take_audio(progress: _Progress, form: Format, audio: bytes, now: float) -> None:
    try:
        pcm16 = form.decode(audio)
    except OddBytes:
        raise BadServer(f"the server sent {len(audio)} bytes of int16 audio") from None
    if progress.first_audio is None:
        # A-law has no zero: silence is its smallest value.
        loud = np.flatnonzero(np.abs(pcm16) > form.silence)
        if loud.size:
            progress.first_audio = now, progress.received + int(loud[0])
    progress.output.append(audio)
    progress.received += len(pcm16)
    progress.moved.set()


def _result(client: Session, progress: _Progress, unit_samples: int | None) -> TalkResult:
    ended = asyncio.get_running_loop().time()
    began = progress.began if progress.began is not None else ended
    first_s = lag_s = None
    if progress.first_audio is not None:
        came, sample = progress.first_audio
        first_s = came - began
        lag_s = first_s - sample / client.format.rate
    return TalkResult(
        session=client.session_id,
        model=client.model,
        rate=client.format.rate,
        input_samples=progress.sent,
        pcm16=client.format.decode(b"".join(progress.output)),
        transcript=tuple(part for part in progress.transcript if not part.heard),
        heard=tuple(part for part in progress.transcript if part.heard),
        first_audio_s=first_s,
        first_audio_lag_s=lag_s,
        units_in=-(-progress.sent // unit_samples) if unit_samples else None,
        units_out=progress.received // unit_samples if unit_samples else None,
        seconds=ended - began,
        usage_seconds=progress.usage_s,
        close_reason=progress.closed.reason if progress.closed else "",
        notices=tuple(progress.notices),
    )
