"""What a root asks of the living owners before it replaces others, and what they answer (CONTINUITY §3.1)."""

from typing import Any

from duologue.bus.control import Control
from duologue.bus.subjects import Address
from duologue.bus.tensor import Struct
from duologue.bus.units import Epoch, Number


class Decided(Struct, frozen=True):
    """What is known of one unit: the records of the stages that decided something in it, and the horizon of every
    stage that has stepped it."""

    records: dict[str, Any]
    horizons: dict[str, int]


class SealOf(Struct, frozen=True):
    """Of one session: nothing from `epochs`, its replaced owners, is heard any more.  What is known is wanted from unit
    `since` on; `fresh` takes back what earlier roots sealed out."""

    sid: str
    root_epoch: int
    round: int
    epochs: list[Epoch]
    since: Number = 0
    fresh: bool = False


class Seal(Control, frozen=True, tag="seal"):
    """root's pod → worker, notice, sent again until it is answered by `Sealed`: all sessions that the worker has in
    common with the dead."""

    v: int
    sender: Address
    sessions: list[SealOf]


class Standing(Struct, frozen=True):
    """How an owner stands: `unit` is the next that it will step, `next` by source the first that it has not accepted,
    `kept` by destination the first unit that it could send again."""

    stage: str
    epoch: Epoch
    unit: int
    next: dict[str, int]
    kept: dict[str, int]
    decided: dict[int, Decided] = {}


class SealedOf(Struct, frozen=True):
    """Of one session: its owners here, the replaced ones aside; none where the worker has lost it."""

    sid: str
    root_epoch: int
    round: int
    standings: list[Standing]


class Sealed(Control, frozen=True, tag="sealed"):
    """worker → root's pod: the answer, in as many messages as it takes."""

    v: int
    sender: Address
    sessions: list[SealedOf]
