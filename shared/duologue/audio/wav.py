"""WAV files: any PCM in as mono, int16 out.

Reading parses RIFF itself: the standard `wave` has neither float samples nor, before Python 3.12, the extensible
header.  Layout: Microsoft, "Multiple Channel Audio Data and WAVE Files" (WAVEFORMATEXTENSIBLE).
"""

import struct
import wave
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

PCM, FLOAT, EXTENSIBLE = 0x0001, 0x0003, 0xFFFE
"""Format tags of WAVEFORMATEX."""


class NotWav(ValueError):
    """Not a WAV file that can be read here; says why."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Mono audio: `samples` float32 [n], full scale 1.0 (int16 samples are exact), at `rate` Hz."""

    rate: int
    samples: npt.NDArray[np.float32]

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


@dataclass(frozen=True, slots=True)
class _Format:
    tag: int
    channels: int
    rate: int
    bits: int
    """Bits of a sample's container, which are more than those in use for e.g. 20-bit samples."""


def read_wav(path: str | Path) -> Recording:
    """The recording at `path`, its channels averaged.  Integers of 8, 16, 24 or 32 bit and floats of 32 or 64 bit,
    plain or extensible.  A last frame that is cut off is left out, and a data size that a streaming writer
    could not fill in means "to the end of the file".  Raises `NotWav`, `OSError`."""
    try:
        return parse_wav(Path(path).read_bytes())
    except NotWav as error:
        raise NotWav(f"{path}: {error}") from None


def parse_wav(data: bytes) -> Recording:
    """`read_wav` of a file's content.  Raises `NotWav`."""
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise NotWav("not a WAV file (no RIFF/WAVE header)")
    found: _Format | None = None
    for name, chunk in _chunks(data):
        if name == b"fmt ":
            found = _parse_format(chunk)
        elif name == b"data":
            if found is None:
                raise NotWav("the data come before the format")
            return Recording(found.rate, _mono(chunk, found))
    raise NotWav("no audio data in the file" if found else "no format in the file")


def write_wav(target: str | Path | BinaryIO, pcm16: npt.NDArray[np.int16], rate: int) -> None:
    """Writes mono int16 [n] at `rate` Hz.  Raises `OSError`."""
    if pcm16.dtype != np.int16 or pcm16.ndim != 1:
        raise ValueError(f"int16 [n] is written, not {pcm16.dtype} {list(pcm16.shape)}")
    with ExitStack() as stack:
        # `wave` leaves a traceback on standard error where it can't open a file itself.
        raw = stack.enter_context(open(target, "wb")) if isinstance(target, str | Path) else target
        file = stack.enter_context(wave.open(raw, "wb"))
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm16.astype("<i2").tobytes())


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    view, at = memoryview(data), 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        at += 8
        if name == b"data" and size == 0:
            size = len(data) - at
        yield name, view[at : at + size]
        at += size + size % 2


def _parse_format(chunk: memoryview) -> _Format:
    if len(chunk) < 16:
        raise NotWav("the format chunk is cut off")
    tag, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", chunk)
    if tag == EXTENSIBLE:
        if len(chunk) < 40:
            raise NotWav("the extensible format chunk is cut off")
        (tag,) = struct.unpack_from("<H", chunk, 24)
    if tag not in (PCM, FLOAT):
        raise NotWav(f"compressed audio (format {tag:#06x}); convert it to PCM first")
    if channels == 0 or rate == 0:
        raise NotWav(f"{channels} channels at {rate} Hz")
    container = block * 8 // channels if block else bits
    if container not in ((32, 64) if tag == FLOAT else (8, 16, 24, 32)):
        raise NotWav(f"{'float' if tag == FLOAT else 'integer'} samples of {container} bit")
    return _Format(tag, channels, rate, container)


def _mono(chunk: memoryview, form: _Format) -> npt.NDArray[np.float32]:
    width = form.bits // 8
    frames = len(chunk) // (width * form.channels)
    raw = chunk[: frames * width * form.channels]
    if form.tag == FLOAT:
        wide = np.frombuffer(raw, f"<f{width}").astype(np.float64)
        if not np.isfinite(wide).all():
            raise NotWav("samples that are not finite")
    elif width == 1:
        wide = (np.frombuffer(raw, np.uint8).astype(np.float64) - 128) / 128
    elif width == 3:
        # The three bytes become the upper ones of an int32, so that the sign is right.
        padded = np.zeros((frames * form.channels, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        wide = padded.reshape(-1).view("<i4") / 2.0**31
    else:
        wide = np.frombuffer(raw, f"<i{width}") / 2.0 ** (form.bits - 1)
    mono: npt.NDArray[np.float32] = wide.reshape(frames, form.channels).mean(axis=1).astype(np.float32)
    return mono
