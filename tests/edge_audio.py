"""What a session in any format has to answer: computed in one go, by soxr on whole recordings and the parrot's reference."""

from functools import cache

import numpy as np
import numpy.typing as npt
import soxr

from duologue.audio.formats import Format
from duologue.testing.parrot_reference import reference
from duologue.testing.signals import bursts

RATE, UNIT = 24_000, 1920
UNIT_S = UNIT / RATE
SEED = 7

Pcm = npt.NDArray[np.int16]


def utterance(form: Format) -> Pcm:
    """int16 at the format's rate: 0.64 s of speech that the parrot repeats before the end, which is in mid-unit."""
    return bursts([(0.2, False), (0.64, True), (1.5, False), (0.017, True)], 11, form.rate)


def resampled(pcm: Pcm, rate: int, target: int) -> Pcm:
    if rate == target:
        return pcm
    whole = soxr.resample(pcm.astype(np.float32) / 32768, rate, target, quality="HQ")
    rounded: Pcm = np.clip(np.rint(whole * 32768), -32768, 32767).astype(np.int16)
    return rounded


def answer(form: Format, heard: Pcm) -> bytes:
    """To what the model is to hear, int16 at the format's rate."""
    return _answer(form, heard.tobytes())


@cache
def _answer(form: Format, heard: bytes) -> bytes:
    pcm = np.frombuffer(heard, np.int16)
    unit = UNIT * form.rate // RATE
    whole = np.concatenate([pcm, np.zeros(-len(pcm) % unit, np.int16)])
    spoken = reference(resampled(whole, form.rate, RATE), SEED).pcm16
    return form.encode(resampled(spoken, RATE, form.rate))
