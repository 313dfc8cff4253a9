"""A recording through a model in virtual time, with every stage boundary."""

import dataclasses

import numpy as np
import pytest

from duologue import offline
from duologue.models import BadOption, parrot
from duologue.stage.model import SessionError
from duologue.testing.parrot_reference import reference
from duologue.testing.signals import bursts, speechlike
from duologue_llm.parrot import Llm

pytestmark = pytest.mark.unit

SAID = bursts([(0.5, True), (0.9, False), (0.6, False)], 5)


@pytest.mark.parametrize("loop", [False, True])
def test_it_answers_as_the_model_does(loop: bool) -> None:
    pcm = speechlike(6.0, 3)
    out = offline.run("parrot", pcm, {"loop": loop}, seed=9)
    expected = reference(pcm, 9, loop=loop)
    assert out["arrays"]["pcm16"].dtype == np.int16
    np.testing.assert_array_equal(out["arrays"]["pcm16"], expected.pcm16)
    records = [{k: v for k, v in record.items() if k in ("llm", "talker")} for record in out["records"]]
    assert records == expected.records
    assert [record["unit"] for record in out["records"]] == list(range(75))
    assert [record.get("text", "") for record in out["records"]] == expected.texts
    np.testing.assert_array_equal(out["arrays"]["active"], expected.active)


def test_every_boundary_is_there_for_every_unit() -> None:
    arrays = offline.run("parrot", SAID, seed=9)["arrays"]
    assert {name: array.shape for name, array in arrays.items()} == {
        "input_pcm16": (48_000,),
        "features": (25, 1920),
        "active": (25,),
        "condition": (25, 1920),
        "first": (25,),
        "codes": (25, 1920),
        "pcm16": (48_000,),
    }
    np.testing.assert_array_equal(arrays["input_pcm16"], SAID)


def test_the_same_comes_out_each_time() -> None:
    first, second = (offline.run("parrot", SAID, {"loop": True}, seed=4) for _ in range(2))
    assert first["records"] == second["records"]
    assert all(np.array_equal(first["arrays"][name], second["arrays"][name]) for name in first["arrays"])


def test_an_incomplete_last_unit_is_a_unit() -> None:
    pcm = SAID[: 20 * 1920 + 7]
    out = offline.run("parrot", pcm, seed=9)
    np.testing.assert_array_equal(out["arrays"]["pcm16"], reference(pcm, 9).pcm16)
    assert len(out["arrays"]["pcm16"]) == 21 * 1920


def test_no_input_no_output() -> None:
    out = offline.run("parrot", np.zeros(0, np.int16), seed=9)
    assert len(out["arrays"]["pcm16"]) == 0
    assert out["records"] == []


def test_what_a_worker_costs_changes_nothing() -> None:
    out = offline.run("parrot", SAID, {"batch_ms": 30.0, "open_ms": 200.0}, seed=9)
    np.testing.assert_array_equal(out["arrays"]["pcm16"], reference(SAID, 9).pcm16)


def test_options_are_checked() -> None:
    with pytest.raises(BadOption):
        offline.run("parrot", SAID, {"loup": True})


def test_a_session_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Llm, "step", lambda self, batch: [SessionError("told to")] * len(batch))
    with pytest.raises(offline.OfflineError, match="session_failed"):
        offline.run("parrot", SAID)


def test_long_units_meet_no_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """25 units were fed ahead whatever their length: of 1 s each that is more than the backlog of 5 s."""
    fed: list[float] = []
    slow = dataclasses.replace(parrot.MANIFEST, input_rate=1920, output_rate=1920)
    monkeypatch.setattr(parrot, "MANIFEST", slow)
    append = offline.import_module("duologue_api.root").Root.append

    def watched(root: object, pcm: bytes, event_id: str | None) -> None:
        append(root, pcm, event_id)
        fed.append(root._intake.pending)  # type: ignore[attr-defined]

    monkeypatch.setattr(offline.import_module("duologue_api.root").Root, "append", watched)
    out = offline.run("parrot", SAID, seed=9)
    np.testing.assert_array_equal(out["arrays"]["pcm16"], reference(SAID, 9).pcm16)
    assert max(fed) <= 3
