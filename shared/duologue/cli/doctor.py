"""`duologue doctor`: is everything there, and what are the settings?"""

from typing import Any

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from duologue.cli import loop
from duologue.cli.options import parse_options
from duologue.settings import DEFAULT, Settings, Shown, shown

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(settings: Settings) -> int:
    """Check this installation, and the deployment at --nats."""
    if settings.show_settings:
        _settings(settings)
        return 0
    from duologue.doctor import Check, State, examine

    checks: list[Check] = loop.run(examine(settings, parse_options(settings.option)))
    failed = any(check.state is State.FAIL for check in checks)
    if settings.as_json:
        found = [{"check": c.name, "state": c.state, "says": c.says, "todo": c.todo} for c in checks]
        typer.echo(orjson.dumps({"ok": not failed, "checks": found}))
        return int(failed)
    rows = []
    for check in checks:
        rows.append((check.state.value, check.name, check.says))
        if check.todo:
            rows.append(("", "", f"→ {check.todo}"))
    _print(rows, STYLES)
    return int(failed)


def _settings(settings: Settings) -> None:
    rows = shown(settings)
    if settings.as_json:
        found = {row.setting.key: {"value": row.value, "from": row.origin} for row in rows}
        typer.echo(orjson.dumps(found))
        return
    _print([(row.setting.key, _text(row), row.origin) for row in rows], {})


def _text(row: Shown) -> str:
    value: Any = row.value
    if row.origin == DEFAULT and row.setting.default is None:
        return without if (without := row.setting.use.without()) else "-"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print(rows: list[tuple[str, str, str]], styles: dict[str, str]) -> None:
    """A table on a terminal, else plain columns, whose lines nothing cuts."""
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
        for row in rows:
            typer.echo(f"{row[0]:<{first}}  {row[1]:<{second}}  {row[2]}".rstrip())
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, *others in rows:
        table.add_row(Text(name, styles.get(name, "")), *others, style="" if name else "dim")
    console.print(table)
