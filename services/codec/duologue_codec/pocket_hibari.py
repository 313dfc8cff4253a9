"""Speech from `hibari-tts` (Apache-2.0): one network from phonemes to spectra, and its signal processing; 24 kHz.

Measured: about 70 times as fast as it speaks, on one core.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

RATE = 24_000
GAIN = 2.0
"""hibari's peaks are at 0.25 to 0.4; with this its speech has about -20 dBFS."""
PEAK = 0.95
FRAME = RATE // 100
"""Samples over which loudness is judged."""
SOUND = 0.003
"""RMS of a frame from which on it is sound (-50 dBFS before the gain)."""
MARGIN = 3
"""Frames kept before and after."""


class Voice:
    """Ids of phonemes → speech.  Raises `ModuleNotFoundError` when hibari is missing."""

    def __init__(self) -> None:
        from hibari import Hibari

        self._hibari = Hibari(threads=1)
        # The first run of a session of onnxruntime is the slowest.
        self(np.array([0, 50, 83, 0], np.int64), np.random.default_rng(0))

    def __call__(self, ids: npt.NDArray[np.int64], noise: np.random.Generator) -> Floats:
        """float32 [n] within ±1, without the silence that hibari puts around it (0.3 s before, 0.5 s after)."""
        return levelled(trimmed(self._hibari.from_ids(ids, 1.0, noise)))


def trimmed(samples: Floats) -> Floats:
    """From shortly before the first sound to shortly after the last, faded in and out over a frame."""
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    loud = np.flatnonzero(np.sqrt(np.mean(frames * frames, axis=1)) > SOUND) if len(frames) else frames
    if not len(loud):
        return np.zeros(0, np.float32)
    begin, end = max(0, int(loud[0]) - MARGIN), int(loud[-1]) + 1 + MARGIN
    kept = samples[begin * FRAME : end * FRAME].copy()
    ramp = np.linspace(0, 1, FRAME, dtype=np.float32)
    kept[:FRAME] *= ramp
    kept[-FRAME:] *= ramp[::-1]
    return kept


def levelled(samples: Floats) -> Floats:
    """Louder by `GAIN`, or so much that the highest peak is `PEAK`."""
    highest = float(np.abs(samples).max(initial=0.0))
    return samples * np.float32(min(GAIN, PEAK / highest) if highest else GAIN)
