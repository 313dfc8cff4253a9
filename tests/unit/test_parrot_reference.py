"""The reference against numbers worked out by hand from DESIGN §8; so it can be believed where the model differs."""

import numpy as np
import pytest

from duologue.testing.parrot_reference import UNIT, Reference, reference

pytestmark = pytest.mark.unit

DRAW_SEED_1_UNIT_7 = 0.8461927512397809
"""Philox 4x64-10, key (1, 2), counter (7, 0, 0, 0), first double."""


def clicks(pattern: str) -> np.ndarray:
    """Input of one unit a character: `L` a click of 0.5 in the first sample, else zeros.  A click makes its unit
    loud (RMS of the filtered unit 0.0114) and so, with the hangover, three units active."""
    pcm16 = np.zeros(len(pattern) * UNIT, np.int16)
    for unit, kind in enumerate(pattern):
        if kind == "L":
            pcm16[unit * UNIT] = 16384
    return pcm16


def timeline(answer: Reference) -> list[str]:
    """`.` listening, `!` interrupted, `u<m>` spoken."""
    kinds = [record["llm"] for record in answer.records]
    return [{0: ".", 1: f"u{m}", 2: "!"}[kind] for kind, m, _ in kinds]


def gain(k: int, d: float) -> float:
    return {1: 0.6, 2: 0.7, 3: 0.8, 4: 0.9}.get(k, 1.0) * (0.95 + 0.1 * d)


def test_an_utterance_is_repeated_after_five_inactive_units() -> None:
    answer = reference(clicks("..L.........."), seed=1)
    assert answer.active == [False] * 2 + [True] * 3 + [False] * 8
    # Active 2, 3, 4; the fifth inactive unit after them is 9, and speaks.
    assert timeline(answer) == ["."] * 9 + ["u2", "u3", "u4", "."]
    assert answer.texts == [""] * 9 + [" u2", " u3", " u4", ""]
    assert [record["llm"] for record in answer.records[8:11]] == [[0, 0, 0], [1, 2, 0], [1, 3, 0]]
    assert ["talker" in record for record in answer.records] == [text != "" for text in answer.texts]


def test_the_draw_is_that_of_seed_and_unit() -> None:
    answer = reference(clicks("L........."), seed=1)
    assert answer.records[7]["talker"] == DRAW_SEED_1_UNIT_7
    assert reference(clicks("L........."), seed=2**64 + 1).records == answer.records
    assert reference(clicks("L........."), seed=2).records[7]["talker"] != DRAW_SEED_1_UNIT_7


def test_the_first_samples_of_an_answer() -> None:
    answer = reference(clicks("L.........."), seed=1)
    # Filtered click: 0.5, 0 - 0.5 + 0.995 * 0.5 = -0.0025, 0.995 * -0.0025 = -0.0024875.
    # Low-pass of it: 0.15, 0.7 * 0.15 - 0.3 * 0.0025 = 0.10425, 0.7 * 0.10425 - 0.3 * 0.0024875 = 0.07222875.
    g = gain(1, DRAW_SEED_1_UNIT_7)
    assert answer.pcm16.dtype == np.int16
    assert answer.pcm16[7 * UNIT : 7 * UNIT + 3].tolist() == [
        round(z * g * 32768) for z in (0.15, 0.10425, 0.07222875)
    ]
    assert not answer.pcm16[: 7 * UNIT].any()


def test_the_gain_rises_over_five_units() -> None:
    answer = reference(clicks("LLLLLLL" + "." * 20), seed=5)
    assert timeline(answer)[13:22] == [f"u{m}" for m in range(9)]
    for k in range(1, 8):
        unit = 12 + k
        first = 0.15 * gain(k, answer.records[unit]["talker"]) * 32768
        # What the filters carry over from the unit before is below an LSB.
        assert abs(int(answer.pcm16[unit * UNIT]) - first) <= 1


def test_a_unit_is_loud_above_an_rms_of_a_hundredth() -> None:
    # A lone click of height h is filtered to h, -0.005 h, -0.005 * 0.995 h, …, whose energy is
    # h² (1 + 0.005² / (1 - 0.995²)) = 1.002506 h².  So the threshold is h = 0.01 * sqrt(1920 / 1.002506)
    # = 0.437630, which is 14340.3 LSB.
    pcm16 = np.zeros(UNIT, np.int16)
    pcm16[0] = 14340
    assert reference(pcm16, seed=0).active == [False]
    pcm16[0] = 14341
    assert reference(pcm16, seed=0).active == [True]


def test_a_constant_is_not_speech() -> None:
    # The step itself is loud (energy 0.25 / (1 - 0.995²)); what follows is a constant, which the filter removes.
    answer = reference(np.full(6 * UNIT, 16384, np.int16), seed=0)
    assert answer.active == [True, True, True, False, False, False]


def test_three_active_units_in_a_row_interrupt() -> None:
    answer = reference(clicks("LLL.......L..............."), seed=1)
    # Active 0 to 4, so u0 is spoken at 9.  The click at 10 makes 10, 11 and 12 active: the third interrupts.
    assert timeline(answer)[:19] == ["."] * 9 + ["u0", "u1", "u2", "!"] + ["."] * 4 + ["u10", "u11"]
    assert answer.records[12] == {"llm": [2, 0, 0]}
    assert answer.texts[12] == ""
    assert "u3" not in timeline(answer)


