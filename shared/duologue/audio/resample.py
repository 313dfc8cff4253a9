"""Resampling: soxr (HQ) in float32, and one rounding at the end; in one go, or as a stream."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import soxr

Pcm = npt.NDArray[np.int16]
QUALITY = "HQ"


def to_rate(pcm: npt.NDArray[Any], rate: int, target: int) -> Pcm:
    """int16, or float with full scale 1.0, [n] at `rate` Hz → int16 [≈ n · target / rate] at `target` Hz.  Equal
    rates change nothing.  What is beyond full scale is clipped.  Raises `ValueError` for other shapes and types."""
    if pcm.ndim != 1:
        raise ValueError(f"mono [n] is resampled, not {list(pcm.shape)}")
    if rate <= 0 or target <= 0:
        raise ValueError(f"from {rate} Hz to {target} Hz")
    if pcm.dtype == np.int16:
        if rate == target:
            return pcm
        scaled = pcm.astype(np.float32) / 32768
    elif np.issubdtype(pcm.dtype, np.floating):
        scaled = pcm.astype(np.float32)
    else:
        raise ValueError(f"int16 or float is resampled, not {pcm.dtype}")
    if rate != target:
        scaled = soxr.resample(scaled, rate, target, quality=QUALITY)
    return _rounded(scaled)


class Resampler:
    """A stream of int16 from `rate` to `target`; equals `to_rate` of the whole, bit by bit, however it is cut.

    The last samples of what was pushed are held back until more comes or `flush`: the filter's half (12 ms from or to
    8 kHz, 6 ms between 16 and 24 kHz) and what soxr's transform still waits for.  In all at most 74 ms between 8 and
    24 kHz, 37 ms between 16 and 24 kHz, 116 ms between 8 and 16 kHz.
    """

    def __init__(self, rate: int, target: int) -> None:
        self._stream = _stream(rate, target)

    def push(self, pcm16: Pcm) -> Pcm:
        """int16 [n] → those samples of the result that are certain by now."""
        return _rounded(self._stream.resample_chunk(pcm16.astype(np.float32) / 32768))

    def flush(self) -> Pcm:
        """What was held back; zeros are taken to follow.  Nothing can be pushed afterwards."""
        return _rounded(self._stream.resample_chunk(np.zeros(0, np.float32), last=True))


@cache
def grid(rate: int, target: int) -> int:
    """Input samples (92 to 184 ms) after which the blocks of soxr's transform fall alike again, counted in samples of
    either rate: resamplers that begin a multiple of this apart see the same blocks."""
    stream, silence = _stream(rate, target), np.zeros(1, np.float32)
    while not len(stream.resample_chunk(silence)):
        pass
    fed = made = 0
    while not made or fed * target != made * rate:
        fed += 1
        made += len(stream.resample_chunk(silence))
    return fed


def restart(rate: int, target: int, sample: int) -> int:
    """Where a new `Resampler` must begin so that, from the output of input sample `sample` on, it makes the same, bit
    by bit, as one that was fed from sample 0 on: an input sample less than two `grid` before."""
    step = grid(rate, target)
    return max(0, sample // step - 1) * step


def _stream(rate: int, target: int) -> Any:
    return soxr.ResampleStream(rate, target, 1, dtype="float32", quality=QUALITY)


def _rounded(samples: npt.NDArray[Any]) -> Pcm:
    """Full scale 1.0 → int16, halves to even."""
    rounded: Pcm = np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)
    return rounded
