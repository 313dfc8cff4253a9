"""Settings files: TOML, flat, with the settings' keys."""

import tomllib
from pathlib import Path
from typing import Any

from duologue.settings.errors import BadSetting


def read(path: Path) -> dict[str, Any]:
    """What the file sets.  Raises `BadSetting`, also for tables; whether the keys are known is not looked at here."""
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadSetting(f"settings file {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"settings file {path}: no TOML: {error}") from None
    for key, value in found.items():
        if isinstance(value, dict):
            raise BadSetting(f"settings file {path}: [{key}] is a table; the file is flat, without any")
    if "config" in found:
        raise BadSetting(f"settings file {path}: it can't name another one (config)")
    return found
