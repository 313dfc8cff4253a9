"""An independent recogniser, in a process and an environment of its own: it says whether speech can be understood.

It is not the pocket model's: what a recogniser mishears, a synthesiser that was tuned to it may say.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

import environments
from duologue.audio.resample import to_rate
from duologue.audio.wav import write_wav

RATE = 16_000
PROGRAM = Path(__file__).parent / "recognisers" / "whisper.py"


class Oracle:
    """Whisper tiny.en, one recording at a time.  Raises `environments.Unavailable` where it can't be installed."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="duologue-oracle-")
        self._process = subprocess.Popen(
            [environments.python("whisper"), str(PROGRAM)],
            env={**environments.clean(), "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._folder.cleanup()

    def hear(self, pcm16: npt.NDArray[np.int16], rate: int) -> str:
        """The text of int16 [n] at `rate` Hz."""
        recording = Path(self._folder.name) / "recording.wav"
        write_wav(recording, to_rate(pcm16, rate, RATE), RATE)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{recording}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise environments.Unavailable(f"the recogniser ended with {self._process.wait(30)}")
        return str(json.loads(line))
