"""Every message of the bus, defined once: MessagePack arrays, version first (DESIGN §4).

Fields are only ever appended, with a default, so that an older reader skips them and a newer reader fills
them in.  Tagged types (bodies and control messages) carry their tag before the version.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self, TypeVar

import msgspec
import numpy.typing as npt

from duologue.bus.subjects import Address
from duologue.bus.tensor import Malformed as Malformed
from duologue.bus.tensor import Struct as Struct
from duologue.bus.tensor import Tensor as Tensor
from duologue.bus.tensor import without_quotes

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

T = TypeVar("T")

# ---------------------------------------------------------------- units


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
    is not known.
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


# ---------------------------------------------------------------- routes and claims


class Inflow(Struct, frozen=True):
    """Where an endpoint's input over one edge comes from: `entries` (epoch, from unit) in unit order.
    `next` is the first unit wanted, for an edge that is new to the endpoint."""

    entries: list[tuple[Epoch, int]]
    next: int = 0


class Outflow(Struct, frozen=True):
    """One addressee of an endpoint's output over one edge: units `start` ≤ unit < `until` (-1: no end)."""

    address: Address
    epoch: Epoch
    start: int = 0
    until: int = -1


Told = dict[str, list[tuple[Address, Epoch, int]]]
"""The session's route: stage → (worker's address, epoch, from unit)."""


class Wiring(Struct, frozen=True):
    """An owner's part of the route.  `version` orders wirings; an older one is ignored.  `go` lets it step."""

    version: tuple[int, int]
    go: bool
    inflows: dict[str, Inflow]
    outflows: dict[str, list[Outflow]]
    told: Told = {}


class Start(Struct, frozen=True):
    """What a stage is opened with: the model's options, the sampling seed, the first unit to be stepped, the
    first unit of the context, and known records by unit and stage."""

    seed: int
    options: dict[str, Any] = {}
    begin: Number = 0
    context_start: int = 0
    records: dict[int, dict[str, Any]] = {}


class Claim(Struct, frozen=True):
    """Request to `subjects.claims(worker)`: own stage `stage` of `sid` under `epoch`; answered by `Claimed`.
    Asking again is harmless and tells how far the opening is."""

    v: int
    ledger: int
    sid: str
    stage: str
    model: str
    epoch: Epoch
    root: Address
    start: Start
    wiring: Wiring
    resumable: bool = False


OPENING, OPEN, FULL, FAILED, GONE, REFUSED = "opening", "open", "full", "failed", "gone", "refused"
"""States of a `Claimed`: still opening; open; no place; the model could not open it; closed before; other version
or model."""


class Claimed(Struct, frozen=True):
    v: int
    sid: str
    epoch: Epoch
    state: str
    message: str = ""
    root_epoch: int = 0


# ---------------------------------------------------------------- control


class Control(Struct, frozen=True, tag=True):
    """Base of the messages on `subjects.control`."""


class Route(Control, frozen=True, tag="route"):
    """root → owner, request; answered by `Routed`."""

    v: int
    sid: str
    epoch: Epoch
    wiring: Wiring


class Routed(Control, frozen=True, tag="routed"):
    """The owner has the wiring `version`; `unit` is the next that it will step.  `known` is false where there
    is no such owner."""

    v: int
    sid: str
    epoch: Epoch
    version: tuple[int, int]
    unit: int
    known: bool = True


class Close(Control, frozen=True, tag="close"):
    """root → owners, notice: give up the place."""

    v: int
    sid: str
    epochs: list[Epoch]


class Mine(Control, frozen=True, tag="mine"):
    """owner's worker → root's pod, request: are these still yours?  Answered by `Yours`."""

    v: int
    sender: Address
    owners: list[tuple[str, Epoch]]


class Yours(Control, frozen=True, tag="yours"):
    """Those that are not, of the owners asked for."""

    v: int
    no: list[tuple[str, Epoch]]


class Failed(Control, frozen=True, tag="failed"):
    """owner → root, notice: the session's state is lost here (`code` as in `duologue.errors`)."""

    v: int
    sid: str
    epoch: Epoch
    code: str
    message: str


class Drain(Control, frozen=True, tag="drain"):
    """operator → worker or pod, request: take no more sessions and end when the last one has gone."""

    v: int


class Done(Control, frozen=True, tag="done"):
    """Plain answer to a request."""

    v: int
    message: str = ""


class Suspect(Control, frozen=True, tag="suspect"):
    """worker → pods of its sessions, notice: the server says that nobody listens at `address`."""

    v: int
    address: Address


class Trace(Control, frozen=True, tag="trace"):
    """root → owner, notice: make the spans of this unit, under the traceparent `trace`, if its times are still known."""

    v: int
    sid: str
    epoch: Epoch
    unit: int
    trace: str


AnyControl = Route | Routed | Close | Mine | Yours | Failed | Drain | Done | Suspect | Trace


# ---------------------------------------------------------------- liveness


class Places(Struct, frozen=True):
    """Raw free places for one model at a worker, and the sessions that it has.

    `stage_s` is how long nearly every unit takes there, from having its inputs to its result, while the `fresh` ones
    of the sessions do not yet show in it; `more_s` is what each further session adds at most.
    """

    free: int
    sessions: int
    stage_s: float = 0.0
    more_s: float = 0.0
    fresh: int = 0


class Heartbeat(Struct, frozen=True):
    """Every 250 ms.  Ages are in seconds, counted in the sender's own loop ticks: `due_age` of the oldest unit
    that waits to be stepped, `step_age` of the step that runs.  Medians of the last seconds: `step_ms` of a step,
    `queue_ms` of its oldest unit's wait for it.  `unit_ms` is the model's unit, `sessions` the live sessions."""

    v: int
    ledger: int
    address: Address
    state: str
    models: dict[str, Places]
    due_age: float = 0.0
    step_age: float = 0.0
    step_ms: float = 0.0
    queue_ms: float = 0.0
    unit_ms: float = 0.0
    sessions: int = 0


STARTING, READY, DRAINING = "starting", "ready", "draining"
"""States of a `Heartbeat`."""


class Event(Struct, frozen=True):
    """Notice about a session for observers."""

    v: int
    kind: str
    sid: str
    detail: dict[str, Any] = {}


_encoder = msgspec.msgpack.Encoder()
_control: msgspec.msgpack.Decoder[AnyControl] = msgspec.msgpack.Decoder(AnyControl)
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def encode(message: Struct) -> bytes:
    """MessagePack bytes of any message."""
    return _encoder.encode(message)


def decode(data: bytes, kind: type[T]) -> T:
    """The message of type `kind` in `data`.  Raises `Malformed`."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        message: T = decoder.decode(data)
        return message
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise Malformed(f"{getattr(kind, '__name__', kind)}: {without_quotes(error)}") from error


def decode_control(data: bytes) -> AnyControl:
    """The control message in `data`.  Raises `Malformed`."""
    try:
        return _control.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise Malformed(f"control: {without_quotes(error)}") from error
