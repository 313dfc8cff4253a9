"""A model that transcribes what it hears, as another distribution would bring it: the parrot, but its encoder tells two
words for every stretch of sound, once that is over."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ID = "lyrebird"
STAGES = ("llm", "talker", "codec")
MANIFEST = """
from dataclasses import replace

from duologue.models import parrot

MANIFEST = replace(parrot.MANIFEST, id="lyrebird", description="A parrot that tells.", halves="lyrebird_{stage}")
"""
ENCODER = """
from dataclasses import dataclass, replace

from duologue.bus.messages import Heard
from duologue_encoder import parrot


@dataclass
class State:
    of_parrot: object
    first: int = -1


class Encoder:
    def __init__(self, half):
        self.half = half
        self.close, self.footprint = lambda state: None, half.footprint
        self.horizon = lambda state: self.half.horizon(state.of_parrot)

    def open(self, start, history):
        for state in self.half.open(start, history):
            yield state if state is None else State(state)

    def step(self, batch):
        results = self.half.step([(state.of_parrot, unit) for state, unit in batch])
        return [told(state, unit.number, result) for (state, unit), result in zip(batch, results)]


def told(state, unit, result):
    sound = not result.out["llm"].marker
    if sound and state.first < 0:
        state.first = unit
    if sound or state.first < 0:
        return result
    first, state.first = state.first, -1
    middle = (first + unit) // 2
    return replace(result, heard=(Heard(f" from{first}", first, middle), Heard(f" to{unit}", middle, unit)))


def load(options):
    return Encoder(parrot.load(options))
"""


def install(folder: Path) -> Path:
    """Makes `folder`, once it is on the path, an installation of the model."""
    (folder / "lyrebird_model.py").write_text(MANIFEST)
    (folder / "lyrebird_encoder.py").write_text(ENCODER)
    for stage in STAGES:
        (folder / f"lyrebird_{stage}.py").write_text(f"from duologue_{stage}.parrot import load as load\n")
    metadata = folder / "lyrebird_model-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lyrebird-model\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[duologue.models]\nlyrebird = lyrebird_model\n")
    return folder


def heard(active: list[bool]) -> Iterator[tuple[str, int, int]]:
    """(text, first unit, end) of the words, by whether each unit sounds for the parrot."""
    first = 0
    for unit, (before, now) in enumerate(pairwise([False, *active])):
        if now and not before:
            first = unit
        elif before and not now:
            middle = (first + unit) // 2
            yield f" from{first}", first, middle
            yield f" to{unit}", middle, unit
