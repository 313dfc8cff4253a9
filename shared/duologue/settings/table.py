"""The settings as rows: what the command line and the documentation are made from."""

import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from duologue.settings.model import Settings
from duologue.settings.use import Use

KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    list: "list of text",
}


@dataclass(frozen=True)
class Setting:
    """One of them.  `name` is its attribute of `Settings`, `key` its name everywhere else."""

    name: str
    key: str
    info: FieldInfo
    use: Use

    @property
    def env(self) -> str:
        return f"DUO_{self.key.upper()}"

    @property
    def flag(self) -> str:
        """As on the command line; without dashes a positional argument."""
        return self.use.flag or f"--{self.key.replace('_', '-')}"

    @property
    def positional(self) -> bool:
        return not self.flag.startswith("--")

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(self.use.by.split())

    @property
    def description(self) -> str:
        """One line."""
        return " ".join((self.info.description or "").split())

    @property
    def default(self) -> Any:
        """`None` where there is none; `Use.without` says what happens then."""
        return None if self.info.default in (None, "", []) else self.info.default

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The words that it can be, where it can't be just any."""
        return tuple(word for part in self._parts if get_origin(part) is Literal for word in get_args(part))

    @cached_property
    def kind(self) -> type:
        """bool, int, float, str, Path or list (of texts); str for whatever else is written as text."""
        [part, *others] = self._parts
        part = get_origin(part) or part
        return part if not others and part in KINDS else str

    @property
    def confidential(self) -> bool:
        """Whether a value may hold what must not be shown: a key, or credentials in a URL."""
        return self.use.secret or self.use.metavar == "URL"

    @property
    def metavar(self) -> str | None:
        """How a value is called; `None`: by its type."""
        return self.use.metavar or "|".join(self.choices) or None

    @property
    def range(self) -> tuple[float | None, float | None]:
        """Least and greatest value."""
        bounds = {
            name: getattr(m, name) for m in self.info.metadata for name in ("ge", "le") if hasattr(m, name)
        }
        return bounds.get("ge"), bounds.get("le")

    @property
    def _parts(self) -> list[Any]:
        """The alternatives of its type, without `None`."""
        annotation = self.info.annotation
        union = get_origin(annotation) in (Union, types.UnionType)
        return [part for part in (get_args(annotation) if union else [annotation]) if part is not type(None)]


def _setting(name: str, info: FieldInfo) -> Setting:
    [use] = (found for found in info.metadata if isinstance(found, Use))
    return Setting(name, info.alias or name, info, use)


SETTINGS: Mapping[str, Setting] = {
    row.key: row for row in (_setting(name, info) for name, info in Settings.model_fields.items())
}
"""All settings by key, in the order in which they are shown."""


def settings_of(command: str) -> list[Setting]:
    """Those of a command, or with `EVERY` those that every command has beside its own."""
    return [row for row in SETTINGS.values() if command in row.commands]
