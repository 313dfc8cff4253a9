"""Test signals that need no files: the same arguments always give the same samples."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RATE = 24000
FADE_S = 0.02
"""Rise and fall of a burst: no clicks at its ends."""
QUIET_LSB = 2
"""Peak of the noise in a pause; its RMS is under a hundredth of what any model here takes for speech."""

Samples = npt.NDArray[np.float64]


def speechlike(seconds: float, seed: int, rate: int = RATE) -> npt.NDArray[np.int16]:
    """int16[seconds * rate] in the rhythm of talk: voiced bursts of 0.4 to 1.5 s, each after a pause of 0.3 to
    1.2 s that is exact zeros or very quiet noise.  The last piece is cut off where the signal ends."""
    rng = np.random.default_rng(seed)
    total = round(seconds * rate)
    pieces: list[Samples] = []
    while sum(map(len, pieces)) < total:
        pieces.append(_pause(round(rng.uniform(0.3, 1.2) * rate), rng, exact=rng.random() < 0.5))
        pieces.append(_voiced(round(rng.uniform(0.4, 1.5) * rate), rng, rate))
    return _pcm16(pieces)[:total]


def bursts(parts: Sequence[tuple[float, bool]], seed: int, rate: int = RATE) -> npt.NDArray[np.int16]:
    """Parts of (seconds, loud) one after the other, int16: voiced sound where loud, else exact zeros.  Every part
    begins on the sample nearest to its time, so whole units stay whole."""
    rng = np.random.default_rng(seed)
    ends = [round(end * rate) for end in np.cumsum([seconds for seconds, _ in parts])]
    pieces: list[Samples] = []
    for start, end, (_, loud) in zip([0, *ends][:-1], ends, parts, strict=True):
        pieces.append(_voiced(end - start, rng, rate) if loud else np.zeros(end - start))
    return _pcm16(pieces)


def _voiced(samples: int, rng: np.random.Generator, rate: int) -> Samples:
    """Harmonics of a gliding pitch under an envelope that beats as syllables do, never far from full level."""
    if samples == 0:
        return np.zeros(0)
    t = np.arange(samples) / rate
    pitch_hz = rng.uniform(90, 220) * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(0.5, 2) * t))
    phase = 2 * np.pi * np.cumsum(pitch_hz) / rate
    offsets = rng.uniform(0, 2 * np.pi, 12)
    wave = np.sum([np.sin(h * phase + offset) / h for h, offset in enumerate(offsets, 1)], axis=0)
    syllables = 0.7 + 0.3 * np.sin(2 * np.pi * rng.uniform(3, 5) * t + rng.uniform(0, 2 * np.pi))
    edge = np.minimum(np.arange(1, samples + 1), np.arange(samples, 0, -1)) / (FADE_S * rate)
    voiced: Samples = rng.uniform(0.15, 0.25) * wave * syllables * np.minimum(1, edge)
    return voiced


def _pause(samples: int, rng: np.random.Generator, *, exact: bool) -> Samples:
    return np.zeros(samples) if exact else rng.uniform(-QUIET_LSB, QUIET_LSB, samples) / 32768


def _pcm16(pieces: Sequence[Samples]) -> npt.NDArray[np.int16]:
    joined = np.concatenate([np.zeros(0), *pieces])
    pcm16: npt.NDArray[np.int16] = np.clip(np.rint(joined * 32768), -32768, 32767).astype(np.int16)
    return pcm16


def coughs(seconds: float, seed: int, level: float = 0.5, rate: int = 16_000) -> npt.NDArray[np.int16]:
    """Coughs and clearings of throats, some 20 a minute: one to three short bursts of noise, each with the resonances
    of a mouth."""
    rng = np.random.default_rng(seed)
    samples = rng.normal(size=round(seconds * rate)) * 0.0005
    for at in np.arange(0.7, seconds - 2, 3.0):
        for burst in range(rng.integers(1, 4)):
            start = round((at + rng.uniform(0, 0.5) + 0.3 * burst) * rate)
            found = _cough(round(rng.uniform(0.12, 0.3) * rate), rng, rate)[: len(samples) - start]
            samples[start : start + len(found)] += level * found
    return _pcm16([samples])


def clicks(seconds: float, seed: int, rate: int = 16_000) -> npt.NDArray[np.int16]:
    """A keyboard: five clicks a second at any time, of 3 to 25 ms."""
    rng = np.random.default_rng(seed)
    samples = rng.normal(size=round(seconds * rate)) * 0.0005
    for at in rng.integers(0, len(samples) - rate // 20, round(5 * seconds)):
        length = rng.integers(rate // 320, rate // 40)
        decay = np.exp(-5 * np.arange(length) / length)
        samples[at : at + length] += rng.normal(size=length) * decay * rng.uniform(0.05, 0.4)
    return _pcm16([samples])


def _cough(samples: int, rng: np.random.Generator, rate: int) -> Samples:
    spectrum, hz = np.fft.rfft(rng.normal(size=samples)), np.fft.rfftfreq(samples, 1 / rate)
    formants = ((600, 300), (1500, 500), (3500, 1200))
    spectrum *= sum(np.exp(-(((hz - centre) / width) ** 2)) for centre, width in formants)
    noise = np.fft.irfft(spectrum, samples)
    rise, fall = (
        np.minimum(1, np.arange(samples) / (0.005 * rate)),
        np.exp(-4 * np.arange(samples) / samples),
    )
    cough: Samples = noise / np.abs(noise).max() * rise * fall
    return cough
