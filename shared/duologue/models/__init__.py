"""Manifests: a model is one module here and one file in each stage service."""

from duologue.models.manifest import (
    CHAIN,
    HISTORY,
    INSTRUCTIONS,
    ROOT,
    STAGES,
    BadOption,
    Edge,
    Manifest,
    Message,
    UnknownModel,
    deal_options,
    manifest,
    models,
    split_options,
)

MODELS = ("parrot", "pocket")
"""Ids of the models that this distribution brings; each is a module `duologue.models.<id>` with a `MANIFEST`.  Other
distributions bring theirs by entry points."""

__all__ = [
    "CHAIN",
    "HISTORY",
    "INSTRUCTIONS",
    "MODELS",
    "ROOT",
    "STAGES",
    "BadOption",
    "Edge",
    "Manifest",
    "Message",
    "UnknownModel",
    "deal_options",
    "manifest",
    "models",
    "split_options",
]
