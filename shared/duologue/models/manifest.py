"""What a model declares about itself, without torch (DESIGN §8)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

STAGES = ("encoder", "llm", "talker", "codec")
ROOT = "root"
"""The name of the root as an end of an edge."""


class UnknownModel(LookupError):
    """No such model in this installation."""


class BadOption(ValueError):
    """A model option that the manifest does not know, or a value that it can't have."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Stage `dst` needs unit u - `lag` of `src` to step its unit u (nothing where u < `lag`).  The unit's records
    and text come along the edge with `main`; each stage has exactly one such input."""

    src: str
    dst: str
    main: bool = True
    lag: int = 0
    record_like: bool = False
    """The body is a decision of `src` and so can be read from its record."""


CHAIN = (
    Edge(ROOT, "encoder"),
    Edge("encoder", "llm"),
    Edge("llm", "talker"),
    Edge("talker", "codec"),
    Edge("codec", ROOT),
)
"""The edges that every model has."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A model's declaration.  The callables are the model's pure functions."""

    id: str
    description: str
    unit_samples: int
    """Input samples of a unit at `input_rate`."""
    input_rate: int
    output_rate: int
    session_options: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Checks and completes the options that reach every stage's `open`.  Raises `BadOption`."""
    worker_options: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Checks and completes the options of a worker process.  Raises `BadOption`."""
    edges: Callable[[Mapping[str, Any]], tuple[Edge, ...]]
    """The edges under these session options."""
    boundaries: Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]
    """(src, dst, arrays of a body, empty for a marker) → the arrays as they are written at a stage boundary,
    under the names of the recorded values, to be stacked along a new first axis of units."""
    voices: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    """Features of the Live protocol that the model has not, for `info` and the documentation."""

    @property
    def unit_s(self) -> float:
        """Seconds of a unit."""
        return self.unit_samples / self.input_rate

    @property
    def output_samples(self) -> int:
        """Output samples of a unit at `output_rate`."""
        return self.unit_samples * self.output_rate // self.input_rate


def manifest(model: str) -> Manifest:
    """The manifest of `model`.  Raises `UnknownModel`, naming those there are."""
    known = models()
    if model not in known:
        raise UnknownModel(f"no model {model!r} here; there is {', '.join(known)}")
    found: Manifest = import_module(f"duologue.models.{model}").MANIFEST
    return found


def models() -> tuple[str, ...]:
    """Ids of the models in this installation."""
    from duologue.models import MODELS

    return MODELS


def split_options(found: Manifest, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The workers' and the sessions' of `options`: each goes to where the model knows it.  Raises `BadOption`."""
    for_workers: dict[str, Any] = {}
    for_sessions: dict[str, Any] = {}
    for name, value in options.items():
        refusals = []
        for known, taken in ((found.worker_options, for_workers), (found.session_options, for_sessions)):
            try:
                known({name: value})
                taken[name] = value
            except BadOption as error:
                refusals.append(str(error))
        if len(refusals) == 2:
            raise BadOption(f"{name}: of a worker, {refusals[0]}; of a session, {refusals[1]}")
    return for_workers, for_sessions
