"""Audio between a client's format and the model's units: the same however it is cut, and nothing lost."""

from collections.abc import Iterable, Iterator
from itertools import cycle

import numpy as np
import numpy.typing as npt
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from duologue.audio.formats import FORMATS, PCM_16K, PCM_24K, PCMA, PCMU, Format
from duologue.audio.framing import OddBytes
from duologue.audio.resample import Resampler, grid, restart, to_rate
from duologue.audio.streams import InputStream, OutputStream
from duologue.testing.signals import speechlike

pytestmark = pytest.mark.unit

Pcm = npt.NDArray[np.int16]
PARROT = (24000, 1920)
SLOW = (16000, 16000)
"""(model's rate, samples of a unit)"""
PAIRS = [(8000, 24000), (16000, 24000), (24000, 8000), (24000, 16000), (8000, 16000), (16000, 8000)]
EVERY_FORMAT = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
EVERY_MODEL = pytest.mark.parametrize("model", [PARROT, SLOW], ids=["80 ms", "1 s"])
EVERY_PAIR = pytest.mark.parametrize(("rate", "target"), PAIRS)


def cut(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size


def units_of(form: Format, model: tuple[int, int], chunks: Iterable[bytes]) -> list[bytes]:
    stream = InputStream(form, *model)
    units = [unit for chunk in chunks for unit in stream.push(chunk)]
    return units + stream.flush()


def expected_units(form: Format, model: tuple[int, int], data: bytes) -> list[bytes]:
    """In one go, by the function that resamples whole recordings."""
    rate, unit = model
    pcm = form.decode(data)
    whole = np.concatenate([pcm, np.zeros(-len(pcm) % (unit * form.rate // rate), np.int16)])
    at_model = to_rate(whole, form.rate, rate).astype("<i2").tobytes()
    return [at_model[at : at + 2 * unit] for at in range(0, len(at_model), 2 * unit)]


# ---------------------------------------------------------------- cut anyhow


@EVERY_MODEL
@EVERY_FORMAT
@pytest.mark.parametrize("milliseconds", [0, 1, 20, 33, 80, 3000])
def test_units_do_not_depend_on_how_the_input_was_cut(
    form: Format, model: tuple[int, int], milliseconds: int
) -> None:
    data = form.encode(speechlike(2.03, 3, form.rate))
    size = max(1, milliseconds * form.rate // 1000) * form.sample_bytes
    units = units_of(form, model, cut(data, cycle([size])))
    assert units == expected_units(form, model, data)
    assert len(units) == -(-len(data) * model[0] // (form.bytes_per_s * model[1])), "n in, n out"


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(0, 900), min_size=1, max_size=8).filter(any), length=st.integers(0, 9000))
@EVERY_FORMAT
def test_any_cutting_gives_the_same_units(form: Format, sizes: list[int], length: int) -> None:
    data = form.encode(speechlike(1.2, 5, form.rate))[: length * form.sample_bytes]
    chunks = cut(data, cycle(size * form.sample_bytes for size in sizes))
    assert units_of(form, PARROT, chunks) == expected_units(form, PARROT, data)


@EVERY_FORMAT
def test_output_does_not_depend_on_how_it_was_cut(form: Format) -> None:
    pcm = speechlike(2.4, 7)
    stream = OutputStream(form, 24000)
    units = [stream.push(unit) for unit in cut(pcm.tobytes(), cycle([3840]))]
    last = stream.flush()
    assert b"".join(units) + last == form.encode(to_rate(pcm, 24000, form.rate))
    assert all(len(audio) % form.sample_bytes == 0 for audio in (*units, last))
    assert len(b"".join(units) + last) == len(pcm) * form.bytes_per_s // 24000, "n in, n out"
    assert (last == b"") == (form is PCM_24K)


def test_equal_rates_pass_through() -> None:
    data = speechlike(0.4, 2).tobytes()
    assert b"".join(units_of(PCM_24K, PARROT, [data])) == data
    stream = OutputStream(PCM_24K, 24000)
    assert (stream.push(data), stream.flush()) == (data, b"")
    at_16k = speechlike(2.0, 2, 16000).tobytes()
    assert b"".join(units_of(PCM_16K, SLOW, [at_16k])) == at_16k


@EVERY_FORMAT
def test_nothing_makes_nothing(form: Format) -> None:
    stream = InputStream(form, *PARROT)
    assert stream.push(b"") == []
    assert stream.flush() == []
    assert OutputStream(form, 24000).flush() == b""


def test_silence_stays_exact_zeros() -> None:
    for form in (PCM_24K, PCM_16K, PCMU):
        data = form.encode(np.zeros(form.rate, np.int16))
        assert set(b"".join(units_of(form, PARROT, [data]))) == {0}
    for form in FORMATS:
        out = OutputStream(form, 24000)
        assert out.push(bytes(48000)) + out.flush() == form.encode(np.zeros(form.rate, np.int16))


@pytest.mark.parametrize("form", [PCM_24K, PCM_16K], ids=lambda form: form.name)
def test_an_odd_append_is_refused_whole(form: Format) -> None:
    stream = InputStream(form, *PARROT)
    data = speechlike(0.3, 4, form.rate).tobytes()
    before = stream.push(data[:2000])
    with pytest.raises(OddBytes, match="1999 bytes"):
        stream.push(data[:1999])
    assert stream.samples == 1000
    after = stream.push(data[2000:]) + stream.flush()
    assert before + after == expected_units(form, PARROT, data)


@EVERY_FORMAT
def test_muted_samples_are_zeros_and_count(form: Format) -> None:
    pcm = speechlike(1.0, 6, form.rate)
    data, width = form.encode(pcm), form.sample_bytes
    first, last = 1001 * form.rate // 8000, 5003 * form.rate // 8000
    stream = InputStream(form, *PARROT)
    units = stream.push(data[: first * width])
    units += stream.push(data[first * width : last * width], silent=True)
    units += stream.push(data[last * width :])
    assert stream.samples == len(pcm)
    heard = form.decode(data).copy()
    heard[first:last] = 0
    # What was muted does not pass the codec, which has no zero in A-law.
    rate, unit = PARROT
    whole = np.concatenate([heard, np.zeros(-len(heard) % (unit * form.rate // rate), np.int16)])
    assert b"".join(units + stream.flush()) == to_rate(whole, form.rate, rate).tobytes()


def test_a_unit_has_whole_samples_at_both_rates() -> None:
    assert InputStream(PCMU, *PARROT).unit == 640
    assert InputStream(PCM_24K, *SLOW).unit == 24000
    with pytest.raises(ValueError, match="1921 at 24000 Hz is not whole at 8000 Hz"):
        InputStream(PCMU, 24000, 1921)


# ---------------------------------------------------------------- how late


@pytest.mark.parametrize(
    ("form", "model", "most_in_ms", "most_out_ms"),
    [
        (PCM_24K, PARROT, 0, 0),
        (PCM_16K, SLOW, 0, 0),
        (PCM_16K, PARROT, 40, 37),
        (PCM_24K, SLOW, 40, 37),
        (PCMU, PARROT, 80, 74),
        (PCMA, SLOW, 120, 116),
    ],
)
def test_how_much_is_held_back(
    form: Format, model: tuple[int, int], most_in_ms: float, most_out_ms: float
) -> None:
    """The figures of docs/protocol.md, in time of the input."""
    rate, unit = model
    stream, unit_ms, units = InputStream(form, *model), 1000 * unit / rate, 0
    late: list[float] = []
    for millisecond in range(1, 10_001):
        for _ in stream.push(bytes(form.bytes_per_s // 1000)):
            units += 1
            late.append(millisecond - units * unit_ms)
    assert min(late) >= 0
    assert max(late) <= most_in_ms
    out, given_ms, got = OutputStream(form, rate), 0, 0
    held: list[float] = []
    for _ in range(200):
        got += len(out.push(bytes(2 * rate * 40 // 1000)))
        given_ms += 40
        held.append(given_ms - 1000 * got / form.bytes_per_s)
    assert min(held) >= 0
    assert max(held) <= most_out_ms


# ---------------------------------------------------------------- the resampler


def sweep(rate: int, seconds: float = 2.0) -> npt.NDArray[np.float64]:
    """A sine from 50 Hz to 3.4 kHz at half of full scale."""
    t = np.arange(round(rate * seconds)) / rate
    phase = 2 * np.pi * (50 * t + (3400 - 50) / (2 * seconds) * t**2)
    wave: npt.NDArray[np.float64] = 0.5 * np.sin(phase)
    return wave


@EVERY_PAIR
def test_a_stream_is_as_good_as_the_whole(rate: int, target: int) -> None:
    """Before the rounding the two differ by nothing at all; after it, a stream in double precision tells how much the
    whole of it costs."""
    pcm = np.rint(sweep(rate) * 32767).astype(np.int16)
    resampler = Resampler(rate, target)
    got = [resampler.push(pcm[at : at + 160]) for at in range(0, len(pcm), 160)]
    streamed = np.concatenate([*got, resampler.flush()])
    whole = soxr.resample(pcm.astype(np.float32) / 32768, rate, target, quality="HQ")
    assert len(streamed) == len(whole)
    noise = streamed / 32768 - np.rint(whole.astype(np.float64) * 32768) / 32768
    assert snr_db(whole, noise) >= 100
    exact = soxr.resample(pcm / 32768, rate, target, quality="VHQ")
    rounding = np.rint(exact * 32768) / 32768 - exact
    middle = slice(target // 10, -target // 10)
    assert (
        snr_db(exact[middle], (streamed / 32768 - exact)[middle])
        >= snr_db(exact[middle], rounding[middle]) - 0.5
    )


def snr_db(signal: npt.NDArray[np.floating], noise: npt.NDArray[np.floating]) -> float:
    power = float(np.square(noise, dtype=np.float64).mean())
    return (
        float("inf")
        if power == 0
        else 10 * np.log10(float(np.square(signal, dtype=np.float64).mean()) / power)
    )


@EVERY_PAIR
def test_a_sweep_comes_back(rate: int, target: int) -> None:
    pcm = np.rint(sweep(rate) * 32767).astype(np.int16)
    back = to_rate(to_rate(pcm, rate, target), target, rate)
    middle = slice(rate // 10, -rate // 10)
    assert np.abs(back.astype(int) - pcm)[middle].max() <= 2


@EVERY_PAIR
@settings(max_examples=10)
@given(at=st.integers(0, 4 * 24000))
def test_a_resampler_that_begins_later_goes_on_alike(rate: int, target: int, at: int) -> None:
    rng = np.random.default_rng(rate + target)
    pcm = rng.integers(-20000, 20000, 6 * rate).astype(np.int16)
    at = min(at, 5 * rate)
    start = restart(rate, target, at)
    assert start % grid(rate, target) == 0
    assert 0 <= at - start < 2 * grid(rate, target)
    old, new = Resampler(rate, target), Resampler(rate, target)
    before, after = old.push(pcm), new.push(pcm[start:])
    skipped = start * target // rate
    first = -(-at * target // rate)
    assert first < len(before)
    assert np.array_equal(before[first:], after[first - skipped :])


@pytest.mark.parametrize(("rate", "target"), PAIRS)
def test_the_grid_is_whole_at_both_rates_and_short(rate: int, target: int) -> None:
    samples = grid(rate, target)
    assert samples * target % rate == 0
    assert samples < 0.2 * rate
