"""Speech for tests and benchmarks: what a caller says, synthesised."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from duologue.audio.resample import to_rate


def spoken(text: str, rate: int = 16_000, seed: int = 1, speed: float = 1.0) -> npt.NDArray[np.int16]:
    """int16 [n] at `rate` Hz of `text` read out by hibari's voice, with its 0.3 s of silence before and 0.5 s after.  The
    same arguments give the same samples.  Raises `ModuleNotFoundError` without the extra `pocket`."""
    voice = _voice()
    return to_rate(2 * voice(text, speed=speed, seed=seed), voice.sample_rate, rate)


@cache
def _voice() -> Any:
    from hibari import Hibari

    return Hibari(threads=1)
