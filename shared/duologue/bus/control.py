"""Messages on `subjects.control`, and their answers."""

from duologue.bus.routes import Wiring
from duologue.bus.subjects import Address
from duologue.bus.tensor import Struct
from duologue.bus.units import Epoch


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
    lacks: list[str] = []
    """Destinations for which it no longer has the first unit wanted."""


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
    """owner → root, notice: the session's state is lost here (`code` as in `duologue.errors`).  `unit` is the one that the
    model could not step, negative where the model is not the reason."""

    v: int
    sid: str
    epoch: Epoch
    code: str
    message: str
    unit: int = -1


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
