"""A session's audio between its client's format and the model's units.

The grid is the client's: unit u is samples u · n to (u + 1) · n of what the client sends and gets, whatever a resampler
holds back meanwhile.
"""

import numpy as np

from duologue.audio.formats import Format
from duologue.audio.framing import Framer, OddBytes
from duologue.audio.resample import Resampler

BLOCK_S = 0.020
"""Input is resampled in blocks of at most so long, cut on the grid of units: as a telephone's packets come."""


class InputStream:
    """From bytes of `form` to int16 units of `unit_samples` at `model_rate`.

    What comes out depends on the samples alone and not on how they were cut.  Nothing but whole samples, an incomplete
    block and what `Resampler` holds back is kept.  So a unit is complete at once where the rates are equal, else later
    than its last sample: 20 to 40 ms between 16 and 24 kHz, 20 to 80 ms (53 in the mean) from 8 to 24 kHz, 20 to
    120 ms from 8 to 16 kHz.
    """

    def __init__(self, form: Format, model_rate: int, unit_samples: int) -> None:
        """Raises `ValueError` where a unit is no whole number of the client's samples."""
        self.unit, part = divmod(unit_samples * form.rate, model_rate)
        """The client's samples of a unit."""
        if part:
            raise ValueError(f"a unit of {unit_samples} at {model_rate} Hz is not whole at {form.rate} Hz")
        self.samples = 0
        """The client's samples so far."""
        self._form = form
        self._framer = Framer(unit_samples)
        self._resampler = Resampler(form.rate, model_rate) if form.rate != model_rate else None
        self._block = 2 * _block(self.unit, round(BLOCK_S * form.rate))
        self._rest = bytearray()

    def push(self, data: bytes, *, silent: bool = False) -> list[bytes]:
        """The units that `data` completes, zeros in the place of its samples if `silent`.  Raises `OddBytes` and takes
        nothing."""
        samples, odd = divmod(len(data), self._form.sample_bytes)
        if odd:
            raise OddBytes(f"{len(data)} bytes are no whole number of int16 samples")
        self.samples += samples
        pcm = bytes(2 * samples) if silent else self._form.decode(data).astype("<i2", copy=False).tobytes()
        if self._resampler is None:
            return self._framer.push(pcm)
        self._rest += pcm
        return self._resample(self._resampler)

    def flush(self) -> list[bytes]:
        """The units that are left, zeros at the end of the last one.  Nothing can be pushed afterwards."""
        if self._resampler is None:
            unit = self._framer.flush()
            return [] if unit is None else [unit]
        if not self.samples:
            return []
        self._rest += bytes(2 * (-self.samples % self.unit))
        units = self._resample(self._resampler)
        return units + self._framer.push(self._resampler.flush().astype("<i2", copy=False).tobytes())

    def _resample(self, resampler: Resampler) -> list[bytes]:
        whole = len(self._rest) // self._block * self._block
        if not whole:
            return []
        blocks = np.frombuffer(bytes(self._rest[:whole]), "<i2").astype(np.int16, copy=False)
        del self._rest[:whole]
        return self._framer.push(resampler.push(blocks).astype("<i2", copy=False).tobytes())


class OutputStream:
    """From int16 units at `model_rate` to bytes of `form`.

    Where the rates differ, the last 6 to 37 ms (between 16 and 24 kHz), 12 to 73 ms (43 in the mean; from 24 to 8 kHz)
    or 12 to 115 ms (from 16 to 8 kHz) of a unit come with the next one, or with `flush`.
    """

    def __init__(self, form: Format, model_rate: int) -> None:
        self._form = form
        self._resampler = Resampler(model_rate, form.rate) if form.rate != model_rate else None
        self._began = False

    def push(self, pcm: bytes) -> bytes:
        """int16 little-endian → what is certain by now, which may be nothing."""
        samples = np.frombuffer(pcm, "<i2").astype(np.int16, copy=False)
        self._began = True
        if self._resampler is not None:
            samples = self._resampler.push(samples)
        return self._form.encode(samples)

    def flush(self) -> bytes:
        """What was held back.  Nothing can be pushed afterwards."""
        if self._resampler is None or not self._began:
            return b""
        return self._form.encode(self._resampler.flush())


def _block(unit: int, most: int) -> int:
    """The longest whole part of `unit` that is not above `most`."""
    return next(size for size in range(min(unit, most), 0, -1) if unit % size == 0)
