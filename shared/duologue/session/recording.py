"""A recorded session in one piece: what was heard, what was decided and said, unit by unit; and as a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import msgspec
import numpy as np
import numpy.typing as npt

from duologue.audio.formats import Format, format_of, pcm_at
from duologue.audio.streams import InputStream
from duologue.boundaries import save as save_arrays
from duologue.bus.messages import LEDGER, WIRE, Decided, Struct, decode, encode
from duologue.models import Manifest
from duologue.session.record import SessionRecord
from duologue.session.segments import Back, NewerLedger, Piece, Said, gaps

SHED = {"root": "shed"}
"""In the records of a unit whose audio the root replaced by silence."""

Pcm = npt.NDArray[np.int16]


class Incomplete(ValueError):
    """The ledger does not reach back to the session's first unit, or has holes."""


class NoRecording(ValueError):
    """A file that no export wrote."""


@dataclass(frozen=True)
class Recording:
    """`input16` is int16 at `record.form`'s rate, as the client sent it, zeros where it was muted; `said` has what was
    answered, by unit, where that was recorded."""

    record: SessionRecord
    input16: Pcm
    decided: Sequence[Decided]
    said: Mapping[int, Said] = field(default_factory=dict)

    @property
    def units(self) -> int:
        """Units that were answered."""
        return len(self.decided)

    def heard(self, manifest: Manifest) -> list[bytes]:
        """What the model heard, unit by unit: int16 at its input rate.  What was shed is silence."""
        stream = InputStream(pcm_at(self.record.form[1]), manifest.input_rate, manifest.unit_samples)
        units = stream.push(self.input16.astype("<i2", copy=False).tobytes()) + stream.flush()
        for unit, decided in enumerate(self.decided):
            if decided.records.items() >= SHED.items():
                units[unit] = bytes(len(units[unit]))
        return units


def complete(record: SessionRecord, back: Back) -> Recording:
    """From what was read back.  Raises `Incomplete`."""
    end = max(record.units, max(back.decided, default=-1) + 1)
    for what, units in (("record", back.decided), ("audio", back.heard)):
        if missing := gaps(units, 0, end):
            listed = ", ".join(f"{first} to {stop - 1}" for first, stop in missing)
            raise Incomplete(f"there is no {what} of units {listed} of {record.sid}")
    if any(heard.form != record.form for heard in back.heard.values()):
        raise Incomplete(
            f"a part of {record.sid} is not in its client's format: the store was wiped meanwhile"
        )
    form = _form(record)
    parts = [_pcm(form, piece) for unit in sorted(back.heard) for piece in back.heard[unit].pieces]
    input16 = np.concatenate(parts) if parts else np.zeros(0, np.int16)
    return Recording(record, input16, [back.decided[unit] for unit in range(end)], back.said)


def _form(record: SessionRecord) -> Format:
    """A session of `duologue offline` has its model's own rate, which no client may ask for."""
    try:
        return format_of(*record.form)
    except LookupError:
        return pcm_at(record.form[1])


def _pcm(form: Format, piece: Piece) -> Pcm:
    return np.zeros(piece, np.int16) if isinstance(piece, int) else form.decode(piece)


# ---------------------------------------------------------------- as a file


class _Ledger(Struct, frozen=True):
    """All of a recording but its sound."""

    v: int
    ledger: int
    record: SessionRecord
    decided: list[Decided]
    said: dict[int, Said]


def save(recording: Recording, path: Path, manifest: Manifest) -> Path:
    """Writes an archive: `input16` and `output16` (whole units, zeros where nothing was recorded), their `rates`, and
    `ledger`, all else as MessagePack; and for reading the same beside it as JSON, whose path is returned.  Raises
    `OSError`."""
    output = np.zeros((recording.units, manifest.output_samples), np.int16)
    for unit, said in recording.said.items():
        if unit < recording.units and said.pcm:
            output[unit] = np.frombuffer(said.pcm, "<i2")
    soundless = {unit: Said(b"", said.text, said.heard) for unit, said in recording.said.items()}
    ledger = encode(_Ledger(WIRE, LEDGER, recording.record, list(recording.decided), soundless))
    arrays = {
        "input16": recording.input16,
        "output16": output.reshape(-1),
        "rates": np.array([recording.record.form[1], manifest.output_rate]),
        "ledger": np.frombuffer(ledger, np.uint8),
    }
    rows: list[dict[str, Any]] = [{"record": _shown(recording.record)}]
    for unit, decided in enumerate(recording.decided):
        row = {"unit": unit, **_shown(decided)}
        rows.append(row | _shown(soundless[unit]) if unit in soundless else row)
    beside = path.with_suffix(".json")
    save_arrays(arrays, rows, path, beside)
    return beside


def load(path: Path) -> Recording:
    """Raises `NoRecording`, `OSError`, `NewerLedger`."""
    try:
        # No pickles: an archive from elsewhere must not run code.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            input16, output16 = archive["input16"], archive["output16"]
            ledger = decode(archive["ledger"].tobytes(), _Ledger)
    except (KeyError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise NoRecording(f"{path} is no recording of `duologue sessions export`: {error}") from None
    if ledger.ledger > LEDGER:
        raise NewerLedger(f"{path}: the ledger has version {ledger.ledger}, and {LEDGER} is known here")
    if input16.dtype != np.int16 or input16.ndim != 1:
        raise NoRecording(f"{path}: `input16` is {input16.dtype} {list(input16.shape)}, not int16 [n]")
    size = len(output16) // max(1, len(ledger.decided))
    said = {}
    for unit, text in ledger.said.items():
        pcm16 = output16[unit * size : (unit + 1) * size]
        said[unit] = Said(pcm16.astype("<i2").tobytes() if pcm16.any() else b"", text.text, text.heard)
    return Recording(ledger.record, input16, ledger.decided, said)


def _shown(struct: Struct) -> dict[str, Any]:
    """Its fields by name, as JSON can have them; samples left out."""
    fields = {name: value for name, value in msgspec.structs.asdict(struct).items() if name != "pcm"}
    shown: dict[str, Any] = msgspec.to_builtins(fields, str_keys=True)
    return shown