def test_speech_that_ends_before_the_third_active_unit_is_not_interrupted() -> None:
    answer = reference(clicks("L.......L........."), seed=1)
    # u0 to u2 are spoken at 7 to 9; the click's third active unit is 10, when nothing is left to interrupt.
    assert timeline(answer) == ["."] * 7 + ["u0", "u1", "u2"] + ["."] * 5 + ["u8", "u9", "u10"]


def test_pauses_of_four_units_join_what_is_around_them() -> None:
    answer = reference(clicks("L......L..........."), seed=1)
    # Active 0 to 2 and 7 to 9: four inactive units between them are too few.  The gap is not repeated.
    assert timeline(answer) == ["."] * 14 + ["u0", "u1", "u2", "u7", "u8"]


def test_the_codec_runs_on_through_silence_until_below_one_lsb() -> None:
    pcm16 = clicks("L..........")
    pcm16[3 * UNIT - 1] = 6554  # the last sample of the last active unit, too low to be loud
    answer = reference(pcm16, seed=1)
    g = gain(3, answer.records[9]["talker"])
    end = 0.3 * 6554 / 32768 * g
    tail = answer.pcm16[10 * UNIT - 1 : 11 * UNIT].tolist()
    assert tail == [round(end * 0.7**n * 32768) for n in range(UNIT + 1)]
    assert tail[20] != 0


def test_the_codec_is_silent_at_once_below_one_lsb() -> None:
    pcm16 = clicks("L..........")
    pcm16[3 * UNIT - 1] = 4
    answer = reference(pcm16, seed=5)
    # The last spoken sample is 0.3 * 4 * 0.8 = 0.96 LSB times the draw's gain, below one but rounded to one.  Run
    # on, the filter would give 0.67, again rounded to one.
    assert answer.records[9]["talker"] < 0.9
    assert answer.pcm16[10 * UNIT - 1] == 1
    assert not answer.pcm16[10 * UNIT :].any()


def test_loud_input_is_clipped() -> None:
    square = np.where(np.arange(UNIT * 6) // 480 % 2 == 0, 32767, -32768).astype(np.int16)
    answer = reference(np.concatenate([square, np.zeros(14 * UNIT, np.int16)]), seed=1)
    assert answer.pcm16.max() == 32767
    assert answer.pcm16.min() == -32768


def test_with_loop_the_talkers_draw_decides_what_comes_next() -> None:
    answer = reference(clicks("L..............."), seed=3, loop=True)
    # From unit 7 on: u0; odd, odd: u0 twice more; even: u1; odd, odd, odd: u1 three times more; even: u2, which
    # is the last and so never repeated.
    odd = [int(record["talker"] * 2**53) & 1 for record in answer.records if "talker" in record]
    assert odd[:-1] == [1, 1, 0, 1, 1, 1, 0]
    assert timeline(answer) == ["."] * 7 + ["u0", "u0", "u0", "u1", "u1", "u1", "u1", "u2", "."]
    # A repeated unit counts for the gain: the third u0 is the third spoken unit.
    for k in (1, 2, 3):
        first = 0.15 * gain(k, answer.records[6 + k]["talker"]) * 32768
        assert abs(int(answer.pcm16[(6 + k) * UNIT]) - first) <= 1


def test_what_the_context_drops_is_not_spoken() -> None:
    answer = reference(clicks("..L........"), seed=1, context_units=8)
    # At unit 8 the context starts at 4: of the heard 2, 3 and 4 only the last is left.
    assert timeline(answer) == ["."] * 9 + ["u4", "."]
    assert [record["llm"][2] for record in answer.records] == [0] * 8 + [4] * 3
    assert answer.pcm16[9 * UNIT : 10 * UNIT].tolist() == [0] * UNIT  # u4 is hangover


def test_a_trim_that_empties_the_queue_ends_the_utterance() -> None:
    answer = reference(clicks("L..........."), seed=1, context_units=8)
    assert timeline(answer) == ["."] * 7 + ["u0", ".", ".", ".", "."]
    assert [record["llm"] for record in answer.records[7:9]] == [[1, 0, 0], [0, 0, 4]]


def test_the_context_moves_on_by_half_its_budget() -> None:
    answer = reference(clicks("." * 18), seed=1, context_units=8)
    assert [record["llm"][2] for record in answer.records] == [0] * 8 + [4] * 4 + [8] * 4 + [12] * 2


def test_with_loop_a_dropped_unit_is_not_repeated() -> None:
    answer = reference(clicks("LLLLLLLL............"), seed=0, loop=True, context_units=16)
    # Active 0 to 9, spoken from 14 on.  The draws at 14 and 15 are odd: u0 again at 15; at 16 the context starts
    # at 8, and what would be u0 once more is u8, the first that is left.
    odd = [int(answer.records[unit]["talker"] * 2**53) & 1 for unit in (14, 15, 16)]
    assert odd == [1, 1, 0]
    assert timeline(answer)[14:] == ["u0", "u0", "u8", "u9", ".", "."]


def test_a_partial_unit_is_filled_with_zeros() -> None:
    whole = clicks("L............")
    answer = reference(whole[: 12 * UNIT + 1], seed=1)
    assert len(answer.records) == 13
    assert answer.pcm16.tolist() == reference(whole, seed=1).pcm16.tolist()
    assert reference(np.zeros(0, np.int16), seed=1).pcm16.shape == (0,)


@pytest.mark.parametrize("wrong", [np.zeros(10), np.zeros((2, UNIT), np.int16)])
def test_other_input_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"int16\[samples\]"):
        reference(wrong, seed=1)
