"""One-shot resampling: identity, level, length, rounding and clipping."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue.audio.resample import to_rate

pytestmark = pytest.mark.unit


@given(st.lists(st.integers(-32768, 32767), max_size=200))
def test_equal_rates_change_nothing(values: list[int]) -> None:
    pcm = np.array(values, np.int16)
    assert to_rate(pcm, 24000, 24000).tolist() == values
    assert to_rate(pcm.astype(np.float32) / 32768, 24000, 24000).tolist() == values


@pytest.mark.parametrize(("rate", "target"), [(8000, 24000), (16000, 24000), (48000, 24000), (44100, 16000)])
def test_a_tone_keeps_its_level_and_length(rate: int, target: int) -> None:
    tone = (0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)).astype(np.float32)
    got = to_rate(tone, rate, target)
    assert got.dtype == np.int16
    assert abs(len(got) - target) <= 1
    middle = slice(target // 10, -target // 10)
    expected = 16384 * np.sin(2 * np.pi * 440 * np.arange(len(got)) / target)
    assert np.abs(got[middle] - expected[middle]).max() < 4


def test_rounds_once_and_clips() -> None:
    assert to_rate(np.array([1.5, -1.5, 0.6 / 32768, -1.4 / 32768]), 8000, 8000).tolist() == [
        32767,
        -32768,
        1,
        -1,
    ]


def test_refuses_what_is_not_mono_audio() -> None:
    with pytest.raises(ValueError, match="mono"):
        to_rate(np.zeros((2, 2), np.int16), 8000, 16000)
    with pytest.raises(ValueError, match="int32"):
        to_rate(np.zeros(2, np.int32), 8000, 16000)
    with pytest.raises(ValueError, match="0 Hz"):
        to_rate(np.zeros(2, np.int16), 0, 16000)
