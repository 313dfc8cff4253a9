"""From what was given to `Settings`, or to one line that says what is wrong."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from duologue import lifeline
from duologue.settings.errors import BadSetting, nearest
from duologue.settings.file import read
from duologue.settings.model import Settings
from duologue.settings.table import SETTINGS

PREFIX = "DUO_"
OURS = frozenset({lifeline.ENV})
"""Variables between our own processes, which are no settings."""
SERVICE_HOST = "_SERVICE_HOST"


def load(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings from `flags` (by key, only those that were given), this process's environment, the settings file
    and the defaults.  Raises `BadSetting`, also for a variable or a key that is no setting."""
    flags = flags or {}
    check_environment(os.environ)
    path = flags.get("config") or os.environ.get(f"{PREFIX}CONFIG")
    in_file = read(Path(path)) if path else {}
    for key in in_file:
        if key not in SETTINGS:
            raise BadSetting(
                f"settings file {path}: no setting {key!r}; the nearest is {nearest(key.lower(), SETTINGS)!r}"
            )
    origins = {}
    for key, row in SETTINGS.items():
        if key in flags:
            origins[key] = row.flag
        elif os.environ.get(row.env):
            origins[key] = row.env
        elif key in in_file:
            origins[key] = f"{path}: {key}"
    try:
        settings = Settings(**flags)
    except ValidationError as error:
        raise BadSetting(_line(error.errors(include_url=False)[0], origins)) from None
    settings.origins.update(origins)
    return settings


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises `BadSetting` for a `DUO_…` variable that is no setting.  Those that Kubernetes makes for each service
    (of a service `duo-nats`: `DUO_NATS_SERVICE_HOST`, `DUO_NATS_PORT_4222_TCP`, …) are not meant."""
    services = [name.removesuffix(SERVICE_HOST) for name in environment if name.endswith(SERVICE_HOST)]
    links = tuple(f"{service}_{kind}" for service in services for kind in ("SERVICE_", "PORT"))
    known = {row.env for row in SETTINGS.values()}
    for name in sorted(environment):
        # In any case, since pydantic-settings takes duo_port, too.
        if name.upper().startswith(PREFIX) and name not in known | OURS and not name.startswith(links):
            raise BadSetting(f"no setting {name}; the nearest is {nearest(name.upper(), known)}")


def _line(error: ErrorDetails, origins: Mapping[str, str]) -> str:
    """What is wrong with the value; the value itself only where it can't be a secret."""
    row = SETTINGS[str(error["loc"][0])]
    what = f"{row.metavar} is wanted" if row.choices else error["msg"][:1].lower() + error["msg"][1:]
    given = "" if row.confidential else f" = {error['input']!r}"
    return f"{origins[row.key]}{given}: {what}"
