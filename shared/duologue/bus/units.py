"""What a unit carries from stage to stage, and what acknowledges it."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgspec
import numpy.typing as npt

from duologue.bus.subjects import Address
from duologue.bus.tensor import Struct, Tensor

WIRE = 1
"""Major version of the wire; processes of different major versions never claim from each other."""
LEDGER = 1
"""Major version of the ledger's layout."""
MAX_MESSAGE_BYTES = 512 * 1024
"""A bundle is split here; the server's own limit is 1 MiB."""

Epoch = tuple[int, int]
"""(root epoch, number), compared lexicographically."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Of a unit, where everything that follows counts from it."""


class Body(Struct, frozen=True, tag=True):
    """What a unit carries over one edge: named arrays.  No arrays at all is the *marker* of a unit in which
    there is nothing to say, a listening unit, which leaves as exact zeros."""

    v: int = WIRE
    tensors: dict[str, Tensor] = {}

    @property
    def marker(self) -> bool:
        return not self.tensors

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        return cls(WIRE, {name: Tensor.of(array) for name, array in arrays.items()})

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays, read-only.  Raises `Malformed`."""
        return {name: tensor.array() for name, tensor in self.tensors.items()}


class Audio(Body, frozen=True, tag="audio"):
    """root → encoder: `pcm` int16 [input samples of a unit]; the marker is silence."""


class Features(Body, frozen=True, tag="features"):
    """encoder → llm."""


class Condition(Body, frozen=True, tag="condition"):
    """llm → talker."""


class Codes(Body, frozen=True, tag="codes"):
    """talker → codec, and talker → llm where a model feeds back."""


class Speech(Body, frozen=True, tag="speech"):
    """codec → root: `pcm` int16 [output samples of a unit]; the marker is exact zeros."""


AnyBody = Audio | Features | Condition | Codes | Speech


class Heard(Struct, frozen=True):
    """What the user said in units `first` ≤ unit < `end`, which may lie well before the unit that brings it.
    Pieces concatenate to the transcript, leading spaces included."""

    text: str
    first: int
    end: int


class Envelope(Struct, frozen=True):
    """One unit on one edge of one session, fenced by itself.

    `epoch` is the sender's and `to` the addressee's.  `records` are the decisions taken in this unit so far,
    by stage; `text` is what the transcript gains, `heard` what that of the user does.  `sent` is the sender's wall
    clock in seconds (telemetry only; nothing is decided by it), `trace` a W3C traceparent, empty for units that are not
    traced, and `context_used` the share of the model's context budget in use after this unit, 0..1, negative while it
    is not known.  `horizons` has, of every stage that has stepped the unit, the oldest unit on which its state depends
    after it.
    """

    v: int
    sid: str
    src: str
    dst: str
    unit: int
    epoch: Epoch
    to: Epoch
    body: AnyBody
    records: dict[str, Any] = {}
    text: str = ""
    flags: int = 0
    sent: float = 0.0
    trace: str = ""
    context_used: float = -1.0
    heard: tuple[Heard, ...] = ()
    horizons: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes on the wire, roughly; records aside."""
        return 200 + size(self.text, self.heard, self.body)


def size(text: str, heard: tuple[Heard, ...], body: AnyBody) -> int:
    """Bytes on the wire, roughly, of what a unit carries."""
    pieces = sum(16 + len(piece.text) for piece in heard)
    return len(text) + pieces + sum(len(tensor.data) for tensor in body.tensors.values())


SHED = 1
"""Envelope flag: the root replaced this unit's audio by silence because the input had fallen behind."""


class Bundle(Struct, frozen=True):
    """Units that one process sends to another in one message."""

    v: int
    sender: Address
    units: list[Envelope]


class Ack(Struct, frozen=True):
    """What the endpoint `to` of `sid` has of the edge `src` → `dst`: all units before `next` are accepted, all
    before `stepped` used; it takes units before `next` + `credit`, may still ask for units from `horizon` on.
    `repair` says that units from `next` on were lost and are to be sent again now."""

    sid: str
    src: str
    dst: str
    to: Epoch
    next: int
    stepped: int
    horizon: int
    credit: int
    repair: bool = False


class Acks(Struct, frozen=True):
    """Acknowledgements that one process owes to another."""

    v: int
    sender: Address
    acks: list[Ack]
