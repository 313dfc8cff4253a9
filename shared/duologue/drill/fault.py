"""What a drill does to a deployment, as it is written on the command line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from duologue.bus.subjects import API
from duologue.models import STAGES


class Act(Enum):
    KILL = "kill"
    TERM = "term"
    STOP = "stop"
    HANG = "hang"
    RESTART = "nats:restart"
    BLIP = "nats:blip"
    SLOW = "slow-client"
    FAST = "fast-client"
    WAIT = "wait"
    """Nothing: time for what is done by other means."""


ALL, ANY = "all", "any"
CLIENTS = frozenset({Act.SLOW, Act.FAST})
ANYWHERE = CLIENTS | {Act.WAIT}
"""What needs no process of the deployment."""
LASTS_S: Mapping[Act, float] = {
    Act.STOP: 2.0,
    Act.BLIP: 0.3,
    Act.SLOW: 10.0,
    Act.FAST: 10.0,
    Act.WAIT: 30.0,
}
"""For so long where nothing else is said; acts that are not here take no time."""
ON_PROCESSES = (Act.KILL, Act.TERM, Act.STOP, Act.HANG)
MOST_S = 600.0
USAGE = (
    "kill:WHERE, term:WHERE, hang:WHERE, stop:WHERE[:2s], nats:restart, nats:blip[:300ms], slow-client[:10s], fast-client[:10s], "
    "wait[:30s]; "
    f"WHERE is {', '.join(STAGES)} or {API}, several with + between them, {ALL} stages, or {ANY} one of them"
)


class BadFault(ValueError):
    """No fault that a drill knows."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`roles`: of each a worker (or an API pod) is struck, all at the same moment; empty for `ANY` one stage.
    `seconds`: how long it lasts."""

    text: str
    act: Act
    roles: tuple[str, ...] = ()
    seconds: float = 0.0


def parse(text: str) -> Fault:
    """From `kill:llm`, `stop:talker+codec:1.5s`, `nats:blip:300ms`, …  Raises `BadFault`."""
    for act in Act:
        if text == act.value or text.startswith(f"{act.value}:"):
            rest = text.removeprefix(act.value).split(":")[1:]
            roles = _roles(text, rest.pop(0) if rest else "") if act in ON_PROCESSES else ()
            seconds = LASTS_S.get(act, 0.0)
            if rest and act in LASTS_S:
                seconds = _seconds(text, rest.pop(0))
            if rest:
                raise BadFault(f"{text!r}: nothing was expected from {rest[0]!r} on")
            return Fault(text, act, roles, seconds)
    raise BadFault(f"{text!r} is no fault; there is {USAGE}")


def _roles(text: str, where: str) -> tuple[str, ...]:
    if where in (ALL, ANY):
        return STAGES if where == ALL else ()
    found = tuple(where.split("+"))
    if wrong := [role for role in found if role not in (*STAGES, API)]:
        raise BadFault(f"{text!r}: {wrong[0]!r} is none of {', '.join((*STAGES, API, ALL, ANY))}")
    if len(set(found)) < len(found):
        raise BadFault(f"{text!r} names one twice")
    if API in found and text.startswith(Act.HANG.value):
        raise BadFault(f"{text!r}: an API pod runs no model")
    return found


def _seconds(text: str, lasts: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", lasts)
    seconds = float(found[1]) / (1000 if found[2] == "ms" else 1) if found else 0.0
    if not 0 < seconds <= MOST_S:
        raise BadFault(f"{text!r}: {lasts!r} is no time, such as 2s or 300ms, of at most {MOST_S:g} s")
    return seconds
