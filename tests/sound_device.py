"""Stands for the module `sounddevice` where no sound device is: a microphone that hears what a test says, a loudspeaker
that notes what it plays."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

Pcm = npt.NDArray[np.int16]


class PortAudioError(Exception):
    pass


class Device:
    """`RawStream` is its only stream."""

    PortAudioError = PortAudioError

    def __init__(self, refuses: str = "") -> None:
        self._refuses = refuses
        self.opened: dict[str, Any] = {}
        self.played: list[Pcm] = []
        self.state = "closed"

    def RawStream(self, *, callback: Any, **options: Any) -> "Device":
        if self._refuses:
            raise PortAudioError(self._refuses)
        self.opened, self._callback = options, callback
        return self

    def start(self) -> None:
        self.state = "started"

    def stop(self) -> None:
        self.state = "stopped"

    def close(self) -> None:
        self.state += ", closed"

    def hear(self, pcm16: Pcm) -> Pcm:
        """A block of the microphone's, on a thread as PortAudio has it; what the loudspeaker plays meanwhile."""
        heard, played = bytearray(pcm16.tobytes()), bytearray(b"\xff" * (2 * len(pcm16)))
        thread = threading.Thread(target=lambda: self._callback(heard, played, len(pcm16), None, None))
        thread.start()
        thread.join(10)
        # PortAudio uses its buffers again.
        heard[:] = b"\xee" * len(heard)
        self.played.append(np.frombuffer(bytes(played), np.int16))
        return self.played[-1]
