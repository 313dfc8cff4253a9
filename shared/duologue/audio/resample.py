"""One-shot resampling: soxr in float32, and one rounding at the end."""

from typing import Any

import numpy as np
import numpy.typing as npt
import soxr


def to_rate(pcm: npt.NDArray[Any], rate: int, target: int) -> npt.NDArray[np.int16]:
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
        scaled = soxr.resample(scaled, rate, target, quality="HQ")
    return np.clip(np.rint(scaled * 32768), -32768, 32767).astype(np.int16)
