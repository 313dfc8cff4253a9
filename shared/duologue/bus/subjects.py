"""Every NATS subject of the deployment, each spelled once (DESIGN §4).

An *address* is `<role>.<id>`: `encoder.enc-3f9a…`, `api.pod-77c1…`.  Roles are the four stages and `api`.
"""

import secrets
from typing import Annotated

import msgspec

ROOT = "duo.v1"
API = "api"
KINDS = ("in", "ack", "claim", "ctl", "hb", "ev")
"""What a subject carries: the token after `ROOT`."""
ANSWER = "answer"
"""The kind of what goes to the reply subject of a request."""


Address = Annotated[
    str, msgspec.Meta(pattern=r"^(api|encoder|llm|talker|codec)\.[-_a-zA-Z0-9]+\Z", max_length=128)
]
"""As a message may name it.  An answer goes there, and nats-server closes the connection of a client that publishes
to a subject of more than 4 KiB for good: nobody may be able to make us do it."""


class BadToken(ValueError):
    """A role, id or session id that can't be one token of a subject."""


def token(text: str) -> str:
    """Returns `text` if it can be one subject token, else raises `BadToken`."""
    if not text or any(c in ".*> \t\r\n" for c in text):
        raise BadToken(f"{text!r} can't be part of a subject")
    return text


def new_address(role: str) -> str:
    """A fresh address; the id is new at every process start, so that no restarted process inherits traffic."""
    return f"{token(role)}.{role[:3]}-{secrets.token_hex(6)}"


def role_of(address: str) -> str:
    """The role of an address: `encoder`, `llm`, `talker`, `codec` or `api`."""
    return address.partition(".")[0]


def inbox(address: str) -> str:
    """Bundles of units to `address`; its address again is `address_of`."""
    return f"{ROOT}.in.{address}"


def is_inbox(subject: str) -> bool:
    """Whether bundles of units go there."""
    return subject.startswith(f"{ROOT}.in.")


def acks(address: str) -> str:
    """Acknowledgements and the server's 503 notices to `address`."""
    return f"{ROOT}.ack.{address}"


def claims(address: str) -> str:
    """Requests that the worker at `address` take a session."""
    return f"{ROOT}.claim.{address}"


def control(address: str) -> str:
    """Requests and notices of control to `address`."""
    return f"{ROOT}.ctl.{address}"


def heartbeat(address: str) -> str:
    """Heartbeats of `address`."""
    return f"{ROOT}.hb.{address}"


def heartbeats() -> str:
    """Heartbeats of everybody (to subscribe to)."""
    return f"{ROOT}.hb.>"


def event(kind: str, sid: str) -> str:
    """Notices about a session for observers: `opened`, `closed`, …"""
    return f"{ROOT}.ev.{token(kind)}.{token(sid)}"


def events() -> str:
    """Notices about all sessions (to subscribe to)."""
    return f"{ROOT}.ev.>"


def of_kind(kind: str) -> str:
    """All subjects of one of `KINDS` (to subscribe to).  Not for kinds that carry requests: see `bus.tape`."""
    return f"{ROOT}.{token(kind)}.>"


def kind_of(subject: str) -> str:
    """One of `KINDS`, or `ANSWER` for any other subject."""
    kind = subject.removeprefix(f"{ROOT}.").partition(".")[0] if subject.startswith(f"{ROOT}.") else ""
    return kind if kind in KINDS else ANSWER


def copies(kind: str) -> str:
    """Copies of messages of a kind, for those who look at the bus."""
    return f"{ROOT}.tape.copy.{token(kind)}"


def taping() -> str:
    """Notices of those who look at the bus to everybody: which copies they want."""
    return f"{ROOT}.tape.on"


def who_tapes() -> str:
    """Requests of a process that has just connected: are copies wanted?"""
    return f"{ROOT}.tape.who"


def everything() -> str:
    """All of the deployment's traffic.  Nothing in a deployment subscribes to it: see `bus.tape`."""
    return f"{ROOT}.>"


def address_of(subject: str) -> str:
    """The address that an `in`, `ack`, `claim`, `ctl` or `hb` subject names."""
    return subject.removeprefix(f"{ROOT}.").partition(".")[2]


def matches(pattern: str, subject: str) -> bool:
    """Whether a subscription to `pattern` (`*` one token, `>` one or more at the end) gets `subject`."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(w in ("*", g) for w, g in zip(wanted, given, strict=True))
