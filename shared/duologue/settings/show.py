"""The settings in force, to be shown to anybody: values with where they come from, and no secrets."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from duologue.settings.model import Settings
from duologue.settings.table import SETTINGS, Setting

DEFAULT = "default"
HIDDEN = "***"


class Shown(NamedTuple):
    """`value` is as in JSON; `origin` is a flag, a variable, a file's key, or `DEFAULT`."""

    setting: Setting
    value: Any
    origin: str


def shown(settings: Settings) -> list[Shown]:
    """All settings in their usual order."""
    return [
        Shown(row, _open(row, getattr(settings, row.name)), settings.origins.get(key, DEFAULT))
        for key, row in SETTINGS.items()
    ]


def without_credentials(url: str) -> str:
    """The URL, or URLs, with whatever stands before an @ hidden; rather too much than too little."""
    return re.sub(r"^(\w+://)?.*@", rf"\g<1>{HIDDEN}@", url, flags=re.DOTALL)


def _open(row: Setting, value: Any) -> Any:
    if row.use.secret and value:
        return [HIDDEN for _ in value] if isinstance(value, list) else HIDDEN
    if row.confidential and value:
        return without_credentials(value)
    return str(value) if isinstance(value, Path) else value
