"""The test signals are what their names say, and the same every time."""

import numpy as np
import pytest

from duologue.testing.signals import RATE, bursts, speechlike

pytestmark = pytest.mark.unit


def test_speechlike_is_talk_and_pauses() -> None:
    signal = speechlike(20, seed=4)
    assert signal.dtype == np.int16
    assert signal.shape == (20 * RATE,)
    blocks = np.abs(signal.reshape(-1, RATE // 10)).max(axis=1)
    assert (blocks > 1000).any()
    quiet = blocks <= 2
    assert 0.2 < quiet.mean() < 0.8
    assert (blocks == 0).any()
    assert (quiet & (blocks > 0)).any()
    assert np.abs(signal).max() < 32767


def test_signals_depend_on_the_seed_alone() -> None:
    assert np.array_equal(speechlike(3, seed=1), speechlike(3, seed=1))
    assert not np.array_equal(speechlike(3, seed=1), speechlike(3, seed=2))
    parts = [(0.5, True), (0.5, False)]
    assert np.array_equal(bursts(parts, seed=1), bursts(parts, seed=1))
    assert not np.array_equal(bursts(parts, seed=1), bursts(parts, seed=2))


def test_bursts_are_loud_where_asked() -> None:
    signal = bursts([(0.8, False), (0.4, True), (0.8, False), (0.08, True)], seed=3)
    rms = np.sqrt(np.mean((signal.reshape(-1, 1920) / 32768) ** 2, axis=1))
    assert rms.shape == (26,)
    loud = [False] * 10 + [True] * 5 + [False] * 10 + [True]
    assert (rms > 0.02).tolist() == loud
    assert (rms == 0).tolist() == [not is_loud for is_loud in loud]


def test_no_parts_are_no_samples() -> None:
    assert bursts([], seed=1).shape == (0,)
