"""docs/settings.md."""

from collections.abc import Iterable

from duologue.settings.table import KINDS, SETTINGS, Setting
from duologue.settings.use import EVERY

INTRODUCTION = """\
# Settings

<!-- Made by `make docs` from shared/duologue/settings/model.py. -->

Each setting can be given as a flag, as an environment variable or in a settings file, and counts in this order; without
any it has its default. A setting `port` is the flag `--port` (unless the table says otherwise), the variable `DUO_PORT`,
and in the file:

```toml
port = 8700
option = ["loop=true", "row_ms=2"]
```

The file is [TOML](https://toml.io) without tables, named by `--config FILE` or `DUO_CONFIG`; one file can serve all
commands, since each takes what it uses. In a variable, several values are separated by spaces; one that is empty counts as
not given. `duologue up` hands what it got by variable or file on to the services that it starts.

A key or a `DUO_…` variable that is no setting is an error, and so is a value that is out of range. (Kubernetes' variables
for services, such as `DUO_NATS_SERVICE_HOST`, are let pass.) `duologue doctor --settings` prints all settings with where
each value comes from, keys and credentials hidden.
"""

GROUPS: tuple[tuple[str, set[str]], ...] = (
    ("Every command", {EVERY}),
    ("Services: `api`, `worker`, and `up`, which runs all of them", {"api", "worker", "up"}),
    ("Tools", set()),
)


def page() -> str:
    """The whole page."""
    left = list(SETTINGS.values())
    parts = [INTRODUCTION]
    for title, commands in GROUPS:
        rows = [row for row in left if not commands or commands & set(row.commands)]
        left = [row for row in left if row not in rows]
        parts.append(f"## {title}\n\n{_table(rows)}")
    return "\n".join(parts)


def _table(rows: Iterable[Setting]) -> str:
    lines = ["| setting | type | default | used by | |", "|---|---|---|---|---|"]
    for row in rows:
        cells = (_name(row), _type(row), _default(row), _used_by(row), row.description)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _name(row: Setting) -> str:
    usual = f"--{row.key.replace('_', '-')}"
    return f"`{row.key}`" + ("" if row.flag == usual else f" (`{row.flag}`)")


def _type(row: Setting) -> str:
    if row.choices:
        return f"`{row.metavar}`"
    low, high = (None if bound is None else f"{bound:g}" for bound in row.range)
    limits = f" {low} to {high}" if low and high else f" ≥ {low}" if low else ""
    return KINDS[row.kind] + limits


def _default(row: Setting) -> str:
    if row.default is None:
        return row.use.without()
    value = str(row.default).lower() if isinstance(row.default, bool) else row.default
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _used_by(row: Setting) -> str:
    if EVERY in row.commands:
        return "all"
    return ", ".join(
        f"{command} (required)" if row.use.required_by(command) else command for command in row.commands
    )
