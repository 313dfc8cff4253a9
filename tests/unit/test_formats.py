"""The formats: G.711 against its bit formulas, and what can't be decoded."""

import numpy as np
import pytest

from duologue.audio.formats import FORMATS, PCM_16K, PCM_24K, PCMA, PCMU, Format, format_of
from duologue.audio.framing import OddBytes

pytestmark = pytest.mark.unit

EVERY_SAMPLE = np.arange(-32768, 32768).astype(np.int16)
CODES = bytes(range(256))
LAWS = pytest.mark.parametrize("form", [PCMU, PCMA], ids=lambda form: form.name)
NEGATIVE_ZERO = 0x7F
"""The µ-law code that means zero, too, and is not made of it."""


def mu_of(sample: int) -> int:
    """µ-law by shifts: 14 bits of magnitude, a bias, the segment by the place of the highest bit."""
    magnitude = min((~sample if sample < 0 else sample) >> 2, 8158) + 33
    segment = magnitude.bit_length() - 6
    step = (magnitude >> (segment + 1)) & 15
    return ~(segment << 4 | step | (0x80 if sample < 0 else 0)) & 0xFF


def linear_of_mu(code: int) -> int:
    code = ~code & 0xFF
    magnitude = (((code & 15) << 1 | 33) << (code >> 4 & 7)) - 33
    return 4 * (-magnitude if code & 0x80 else magnitude)


def a_of(sample: int) -> int:
    """A-law by shifts: 12 bits of magnitude; its first segment has no leading one."""
    magnitude = (~sample if sample < 0 else sample) >> 4
    segment = max(0, magnitude.bit_length() - 4)
    step = (magnitude >> max(0, segment - 1)) & 15
    return (segment << 4 | step | (0 if sample < 0 else 0x80)) ^ 0x55


def linear_of_a(code: int) -> int:
    code ^= 0x55
    segment, step = code >> 4 & 7, code & 15
    magnitude = (step << 4) + 8 if segment == 0 else ((step << 4) + 0x108) << (segment - 1)
    return magnitude if code & 0x80 else -magnitude


def test_mu_law_is_its_bit_formula() -> None:
    assert PCMU.decode(CODES).tolist() == [linear_of_mu(code) for code in CODES]
    assert list(PCMU.encode(EVERY_SAMPLE)) == [mu_of(int(sample)) for sample in EVERY_SAMPLE]


def test_a_law_is_its_bit_formula() -> None:
    assert PCMA.decode(CODES).tolist() == [linear_of_a(code) for code in CODES]
    assert list(PCMA.encode(EVERY_SAMPLE)) == [a_of(int(sample)) for sample in EVERY_SAMPLE]


@LAWS
def test_every_code_comes_back(form: Format) -> None:
    back = form.encode(form.decode(CODES))
    changed = [code for code in range(256) if back[code] != code]
    assert changed == ([NEGATIVE_ZERO] if form is PCMU else [])
    assert form.decode(back).tolist() == form.decode(CODES).tolist()


@pytest.mark.parametrize(("form", "full", "finest"), [(PCMU, 32124, 8), (PCMA, 32256, 16)])
def test_an_error_is_half_a_step(form: Format, full: int, finest: int) -> None:
    """Steps are 1/16 of their segment, and the first segment has the finest."""
    coded = form.decode(form.encode(EVERY_SAMPLE)).astype(int)
    within = np.abs(EVERY_SAMPLE.astype(int)) <= full
    error = np.abs(coded - EVERY_SAMPLE)[within]
    assert (error <= np.maximum(finest, np.abs(EVERY_SAMPLE.astype(int))[within] / 32 + finest)).all()
    assert (coded.min(), coded.max()) == (-full, full)
    assert (np.diff(coded) >= 0).all()


def test_silence() -> None:
    zero = np.zeros(3, np.int16)
    assert [form.encode(zero) for form in FORMATS] == [bytes(6), bytes(6), b"\xff" * 3, b"\xd5" * 3]
    assert [form.silence for form in FORMATS] == [0, 0, 0, 8]


@pytest.mark.parametrize("form", [PCM_24K, PCM_16K], ids=lambda form: form.name)
def test_pcm_is_as_it_is(form: Format) -> None:
    data = EVERY_SAMPLE.astype("<i2").tobytes()
    assert form.decode(data).tolist() == EVERY_SAMPLE.tolist()
    assert form.encode(EVERY_SAMPLE) == data
    assert form.encode(EVERY_SAMPLE[::2]) == EVERY_SAMPLE[::2].astype("<i2").tobytes()
    with pytest.raises(OddBytes, match="3 bytes"):
        form.decode(b"\1\2\3")


@LAWS
def test_companded_audio_has_any_number_of_bytes(form: Format) -> None:
    assert [len(form.decode(bytes(size))) for size in range(4)] == [0, 1, 2, 3]
    assert form.encode(EVERY_SAMPLE[::3]) == bytes(form.encode(EVERY_SAMPLE))[::3]


def test_only_int16_is_encoded() -> None:
    for form in FORMATS:
        with pytest.raises(ValueError, match="float64"):
            form.encode(np.zeros(2))


def test_the_formats_there_are() -> None:
    assert [(form.name, form.type, form.rate, form.bytes_per_s) for form in FORMATS] == [
        ("pcm24k", "audio/pcm", 24000, 48000),
        ("pcm16k", "audio/pcm", 16000, 32000),
        ("pcmu", "audio/pcmu", 8000, 8000),
        ("pcma", "audio/pcma", 8000, 8000),
    ]
    assert [format_of(form.type, form.rate) for form in FORMATS] == list(FORMATS)
    for type_, rate in (("audio/pcm", 8000), ("audio/pcmu", 16000), ("audio/opus", 48000)):
        with pytest.raises(LookupError):
            format_of(type_, rate)
