"""A session's ledger as the store keeps it: about a second a value, under `<sid>.<root epoch>.<number>` (DESIGN §5).

Pure functions: from units to values, and from the values of several roots back to units.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

import msgspec

from duologue.bus.messages import (
    LEDGER,
    MAX_MESSAGE_BYTES,
    WIRE,
    Decided,
    Envelope,
    Heard,
    Malformed,
    Struct,
    encode,
)
from duologue.bus.tensor import without_quotes

LEDGERS, AUDIO, STORE = "duo_ledger", "duo_audio", "duo_store"
"""Buckets: what was decided, and what was heard, of live sessions; both and what was said, of those that are kept."""

Piece = bytes | int
"""Audio in the segment's format, or so many samples of silence."""
Form = tuple[str, int]
"""(type, samples a second) of the format, as `duologue.audio.formats` has them."""

T = TypeVar("T")


class Said(Struct, frozen=True):
    """What a unit was answered with: `pcm` int16 at the model's output rate, empty for silence."""

    pcm: bytes = b""
    text: str = ""
    heard: tuple[Heard, ...] = ()

    @classmethod
    def of(cls, envelope: Envelope) -> Self:
        """Of the unit that came to the root."""
        pcm = envelope.body.tensors.get("pcm")
        return cls(pcm.data if pcm and any(pcm.data) else b"", envelope.text, envelope.heard)


class LedgerSegment(Struct, frozen=True, tag="ledger"):
    """Units from `first` on: their records, those of the root (controls, what was shed) included, and horizons."""

    v: int
    ledger: int
    first: int
    units: list[Decided]


class AudioSegment(Struct, frozen=True, tag="audio"):
    """The input of the units from `first` on; `sample` is the number of its first sample."""

    v: int
    ledger: int
    first: int
    sample: int
    form: Form
    units: list[list[Piece]]


class SpeechSegment(Struct, frozen=True, tag="speech"):
    """The output of the units from `first` on, at `rate` Hz."""

    v: int
    ledger: int
    first: int
    rate: int
    units: list[Said]


Segment = LedgerSegment | AudioSegment | SpeechSegment


class Kept(NamedTuple):
    """A unit on its way to the store.  Input that was never answered has no `decided`."""

    unit: int
    heard: list[Piece]
    decided: Decided | None = None
    said: Said | None = None


class TooLarge(ValueError):
    """A single unit is more than a value may have."""


class NewerLedger(Exception):
    """It was written by a later version."""


_decoder: msgspec.msgpack.Decoder[Segment] = msgspec.msgpack.Decoder(Segment)


def key(sid: str, root_epoch: int, number: int) -> str:
    return f"{sid}.{root_epoch}.{number}"


def place(key: str) -> tuple[int, int]:
    """(root epoch, number) of a segment's key.  Raises `ValueError`."""
    _, root_epoch, number = key.split(".")
    return int(root_epoch), int(number)


# ---------------------------------------------------------------- from units to values


def decisions(units: Sequence[Kept], limit: int = MAX_MESSAGE_BYTES) -> Iterator[bytes]:
    """Values of `LEDGERS`.  Raises `TooLarge`."""
    decided = {each.unit: each.decided for each in units if each.decided is not None}
    return _values(decided, lambda first, part: LedgerSegment(WIRE, LEDGER, first, part), limit)


def inputs(
    units: Sequence[Kept], form: Form, samples: int, limit: int = MAX_MESSAGE_BYTES
) -> Iterator[bytes]:
    """Values of `AUDIO`; a unit has so many `samples` in that format.  Raises `TooLarge`."""
    return _values(
        {each.unit: each.heard for each in units},
        lambda first, part: AudioSegment(WIRE, LEDGER, first, first * samples, form, part),
        limit,
    )


def outputs(units: Sequence[Kept], rate: int, limit: int = MAX_MESSAGE_BYTES) -> Iterator[bytes]:
    """Values that only `STORE` has.  Raises `TooLarge`."""
    said = {each.unit: each.said for each in units if each.said is not None}
    return _values(said, lambda first, part: SpeechSegment(WIRE, LEDGER, first, rate, part), limit)


