"""A second model, as another distribution would bring it: an entry point, a manifest, and halves (here the parrot's)."""

from pathlib import Path

ID = "budgie"
MODULE = """
from dataclasses import replace

from duologue.models import parrot

MANIFEST = replace(
    parrot.MANIFEST, id="budgie", description="Another parrot.", halves="duologue_{stage}.parrot"
)
"""
ENTRY_POINTS = """[duologue.models]
budgie = budgie_model
parrot = budgie_model
"""
"""The second one is an impostor."""


def install(folder: Path) -> Path:
    """Makes `folder`, once it is on the path, an installation of the model."""
    (folder / "budgie_model.py").write_text(MODULE)
    metadata = folder / "budgie_model-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: budgie-model\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder
