"""The four audio formats of a session: PCM at two rates, and the two companding laws of telephony (ITU-T G.711)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from duologue.audio.framing import OddBytes

Pcm = npt.NDArray[np.int16]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Law:
    """`values` int16 [256] by code; `codes` uint8 [65536] by the sample's bits."""

    values: Pcm
    codes: npt.NDArray[np.uint8]


def _law(decisions: Ints, step: int, first: int, inversion: int) -> _Law:
    """From a law's definition: `decisions` [129] are the decision values x(0) .. x(128) of G.711's tables 1a and 2a,
    `step` int16 steps make one of their units, `first` is the value y(0), `inversion` are the bits of a code that are
    sent inverted.

    A magnitude between x(n) and x(n+1) becomes the code n, which stands for the mean y(n) of the two.  Which code an
    exact decision value gets is left open there; here it is that of the interval above it, as in the ITU's own
    software (G.191), so that intervals of negative values are open where those of positive ones are closed.
    """
    values = np.append(first, (decisions[1:-1] + decisions[2:]) // 2) * step
    by_code = np.empty(256, np.int16)
    code = np.arange(128)
    by_code[(code | 0x80) ^ inversion] = values
    by_code[code ^ inversion] = -values
    sample = np.arange(-32768, 32768)
    above = np.searchsorted(decisions * step, sample, "right")
    below = np.searchsorted(decisions * step, -sample, "left")
    number = np.minimum(np.where(sample < 0, below, above) - 1, 127)
    codes = np.empty(65536, np.uint8)
    codes[sample.astype(np.int16).view(np.uint16)] = np.where(sample < 0, number, number | 0x80) ^ inversion
    return _Law(by_code, codes)


def _decisions(bias: int, last: int) -> Ints:
    """x(0) .. x(128): eight segments of sixteen steps, each segment's steps twice as wide as the one's before."""
    segment, step = np.divmod(np.arange(128), 16)
    if bias:  # µ-law: the curve is shifted, so that the first segment is like all others
        edges = ((2 * step + 32) << segment) - bias
        edges[0] = 0
    else:  # A-law: the first two segments have the same steps
        edges = np.where(segment == 0, 2 * step, (2 * step + 32) << np.maximum(segment - 1, 0))
    return np.append(edges, last).astype(np.int64)


_LAWS = {
    "audio/pcmu": _law(_decisions(bias=33, last=8159), step=4, first=0, inversion=0x7F),
    "audio/pcma": _law(_decisions(bias=0, last=4096), step=8, first=1, inversion=0x55),
}


@dataclass(frozen=True, slots=True)
class Format:
    """How a session's audio is written, in both directions: mono at `rate` Hz."""

    name: str
    """What the command line calls it."""
    type: str
    rate: int
    sample_bytes: int

    @property
    def bytes_per_s(self) -> int:
        return self.rate * self.sample_bytes

    @property
    def silence(self) -> int:
        """What a sample of zero comes back as: A-law has no zero."""
        return int(self.decode(self.encode(np.zeros(1, np.int16)))[0])

    def decode(self, data: bytes | bytearray | memoryview) -> Pcm:
        """int16 [n].  Raises `OddBytes`."""
        size = memoryview(data).nbytes
        if size % self.sample_bytes:
            raise OddBytes(f"{size} bytes are no whole number of int16 samples")
        law = _LAWS.get(self.type)
        if law is None:
            return np.frombuffer(data, "<i2").astype(np.int16, copy=False)
        return law.values[np.frombuffer(data, np.uint8)]

    def encode(self, pcm16: npt.NDArray[Any]) -> bytes:
        """From int16 [n].  Raises `ValueError` for other types."""
        if pcm16.dtype != np.int16:
            raise ValueError(f"int16 is encoded, not {pcm16.dtype}")
        law = _LAWS.get(self.type)
        if law is None:
            return pcm16.astype("<i2", copy=False).tobytes()
        return law.codes[np.ascontiguousarray(pcm16).view(np.uint16)].tobytes()


def pcm_at(rate: int) -> Format:
    """PCM at any rate, which a model may have and a client may not ask for."""
    return Format(f"pcm{rate / 1000:g}k", "audio/pcm", rate, 2)


PCM_24K, PCM_16K = pcm_at(24000), pcm_at(16000)
PCMU = Format("pcmu", "audio/pcmu", 8000, 1)
PCMA = Format("pcma", "audio/pcma", 8000, 1)
FORMATS = (PCM_24K, PCM_16K, PCMU, PCMA)


def format_of(type_: str, rate: int) -> Format:
    """Raises `LookupError`."""
    for each in FORMATS:
        if (each.type, each.rate) == (type_, rate):
            return each
    raise LookupError(f"no format {type_} at {rate} Hz")
