"""What a model declares about itself, without torch (DESIGN §8)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from duologue.bus.messages import AnyBody

STAGES = ("encoder", "llm", "talker", "codec")
ENTRY_POINTS = "duologue.models"
"""Group of the entry points by which other distributions bring models: id = module with a `MANIFEST`."""
ROOT = "root"
"""The name of the root as an end of an edge."""


INSTRUCTIONS, HISTORY = "instructions", "conversation input"
"""Of the features that a model may lack, those that a client can ask for in `session.start`."""


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


Message = tuple[str, str]
"""A message of a session's `input`: role (`developer`, `user` or `assistant`) and text."""


def no_prompt(instructions: str | None, messages: Sequence[Message], voice: str) -> Mapping[str, Any]:
    """Of a model that is told nothing."""
    return {}


def no_recall(src: str, dst: str, record: Any) -> AnyBody:
    """Of a model without record-like edges."""
    raise LookupError(f"what {src} sends to {dst} can't be read from records")


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
    prompt: Callable[[str | None, Sequence[Message], str], Mapping[str, Any]] = no_prompt
    """(instructions, earlier messages, voice), of which `duologue_api.live.config` bounds the bytes → options of that
    session's `Start`, beyond `session_options`: what the model makes of them."""
    recall: Callable[[str, str, Any], AnyBody] = no_recall
    """(src, dst, record of src) → what a record-like edge brings."""
    voices: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    """Features of the Live protocol that the model has not; clients are told of `INSTRUCTIONS` and `HISTORY` by `info`
    when they ask for them, of all in the list of models."""
    halves: str = "duologue_{stage}.{id}"
    """Module of the model half for each stage."""

    @property
    def unit_s(self) -> float:
        """Seconds of a unit."""
        return self.unit_samples / self.input_rate

    def half(self, stage: str) -> str:
        """The module of the model half for `stage`."""
        return self.halves.format(stage=stage, id=self.id)

    @property
    def output_samples(self) -> int:
        """Output samples of a unit at `output_rate`."""
        return self.unit_samples * self.output_rate // self.input_rate


def manifest(model: str) -> Manifest:
    """The manifest of `model`.  Raises `UnknownModel`, naming those there are."""
    from duologue.models import MODELS

    if model in MODELS:
        module = f"duologue.models.{model}"
    else:
        found = _installed()
        if model not in found:
            raise UnknownModel(f"no model {model!r} here; there is {', '.join([*MODELS, *found])}")
        module = found[model]
    declared: Manifest = import_module(module).MANIFEST
    return declared


def models() -> tuple[str, ...]:
    """Ids of the models in this installation: those of this distribution, then those that other ones bring."""
    from duologue.models import MODELS

    return (*MODELS, *_installed())


def _installed() -> dict[str, str]:
    """Models of other distributions, id → module with the manifest.  They can't take the id of one of ours."""
    from duologue.models import MODELS

    found = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    return {id: found[id] for id in sorted(found) if id not in MODELS}


def deal_options(
    takers: Mapping[str, Callable[[Mapping[str, Any]], object]], options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """By model those of `options` that it takes: its taker raises `BadOption` for the others.  Raises `BadOption` for
    one that no model takes."""
    dealt: dict[str, dict[str, Any]] = {id: {} for id in takers}
    for name, value in options.items():
        refusals = []
        for id, take in takers.items():
            try:
                take({name: value})
                dealt[id][name] = value
            except BadOption as error:
                refusals.append(str(error))
        if len(refusals) == len(takers):
            raise BadOption("; ".join(dict.fromkeys(refusals)))
    return dealt


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
