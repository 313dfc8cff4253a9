"""A session's input as its client sent it, until its units go to the store."""

from itertools import groupby
from typing import Any

from duologue.audio.formats import Format
from duologue.session.segments import Piece


class Capture:
    """Bytes of `form`, cut into units of `unit` of the client's samples.  It is as long as what waits for its answer,
    which the intake bounds."""

    def __init__(self, form: Format, unit: int) -> None:
        self.form, self.unit = form, unit
        self._samples = 0
        self._oldest = 0
        self._units: dict[int, list[Piece]] = {}

    def push(self, data: bytes, *, silent: bool = False) -> None:
        """Whole samples; the next ones of the session.  What is `silent` was not heard, and is not kept."""
        width, at = self.form.sample_bytes, 0
        while at < len(data):
            unit, into = divmod(self._samples, self.unit)
            part = data[at : at + (self.unit - into) * width]
            samples = len(part) // width
            self._units.setdefault(unit, []).append(samples if silent else part)
            self._samples += samples
            at += len(part)

    def take(self, unit: int) -> list[Piece]:
        """What was heard of the unit, which is forgotten here with all that came before; empty where nothing was."""
        found = self._units.get(unit, [])
        for old in range(self._oldest, unit + 1):
            self._units.pop(old, None)
        self._oldest = max(self._oldest, unit + 1)
        return self._joined(found)

    def rest(self) -> dict[int, list[Piece]]:
        """All units that were never taken; the last may be short."""
        found, self._units = self._units, {}
        return {unit: self._joined(pieces) for unit, pieces in found.items()}

    def _joined(self, pieces: list[Piece]) -> list[Piece]:
        """As few pieces as there can be."""
        joined: list[Piece] = []
        for is_audio, group in groupby(pieces, lambda piece: isinstance(piece, bytes)):
            alike: list[Any] = list(group)
            joined.append(b"".join(alike) if is_audio else sum(alike))
        return [self._marked(piece) for piece in joined]

    def _marked(self, piece: Piece) -> Piece:
        """Silence as its length alone."""
        if isinstance(piece, bytes) and not self.form.decode(piece).any():
            return len(piece) // self.form.sample_bytes
        return piece
