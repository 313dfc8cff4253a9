"""A check's outcome."""

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """`says` is what was found, `todo` what to do about it, each one line."""

    name: str
    state: State
    says: str
    todo: str = ""
