"""From a stage's and a model's name to the model half."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from duologue.models import STAGES, manifest
from duologue.stage.model import StageModel


def load(stage: str, model: str, options: Mapping[str, Any]) -> StageModel[Any]:
    """The model half of `model` for `stage`.  Raises `UnknownModel`, `BadOption`, or what loading raises."""
    if stage not in STAGES:
        raise ValueError(f"no stage {stage!r}; there is {', '.join(STAGES)}")
    module = import_module(manifest(model).half(stage))
    loaded: StageModel[Any] = module.load(options)
    return loaded
