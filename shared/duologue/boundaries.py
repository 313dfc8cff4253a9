"""What passes the stage boundaries of a session, under the names of the recorded values: for `duologue offline`, and
for `duologue up --tap`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from duologue.bus.messages import Envelope, Epoch
from duologue.models import Manifest

UNIT_BYTES = 512
"""A unit's records, text and numbers, roughly."""

Edge = tuple[str, str]


class Boundaries:
    """Of one session.  `bytes` is roughly what it takes; `units` the number of units, from the first of the session to
    the last that was seen."""

    def __init__(self, manifest: Manifest) -> None:
        self.bytes = 0
        self.units = 0
        self.cut_at: int | None = None
        """The unit at which `cut` was called."""
        self._manifest = manifest
        self._arrays: defaultdict[str, dict[int, npt.NDArray[Any]]] = defaultdict(dict)
        self._records: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        self._seen: defaultdict[Edge, dict[int, Epoch]] = defaultdict(dict)
        self._names: defaultdict[Edge, set[str]] = defaultdict(set)
        self._why = ""

    def take(self, envelope: Envelope) -> None:
        """One unit on one edge.  Of several senders the one of the highest epoch counts: others may have been fenced.
        Raises `Malformed`."""
        edge, unit = (envelope.src, envelope.dst), envelope.unit
        self.units = max(self.units, unit + 1)
        if self.cut_at is not None or envelope.epoch < self._seen[edge].get(unit, (0, 0)):
            return
        arrays = self._manifest.boundaries(*edge, envelope.body.arrays())
        if unit not in self._seen[edge]:
            self.bytes += UNIT_BYTES + sum(array.nbytes for array in arrays.values())
        self._seen[edge][unit] = envelope.epoch
        self._names[edge] |= set(arrays)
        for name, array in arrays.items():
            self._arrays[name][unit] = array
        record = self._records[unit]
        record.update(envelope.records)
        if envelope.text:
            record["text"] = envelope.text
        if envelope.heard:
            record["heard"] = [[piece.text, piece.first, piece.end] for piece in envelope.heard]

    def cut(self, why: str) -> None:
        """Keeps nothing more from here on."""
        if self.cut_at is None:
            self.cut_at, self._why = self.units, why

    @property
    def holes(self) -> bool:
        """Whether units were not seen although later ones were, on the same edge."""
        return any(len(seen) <= max(seen) for seen in self._seen.values() if seen)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Name → values of all units that were seen, stacked along a new first axis; samples run on without one.
        Raises `ValueError` where their shapes differ."""
        stacked = {name: np.stack([units[u] for u in sorted(units)]) for name, units in self._arrays.items()}
        return {
            name: array.reshape(-1) if name.endswith("pcm16") else array for name, array in stacked.items()
        }

    def records(self) -> list[dict[str, Any]]:
        """One dict a unit: its number, what each stage decided, the text; and for a unit that was not seen at every
        boundary `missing`, the names of the arrays in which it has no part, and, if it is known, `why`."""
        found = []
        last = {edge: max(seen, default=-1) for edge, seen in self._seen.items()}
        for unit in range(self.units):
            record = {"unit": unit, **self._records.get(unit, {})}
            lost = [edge for edge in self._names if unit not in self._seen[edge]]
            missing = sorted(name for edge in lost for name in self._names[edge])
            if missing or unit not in self._records:
                record["missing"] = missing
                if self.cut_at is not None and all(unit > last[edge] for edge in lost):
                    record["why"] = self._why
            found.append(record)
        return found


def save(arrays: Mapping[str, Any], records: Sequence[Mapping[str, Any]], npz: Path, json: Path) -> None:
    """Writes both down, the arrays as numpy's archive.  Raises `OSError`."""
    with npz.open("wb") as file:
        np.savez(file, **arrays)
    json.write_bytes(orjson.dumps(records, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2))
