"""Framing: any chunking gives the same units."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue.audio.framing import Framer, OddBytes

pytestmark = pytest.mark.unit


@given(
    samples=st.lists(st.integers(-32768, 32767), max_size=100),
    unit=st.integers(1, 30),
    chunks=st.lists(st.integers(0, 25), max_size=60),
)
def test_any_chunking_gives_the_same_units(samples: list[int], unit: int, chunks: list[int]) -> None:
    data = np.array(samples, "<i2").tobytes()
    framer = Framer(unit)
    units, at = [], 0
    for size in [*chunks, len(samples)]:
        units += framer.push(data[at : at + 2 * size])
        at = min(at + 2 * size, len(data))
        assert framer.pending == (at // 2) % unit
    last = framer.flush()

    padded = data + bytes(-len(data) % (2 * unit))
    expected = [padded[i : i + 2 * unit] for i in range(0, len(padded), 2 * unit)]
    assert units + ([last] if last else []) == expected
    assert (last is None) == (len(samples) % unit == 0)
    assert framer.flush() is None


def test_an_odd_append_is_refused_whole() -> None:
    framer = Framer(2)
    assert framer.push(b"\1\2") == []
    with pytest.raises(OddBytes):
        framer.push(b"\3\4\5")
    assert framer.push(b"\6\7") == [b"\1\2\6\7"]


def test_a_unit_has_samples() -> None:
    with pytest.raises(ValueError, match="0 samples"):
        Framer(0)
