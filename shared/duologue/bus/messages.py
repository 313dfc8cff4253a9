"""Every message of the bus, defined once, in the modules beside: MessagePack arrays, version first (DESIGN §4).

Fields are only ever appended, with a default, so that an older reader skips them and a newer reader fills
them in.  Tagged types (bodies and control messages) carry their tag before the version.
"""

from typing import Any, TypeVar

import msgspec

from duologue.bus.control import Close as Close
from duologue.bus.control import Control as Control
from duologue.bus.control import Done as Done
from duologue.bus.control import Drain as Drain
from duologue.bus.control import Failed as Failed
from duologue.bus.control import Mine as Mine
from duologue.bus.control import Route as Route
from duologue.bus.control import Routed as Routed
from duologue.bus.control import Suspect as Suspect
from duologue.bus.control import Trace as Trace
from duologue.bus.control import Yours as Yours
from duologue.bus.liveness import DRAINING as DRAINING
from duologue.bus.liveness import READY as READY
from duologue.bus.liveness import STARTING as STARTING
from duologue.bus.liveness import Event as Event
from duologue.bus.liveness import Heartbeat as Heartbeat
from duologue.bus.liveness import Places as Places
from duologue.bus.routes import FAILED as FAILED
from duologue.bus.routes import FULL as FULL
from duologue.bus.routes import GONE as GONE
from duologue.bus.routes import OPEN as OPEN
from duologue.bus.routes import OPENING as OPENING
from duologue.bus.routes import REFUSED as REFUSED
from duologue.bus.routes import Claim as Claim
from duologue.bus.routes import Claimed as Claimed
from duologue.bus.routes import Inflow as Inflow
from duologue.bus.routes import Outflow as Outflow
from duologue.bus.routes import Start as Start
from duologue.bus.routes import Told as Told
from duologue.bus.routes import Wiring as Wiring
from duologue.bus.sealing import Decided as Decided
from duologue.bus.sealing import Seal as Seal
from duologue.bus.sealing import Sealed as Sealed
from duologue.bus.sealing import SealedOf as SealedOf
from duologue.bus.sealing import SealOf as SealOf
from duologue.bus.sealing import Standing as Standing
from duologue.bus.tensor import Malformed as Malformed
from duologue.bus.tensor import Struct as Struct
from duologue.bus.tensor import Tensor as Tensor
from duologue.bus.tensor import without_quotes
from duologue.bus.units import LEDGER as LEDGER
from duologue.bus.units import MAX_MESSAGE_BYTES as MAX_MESSAGE_BYTES
from duologue.bus.units import SHED as SHED
from duologue.bus.units import WIRE as WIRE
from duologue.bus.units import Ack as Ack
from duologue.bus.units import Acks as Acks
from duologue.bus.units import AnyBody as AnyBody
from duologue.bus.units import Audio as Audio
from duologue.bus.units import Body as Body
from duologue.bus.units import Bundle as Bundle
from duologue.bus.units import Codes as Codes
from duologue.bus.units import Condition as Condition
from duologue.bus.units import Envelope as Envelope
from duologue.bus.units import Epoch as Epoch
from duologue.bus.units import Features as Features
from duologue.bus.units import Heard as Heard
from duologue.bus.units import Number as Number
from duologue.bus.units import Speech as Speech
from duologue.bus.units import size as size

AnyControl = Route | Routed | Close | Mine | Yours | Failed | Drain | Done | Suspect | Trace | Seal | Sealed

T = TypeVar("T")

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