def _values(units: Mapping[int, T], make: Callable[[int, list[T]], Segment], limit: int) -> Iterator[bytes]:
    for first, end in runs(units):
        yield from _halved(first, [units[unit] for unit in range(first, end)], make, limit)


def _halved(
    first: int, part: list[T], make: Callable[[int, list[T]], Segment], limit: int
) -> Iterator[bytes]:
    value = encode(make(first, part))
    if len(value) <= limit:
        yield value
    elif len(part) == 1:
        raise TooLarge(f"unit {first} has {len(value)} bytes")
    else:
        half = len(part) // 2
        yield from _halved(first, part[:half], make, limit)
        yield from _halved(first + half, part[half:], make, limit)


def runs(units: Iterable[int]) -> list[tuple[int, int]]:
    """(first, end) of each stretch of units without a hole, in order."""
    found: list[tuple[int, int]] = []
    for unit in sorted(units):
        if found and found[-1][1] == unit:
            found[-1] = found[-1][0], unit + 1
        else:
            found.append((unit, unit + 1))
    return found


# ---------------------------------------------------------------- and back


class Found(NamedTuple):
    """A segment as it was found in the store."""

    root_epoch: int
    number: int
    segment: Segment


class Input(NamedTuple):
    """A unit's input."""

    form: Form
    sample: int
    pieces: list[Piece]


class Back(NamedTuple):
    """What was read back, by unit."""

    decided: dict[int, Decided]
    heard: dict[int, Input]
    said: dict[int, Said]


def read(value: bytes) -> Segment:
    """Raises `Malformed`, `NewerLedger`."""
    try:
        segment = _decoder.decode(value)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise Malformed(f"segment: {without_quotes(error)}") from error
    if segment.ledger > LEDGER:
        raise NewerLedger(f"the ledger has version {segment.ledger}, and version {LEDGER} is known here")
    return segment


def read_back(found: Iterable[Found], root_epochs: Sequence[tuple[int, int, str]]) -> Back:
    """Each unit from the highest root epoch that wrote it while the unit was its own: of a root that was superseded from
    a unit on, that unit and all later ones don't count, and of a root that is not in the session record's history
    (`root_epochs`) nothing does.  What a root wrote twice is taken from where it wrote it first: when it writes its
    context anew, that is not in the client's format any more."""
    until = _until(root_epochs)
    back = Back({}, {}, {})
    for root_epoch, _, segment in sorted(found, key=lambda each: (each.root_epoch, -each.number)):
        for at in range(len(segment.units)):
            unit = segment.first + at
            if root_epoch not in until or unit >= until[root_epoch]:
                continue
            match segment:
                case LedgerSegment():
                    back.decided[unit] = segment.units[at]
                case SpeechSegment():
                    back.said[unit] = segment.units[at]
                case AudioSegment():
                    samples = _samples(segment, at)
                    back.heard[unit] = Input(segment.form, samples, segment.units[at])
    return back


def gaps(units: Collection[int], start: int, end: int) -> list[tuple[int, int]]:
    """(first, end) of each stretch between `start` and `end` that is not there."""
    return runs(set(range(start, end)).difference(units))


def _until(root_epochs: Sequence[tuple[int, int, str]]) -> dict[int, float]:
    """By root epoch the unit from which on a later root counts."""
    until: dict[int, float] = {}
    least = float("inf")
    for root_epoch, first, _ in sorted(root_epochs, reverse=True):
        until[root_epoch] = least
        least = min(least, first)
    return until


def _samples(segment: AudioSegment, at: int) -> int:
    """The number of the first sample of the unit at that place of the segment; only a session's last unit is short."""
    return segment.sample + sum(_length(segment, pieces) for pieces in segment.units[:at])


def _length(segment: AudioSegment, pieces: Sequence[Piece]) -> int:
    width = 2 if segment.form[0] == "audio/pcm" else 1
    return sum(piece if isinstance(piece, int) else len(piece) // width for piece in pieces)
