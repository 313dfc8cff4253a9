"""What `duologue up` hands on to the services that it starts."""

from duologue.settings.model import Settings
from duologue.settings.table import SETTINGS

SERVICES = frozenset({"api", "worker"})


def for_services(settings: Settings) -> dict[str, str]:
    """Those of the settings file that are the services' alone, as variables: they don't read the file themselves, in
    which what is meant for `up` has another meaning for them.  Its variables they inherit."""
    found = {}
    for key, row in SETTINGS.items():
        in_file = key in settings.origins and settings.origins[key] not in (row.flag, row.env)
        if in_file and SERVICES & set(row.commands) and "up" not in row.commands:
            found[row.env] = _text(getattr(settings, row.name))
    return found


def of_model(settings: Settings, model: str) -> dict[str, str]:
    """The worker options of `model` that are settings too, under `<model>_<option>`."""
    prefix = f"{model}_"
    named = {name: getattr(settings, name) for name in Settings.model_fields if name.startswith(prefix)}
    return {name.removeprefix(prefix): value for name, value in named.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value)
