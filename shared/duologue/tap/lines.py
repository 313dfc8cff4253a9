"""A decoded message as one line, for people or as JSON."""

import base64
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson
from rich.text import Text

from duologue.bus import subjects
from duologue.bus.messages import SHED
from duologue.bus.tape import Copy
from duologue.tap.decoding import MORE, Decoded
from duologue.terminal import printable

NOBODY = "503: nobody listens there"
_JSON = orjson.OPT_NON_STR_KEYS
_STYLES = {"in": "cyan", "ack": "dim", "claim": "green", "ctl": "yellow", "hb": "dim", "ev": "magenta"}

Piece = tuple[str, str]
"""(text, style)"""


def as_json(copy: Copy, decoded: Decoded, at: float) -> str:
    """`at` is the wall clock in seconds at which the tap got it."""
    told = {
        "at": at,
        "kind": decoded.kind,
        "subject": copy.subject,
        "reply": copy.reply,
        "bytes": len(copy.data),
        "no_responders": copy.no_responders,
        "type": decoded.type,
        "message": decoded.fields,
    }
    return orjson.dumps(told, _data, _JSON).decode()


def as_text(copy: Copy, decoded: Decoded, at: float) -> Text:
    """In the time zone of this machine."""
    to = "" if subjects.kind_of(copy.subject) == subjects.ANSWER else subjects.address_of(copy.subject)
    clock = datetime.fromtimestamp(at).strftime("%H:%M:%S.%f")[:-3]
    pieces: list[Piece] = [(clock, "dim"), (f"{decoded.kind:<5}", _STYLES[decoded.kind])]
    if copy.no_responders:
        pieces += [(to, ""), (NOBODY, "bold red")]
    elif decoded.type == "Bundle":
        pieces += [
            *_way(decoded.fields.get("sender", ""), to),
            *_all("unit", decoded.fields.get("units", [])),
        ]
    elif decoded.type == "Acks":
        pieces += [*_way(decoded.fields.get("sender", ""), to), *_all("ack", decoded.fields.get("acks", []))]
    else:
        pieces += [(to or "answer", ""), (decoded.type or "?", "bold"), (_fields(decoded.fields), "")]
    return Text(" ").join(Text(printable(text), style) for text, style in pieces if text)


def _way(sender: Any, to: str) -> list[Piece]:
    return [(f"{sender} → {to}", "")]


def _all(what: str, given: list[Any]) -> Iterator[Piece]:
    """Units or acknowledgements; what is malformed among them is shown as it is."""
    if not given:
        yield "nothing (a probe)" if what == "unit" else "nothing", "dim"
    for number, each in enumerate(given):
        if number:
            yield "|", "dim"
        try:
            yield from (_unit if what == "unit" else _ack)(each)
        except (KeyError, TypeError, AttributeError):
            yield _compact(each), ""


def _unit(unit: Any) -> Iterator[Piece]:
    yield unit["sid"], "blue"
    yield f"{unit['src']}→{unit['dst']}", ""
    yield f"#{unit['unit']}", "bold"
    yield f"{_epoch(unit['epoch'])}→{_epoch(unit['to'])}", "dim"
    yield " ".join(_tensor(name, each) for name, each in unit["body"]["tensors"].items()) or "marker", ""
    if unit.get("records"):
        yield _compact(unit["records"]), "green"
    if unit.get("text"):
        yield _compact(unit["text"]), "bold magenta"
    if flags := unit.get("flags"):
        yield "shed" if flags == SHED else f"flags={flags}", "red"
    if (used := unit.get("context_used", -1.0)) >= 0:
        yield f"context {100 * used:.0f} %", "dim"
    if unit.get("trace"):
        yield f"trace {unit['trace']}", "dim"
    if MORE in unit:
        yield f"{MORE}={_compact(unit[MORE])}", ""


def _ack(ack: Any) -> Iterator[Piece]:
    yield ack["sid"], "blue"
    yield f"{ack['src']}→{ack['dst']} {_epoch(ack['to'])}", ""
    yield f"next {ack['next']}", "bold"
    yield f"stepped {ack['stepped']} horizon {ack['horizon']} credit {ack['credit']}", ""
    if ack.get("repair"):
        yield "repair!", "bold red"
    if MORE in ack:
        yield f"{MORE}={_compact(ack[MORE])}", ""


def _epoch(epoch: Any) -> str:
    root, number = epoch
    return f"{root}.{number}"


def _tensor(name: str, told: Any) -> str:
    if not isinstance(told, dict):
        return f"{name} {_compact(told)}"
    shape = ",".join(map(str, told["shape"]))
    line = f"{name} {told['dtype']}[{shape}] {told['bytes']} B"
    if "rms" in told:
        line += f" {told['min']:.4g}…{told['max']:.4g} rms {told['rms']:.4g}"
    if "data" in told:
        line += f" {_data(told['data'])}"
    return line


def _fields(fields: Any) -> str:
    if not isinstance(fields, dict):
        return _compact(fields)
    return " ".join(
        f"{name}={_compact(value)}" for name, value in fields.items() if name not in ("v", "type")
    )


def _compact(value: Any) -> str:
    return orjson.dumps(value, _data, _JSON).decode()


def _data(value: Any) -> str:
    """What JSON has no form for: bytes, in base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
