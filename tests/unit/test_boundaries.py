"""What is kept of a session's stage boundaries, and what is said about what is not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duologue.boundaries import UNIT_BYTES, Boundaries, save
from duologue.bus import messages as m
from duologue.models import manifest

pytestmark = pytest.mark.unit

PARROT = manifest("parrot")
UNIT = PARROT.unit_samples


def envelope(
    unit: int,
    src: str = "root",
    dst: str = "encoder",
    epoch: m.Epoch = (1, 1),
    body: m.AnyBody | None = None,
    **fields: Any,
) -> m.Envelope:
    return m.Envelope(m.WIRE, "live_1", src, dst, unit, epoch, (1, 2), body or m.Audio(), **fields)


def audio(value: int) -> m.Audio:
    return m.Audio.of({"pcm": np.full(UNIT, value, np.int16)})


def test_arrays_are_stacked_in_unit_order_and_samples_run_on() -> None:
    kept = Boundaries(PARROT)
    for unit in (1, 0, 2):
        kept.take(envelope(unit, body=audio(unit)))
        features = m.Features.of({"feature": np.full(UNIT, float(unit))}) if unit else m.Features()
        kept.take(envelope(unit, "encoder", "llm", body=features))
    arrays = kept.arrays()
    assert arrays["input_pcm16"].tolist() == [0] * UNIT + [1] * UNIT + [2] * UNIT
    assert arrays["features"].shape == (3, UNIT)
    assert arrays["features"][:, 0].tolist() == [0, 1, 2]
    assert arrays["active"].tolist() == [False, True, True]
    assert kept.records() == [{"unit": 0}, {"unit": 1}, {"unit": 2}]
    assert not kept.holes


def test_records_gather_along_the_way() -> None:
    kept = Boundaries(PARROT)
    kept.take(envelope(0, "llm", "talker", body=m.Condition(), records={"llm": [1, 2, 0]}, text=" u2"))
    kept.take(envelope(0, "talker", "codec", body=m.Codes(), records={"llm": [1, 2, 0], "talker": 0.5}))
    assert kept.records() == [{"unit": 0, "llm": [1, 2, 0], "talker": 0.5, "text": " u2"}]


def test_the_highest_epoch_counts() -> None:
    """A fenced owner goes on sending for a while; what it says is not what the session heard."""
    kept = Boundaries(PARROT)
    for epoch, value in (((1, 1), 1), ((1, 4), 4), ((1, 2), 2), ((1, 4), 5)):
        kept.take(envelope(0, epoch=epoch, body=audio(value), records={"llm": value}))
    assert set(kept.arrays()["input_pcm16"]) == {5}
    assert kept.records() == [{"unit": 0, "llm": 5}]


def test_transcripts_stand_in_the_records() -> None:
    kept = Boundaries(PARROT)
    kept.take(envelope(0, text=" a", heard=(m.Heard(" b", 0, 1), m.Heard(" c", 1, 2))))
    assert kept.records() == [{"unit": 0, "text": " a", "heard": [[" b", 0, 1], [" c", 1, 2]]}]


def test_a_unit_sent_again_takes_no_more_room() -> None:
    kept = Boundaries(PARROT)
    for _ in range(3):
        kept.take(envelope(0, body=audio(1)))
    assert kept.bytes == UNIT_BYTES + 2 * UNIT


def test_units_that_were_not_seen_are_named() -> None:
    kept = Boundaries(PARROT)
    for unit in (0, 1, 3):
        kept.take(envelope(unit, body=audio(unit)))
    for unit in (0, 1):
        kept.take(envelope(unit, "encoder", "llm", body=m.Features()))
    assert kept.holes
    assert kept.records() == [
        {"unit": 0},
        {"unit": 1},
        {"unit": 2, "missing": ["active", "features", "input_pcm16"]},
        {"unit": 3, "missing": ["active", "features"]},
    ]


def test_an_end_in_the_middle_is_no_hole() -> None:
    kept = Boundaries(PARROT)
    for unit in range(3):
        kept.take(envelope(unit, body=audio(unit)))
    kept.take(envelope(0, "encoder", "llm", body=m.Features()))
    assert not kept.holes
    assert [record.get("missing") for record in kept.records()] == [None, *[["active", "features"]] * 2]


def test_a_session_that_was_cut_says_why() -> None:
    kept = Boundaries(PARROT)
    for unit in (0, 2):
        kept.take(envelope(unit, body=audio(unit)))
    before = kept.bytes
    kept.cut("full")
    kept.cut("too late")
    kept.take(envelope(3, body=audio(3), records={"llm": 1}))
    assert (kept.bytes, kept.cut_at) == (before, 3)
    assert kept.records() == [
        {"unit": 0},
        {"unit": 1, "missing": ["input_pcm16"]},
        {"unit": 2},
        {"unit": 3, "missing": ["input_pcm16"], "why": "full"},
    ]


def test_what_is_no_tensor_is_malformed() -> None:
    kept = Boundaries(PARROT)
    with pytest.raises(m.Malformed):
        kept.take(envelope(0, body=m.Audio(m.WIRE, {"pcm": m.Tensor("<i2", (5,), b"1")})))


def test_saved(tmp_path: Path) -> None:
    save({"a": np.arange(3)}, [{"unit": 0, "llm": np.int64(4)}], tmp_path / "x", tmp_path / "y.json")
    with np.load(tmp_path / "x") as archive:
        assert archive.files == ["a"]
        assert archive["a"].tolist() == [0, 1, 2]
    assert json.loads((tmp_path / "y.json").read_text()) == [{"unit": 0, "llm": 4}]
