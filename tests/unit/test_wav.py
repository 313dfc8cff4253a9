"""WAV files of every sample format; the expected samples are written by hand."""

import gc
import io
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from duologue.audio.wav import NotWav, parse_wav, read_wav, write_wav

pytestmark = pytest.mark.unit

GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WAVE"
    for name, data in chunks:
        body += name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def form(tag: int, bits: int, channels: int = 1, rate: int = 8000) -> tuple[bytes, bytes]:
    block = channels * bits // 8
    return b"fmt ", struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, bits)


def extensible(tag: int, bits: int, used: int) -> tuple[bytes, bytes]:
    head = form(0xFFFE, bits)[1]
    return b"fmt ", head + struct.pack("<HHIH", 22, used, 4, tag) + GUID_TAIL


@pytest.mark.parametrize(
    ("fmt", "data", "expected"),
    [
        (form(1, 8), bytes([0, 128, 192]), [-1.0, 0.0, 0.5]),
        (form(1, 16), struct.pack("<3h", -32768, 1, 16384), [-1.0, 1 / 32768, 0.5]),
        (form(1, 24), b"\0\0\x80" + b"\0\0\x40" + b"\xff\xff\xff", [-1.0, 0.5, -(2.0**-23)]),
        (form(1, 32), struct.pack("<2i", -(2**31), 2**30), [-1.0, 0.5]),
        (form(3, 32), struct.pack("<2f", 0.25, -1.5), [0.25, -1.5]),
        (form(3, 64), struct.pack("<2d", 0.25, -0.5), [0.25, -0.5]),
        (extensible(1, 24, 20), b"\0\0\xc0", [-0.5]),
        (extensible(3, 32, 32), struct.pack("<f", 0.125), [0.125]),
        (form(1, 16, channels=2), struct.pack("<4h", 16384, 0, -32768, 32767), [0.25, -0.5 / 32768]),
    ],
)
def test_every_sample_format(fmt: tuple[bytes, bytes], data: bytes, expected: list[float]) -> None:
    recording = parse_wav(riff(fmt, (b"data", data)))
    assert recording.rate == 8000
    assert recording.samples.dtype == np.float32
    assert recording.samples.tolist() == expected


def test_chunks_around_the_audio_are_skipped() -> None:
    odd = (b"LIST", b"abc")
    found = parse_wav(riff(odd, form(1, 16), odd, (b"data", struct.pack("<h", 7)), odd))
    assert (found.samples * 32768).tolist() == [7]


def test_a_streamed_file_without_a_size_goes_to_its_end() -> None:
    for size in (0, 0xFFFFFFFF):
        head = riff(form(1, 16))
        file = head + b"data" + struct.pack("<I", size) + struct.pack("<2h", 1, 2) + b"\x05"
        assert (parse_wav(file).samples * 32768).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no RIFF/WAVE"),
        (b"ID3" + bytes(100), "no RIFF/WAVE"),
        (riff(), "no format"),
        (riff(form(1, 16)), "no audio data"),
        (riff((b"data", b"ab"), form(1, 16)), "before the format"),
        (riff(form(0x55, 16), (b"data", b"ab")), "compressed"),
        (riff(form(1, 64), (b"data", bytes(8))), "64 bit"),
        (riff(form(3, 16), (b"data", bytes(8))), "float samples of 16 bit"),
        (riff(form(1, 16, rate=0), (b"data", b"ab")), "0 Hz"),
        (riff((b"fmt ", b"short"), (b"data", b"ab")), "cut off"),
        (riff((b"fmt ", form(0xFFFE, 16)[1]), (b"data", b"ab")), "cut off"),
        (riff(form(3, 32), (b"data", struct.pack("<f", float("nan")))), "not finite"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, says: str) -> None:
    with pytest.raises(NotWav, match=says):
        parse_wav(data)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    pcm = np.array([-32768, -1, 0, 1, 32767], np.int16)
    write_wav(tmp_path / "a.wav", pcm, 24000)
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate(), file.getnframes()) == (
            1,
            2,
            24000,
            5,
        )
    found = read_wav(tmp_path / "a.wav")
    assert found.rate == 24000
    assert found.seconds == 5 / 24000
    assert (found.samples * 32768).tolist() == pcm.tolist()


def test_writes_to_a_file_object_and_refuses_other_arrays() -> None:
    target = io.BytesIO()
    write_wav(target, np.array([3], np.int16), 8000)
    assert (parse_wav(target.getvalue()).samples * 32768).tolist() == [3]
    with pytest.raises(ValueError, match="float64"):
        write_wav(target, np.zeros(3), 8000)  # type: ignore[arg-type]


def test_the_file_is_named_in_errors(tmp_path: Path) -> None:
    (tmp_path / "talk.mp3").write_bytes(b"ID3")
    with pytest.raises(NotWav, match=r"talk\.mp3"):
        read_wav(tmp_path / "talk.mp3")
    with pytest.raises(FileNotFoundError):
        read_wav(tmp_path / "absent.wav")


def test_a_file_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    """`wave` printed a traceback of its own, from `__del__`, beside the error."""
    with pytest.raises(FileNotFoundError):
        write_wav(tmp_path / "missing" / "a.wav", np.zeros(3, np.int16), 8000)
    gc.collect()
