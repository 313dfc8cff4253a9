"""Any message of the bus by the schema-free `msgpack` package, its fields named by the contract where the subject
tells the type.

What does not fit the contract, a newer field or a foreign message, is shown as the plain list or value that it is.
"""

from functools import cache
from typing import Any, NamedTuple

import msgpack
import numpy as np
from msgspec import inspect

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.tape import Copy

MORE = "more"
"""Where a message has more fields than the contract knows: those."""

_TYPES: dict[str, Any] = {
    "in": m.Bundle,
    "ack": m.Acks,
    "claim": m.Claim,
    "ctl": m.AnyControl,
    "hb": m.Heartbeat,
    "ev": m.Event,
}


class Decoded(NamedTuple):
    """`fields` is made of dicts, lists, texts, numbers and bytes; `type` the name of the contract's type, or "" where
    the message is none of its subject's kind.  `kind` is one of `subjects.KINDS`."""

    kind: str
    type: str
    fields: Any


def decode(copy: Copy, whole: bool = False) -> Decoded:
    """Never fails.  Arrays are told by dtype, shape, size and values' range; with `whole` their bytes are kept, too."""
    kind = subjects.kind_of(copy.subject)
    if copy.no_responders:
        return Decoded(kind, "", None)
    try:
        value = msgpack.unpackb(copy.data, strict_map_key=False, unicode_errors="replace")
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        fields = {"undecodable": str(error) or type(error).__name__, "bytes": len(copy.data)}
        return Decoded(kind, "", {**fields, "data": copy.data} if whole else fields)
    if kind == subjects.ANSWER:
        # Answers to claims have no tag, those to control messages have one.
        kind, wanted = ("ctl", m.AnyControl) if _tagged(value) else ("claim", m.Claimed)
    else:
        wanted = _TYPES[kind]
    shape = _type_of(wanted)
    found = _struct(value, shape)
    return Decoded(kind, found.cls.__name__ if found else "", _named(value, shape, whole))


@cache
def _type_of(wanted: Any) -> inspect.Type:
    return inspect.type_info(wanted)


def _tagged(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _struct(value: Any, shape: inspect.Type) -> inspect.StructType | None:
    """The contract's type that `value` is meant to be."""
    if not isinstance(value, list) or not value:
        return None
    if isinstance(shape, inspect.StructType):
        return shape if shape.tag is None or shape.tag == value[0] else None
    if isinstance(shape, inspect.UnionType):
        structs = (each for each in shape.types if isinstance(each, inspect.StructType))
        return next((each for each in structs if each.tag == value[0]), None)
    return None


def _named(value: Any, shape: inspect.Type, whole: bool) -> Any:
    struct = _struct(value, shape)
    if struct is not None:
        if struct.cls is m.Tensor:
            return _tensor(value, whole)
        given = value[1:] if struct.tag else value
        fields: dict[str, Any] = {"type": struct.tag} if struct.tag else {}
        for field, each in zip(struct.fields, given, strict=False):
            fields[field.name] = _named(each, field.type, whole)
        if len(given) > len(struct.fields):
            fields[MORE] = [_plain(each, whole) for each in given[len(struct.fields) :]]
        return fields
    match shape, value:
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item), list():
            return [_named(each, item, whole) for each in value]
        case inspect.TupleType(item_types=items), list() if len(items) == len(value):
            return [_named(each, item, whole) for each, item in zip(value, items, strict=True)]
        case inspect.DictType(value_type=item), dict():
            return {_key(key): _named(each, item, whole) for key, each in value.items()}
    return _plain(value, whole)


def _plain(value: Any, whole: bool) -> Any:
    """As it is, but for bytes, which may be audio."""
    match value:
        case bytes() if not whole:
            return {"bytes": len(value)}
        case list():
            return [_plain(each, whole) for each in value]
        case dict():
            return {_key(key): _plain(each, whole) for key, each in value.items()}
        case msgpack.ExtType():
            return {"ext": value.code, "bytes": len(value.data)}
        case msgpack.Timestamp():
            return str(value)
    return value


def _key(key: Any) -> Any:
    return key if isinstance(key, str | int | float | None) else repr(key)


def _tensor(value: list[Any], whole: bool) -> Any:
    try:
        dtype, shape, data = value
        tensor = m.Tensor(dtype, tuple(shape), data)
        array = tensor.array()
    except (ValueError, TypeError, AttributeError):  # `Malformed` is a `ValueError`
        return _plain(value, whole)
    told: dict[str, Any] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "bytes": len(tensor.data)}
    if array.size and array.dtype.kind in "biuf":
        values = array.astype(np.float64)
        with np.errstate(all="ignore"):
            told["min"], told["max"] = float(values.min()), float(values.max())
            told["rms"] = float(np.sqrt(np.mean(values * values)))
    if whole:
        told["data"] = tensor.data
    return told
