"""The root's ledger of a session: all that its stages' states can be made from again (CONTINUITY §3.5)."""

from collections.abc import Mapping, Sequence
from typing import Any

from duologue.bus.delivery import Ring
from duologue.bus.sealing import Decided
from duologue.models import ROOT, STAGES, Edge
from duologue.session.known import Known
from duologue.session.succession import begins


class Contradiction(Exception):
    """Two owners decided the same unit differently, and both were heard: a bug."""


class Ledger:
    """`inputs` is the root's ring of audio, with the controls and the marks of what was shed, which is therefore kept
    back to `oldest`: the oldest unit on which anything that may still be made depends."""

    def __init__(self, edges: Sequence[Edge], inputs: Ring) -> None:
        self.edges, self.inputs = edges, inputs
        self.known = Known()

    @property
    def oldest(self) -> int:
        return self.known.oldest

    @property
    def bytes(self) -> int:
        """Of the audio."""
        return self.inputs.bytes

    def learn(self, unit: int, records: Mapping[str, Any], horizons: Mapping[str, int]) -> None:
        """Raises `Contradiction`."""
        if wrong := self.known.contradicts(unit, records):
            raise Contradiction(f"unit {unit} has two records of {', '.join(wrong)}")
        self.known.learn(unit, records, horizons)

    def gather(self, decided: Mapping[int, Decided]) -> None:
        """Learns what an owner knows.  Raises `Contradiction`."""
        for unit, each in decided.items():
            self.learn(unit, each.records, each.horizons)

    def advance(self, unit: int) -> None:
        """All outputs before `unit` have come: forgets what no stage can need any more, should all of them be lost."""
        oldest = min(begins(self.edges, self.known, STAGES, {ROOT: {"codec": unit}}).values())
        if oldest > self.known.oldest:
            self.known.forget(oldest)
