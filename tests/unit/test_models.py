"""Which models there are, and which of several gets an option."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import second_model
from duologue.doctor.installation import halves
from duologue.models import (
    MODELS,
    STAGES,
    BadOption,
    UnknownModel,
    deal_options,
    manifest,
    models,
)
from duologue.processes import UpSettings, specs
from duologue.stage.loading import load

pytestmark = pytest.mark.unit


@pytest.fixture
def budgie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(second_model.install(tmp_path))
    return second_model.ID


def test_another_distribution_brings_a_model_by_an_entry_point(budgie: str) -> None:
    assert models() == (*MODELS, budgie)
    found = manifest(budgie)
    assert (found.id, found.half("llm")) == (budgie, "duologue_llm.parrot")
    for stage in STAGES:
        assert load(stage, budgie, {}).footprint().fixed_bytes == 0
    assert halves([budgie]).says == "budgie: all stages can be imported"


def test_it_can_not_take_the_place_of_one_of_ours(budgie: str) -> None:
    assert manifest("parrot").id == "parrot"
    assert models().count("parrot") == 1


def test_who_is_not_installed_is_unknown() -> None:
    assert models() == MODELS
    with pytest.raises(UnknownModel, match="no model 'budgie' here; there is parrot"):
        manifest(second_model.ID)


def test_halves_are_modules_of_the_services_unless_the_manifest_says_otherwise() -> None:
    assert [manifest("parrot").half(stage) for stage in STAGES] == [
        f"duologue_{stage}.parrot" for stage in STAGES
    ]


def knows(*names: str) -> Any:
    def take(given: Mapping[str, Any]) -> None:
        if unknown := set(given) - set(names):
            raise BadOption(f"no option {unknown.pop()}")

    return take


def test_an_option_goes_to_every_model_that_knows_it() -> None:
    takers = {"a": knows("x", "both"), "b": knows("y", "both")}
    dealt = deal_options(takers, {"both": 1, "y": 2})
    assert dealt == {"a": {"both": 1}, "b": {"both": 1, "y": 2}}
    with pytest.raises(BadOption, match=r"^no option z$"):
        deal_options(takers, {"z": 1})


def test_up_starts_workers_of_each_model(budgie: str) -> None:
    options = {"row_ms": 1, "loop": True}
    settings = UpSettings(("parrot", budgie), 0, {"llm": 2, "codec": 1}, options=options)
    found = {spec.name: " ".join(spec.command(None)[3:]) for spec in specs(settings, "nats://here")}
    assert list(found) == [
        "parrot-llm-1",
        "parrot-llm-2",
        "parrot-codec-1",
        "budgie-llm-1",
        "budgie-llm-2",
        "budgie-codec-1",
        "api-1",
    ]
    assert found["budgie-llm-2"].startswith("worker llm --model budgie ")
    assert found["budgie-llm-2"].endswith("--option row_ms=1")
    assert found["api-1"].startswith("api --model parrot --model budgie ")
    assert found["api-1"].count("--option loop=true") == 1
