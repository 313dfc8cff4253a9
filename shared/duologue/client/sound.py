"""This machine's microphone and loudspeaker, by PortAudio (package `sounddevice`, the extra `mic`)."""

import asyncio
import importlib
import threading
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Pcm = npt.NDArray[np.int16]

HEARD_S = 1.0
"""Of sound heard that nobody has taken yet; beyond it the oldest is dropped."""
AHEAD_S = 0.12
"""Sound may wait so long to be played; silence beyond that is left out, so that a delay of the network does not stay for
the rest of the conversation."""
BACKLOG_S = 2.0
"""Of sound that waits to be played; beyond it the oldest is dropped."""


class NoSound(Exception):
    """There is no microphone or loudspeaker here that can be used; says what to do."""


class Sound:
    """Both at `rate` Hz, mono int16, in blocks of `block` samples; used within `with` on a running event loop.
    `device` is the module `sounddevice`, or what has its `RawStream` and `PortAudioError`.  Raises `NoSound`."""

    def __init__(self, rate: int, block: int, device: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._rate = rate
        self._heard: asyncio.Queue[Pcm] = asyncio.Queue(max(1, round(HEARD_S * rate / block)))
        self._lock = threading.Lock()
        self._waiting = np.zeros(0, np.int16)
        try:
            self._stream = device.RawStream(
                samplerate=rate, blocksize=block, channels=1, dtype="int16", callback=self._block
            )
            self._stream.start()
        except (device.PortAudioError, ValueError) as error:
            raise NoSound(f"no microphone and loudspeaker for {rate} Hz: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.stop()
        self._stream.close()

    async def heard(self) -> AsyncIterator[Pcm]:
        """Blocks from the microphone as they come, without end."""
        while True:
            yield await self._heard.get()

    def play(self, pcm16: Pcm) -> None:
        """Has it played after what waits."""
        with self._lock:
            if len(self._waiting) > AHEAD_S * self._rate and not pcm16.any():
                return
            self._waiting = np.concatenate([self._waiting, pcm16])[-round(BACKLOG_S * self._rate) :]

    def _block(self, heard: Any, played: Any, samples: int, time: Any, status: Any) -> None:
        """Called on PortAudio's thread, with buffers that are its own."""
        del time, status
        with self._lock:
            now, self._waiting = self._waiting[:samples], self._waiting[samples:]
        played[:] = np.concatenate([now, np.zeros(samples - len(now), np.int16)]).tobytes()
        block = np.frombuffer(bytes(heard), np.int16)
        try:
            self._loop.call_soon_threadsafe(self._take, block)
        except RuntimeError:  # the loop was closed in the meantime
            return

    def _take(self, block: Pcm) -> None:
        if self._heard.full():
            self._heard.get_nowait()
        self._heard.put_nowait(block)


def sounddevice(load: Callable[[str], Any] = importlib.import_module) -> Any:
    """The package.  Raises `NoSound`."""
    try:
        return load("sounddevice")
    except ModuleNotFoundError:
        raise NoSound("the microphone needs the package sounddevice: pip install 'duologue[mic]'") from None
    except OSError as error:
        raise NoSound(f"{error} (on Debian and Ubuntu: apt-get install libportaudio2)") from None
