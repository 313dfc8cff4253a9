"""The picture as tables that fit into 80 columns."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from duologue.bus.messages import DRAINING, STARTING, WIRE
from duologue.models import STAGES
from duologue.terminal import printable
from duologue.top.watch import SILENT

MOST_ROWS = 12
"""Sessions shown."""
REST, SESSION_REST = 72, 56
"""Columns that the other columns of a table take, at most, where one can be shortened."""
_STYLES = {SILENT: "bold red", DRAINING: "yellow", STARTING: "yellow", "closed": "dim"}

Row = dict[str, Any]


def render(picture: dict[str, Any], width: int = 80) -> RenderableType:
    """Tables of pods and workers and of sessions, and lines that sum them up, for a screen of `width` columns."""
    parts: list[RenderableType] = []
    if not picture["connected"]:
        parts.append(Text("no connection to NATS: this is what was known before", "bold red"))
    processes = [*picture["pods"], *picture["workers"]]
    if not processes:
        parts.append(Text("no heartbeat yet: nothing runs on this NATS server, or nothing of this version"))
    else:
        parts += [_processes(processes, width), Text(_summary(picture))]
    if picture["sessions"]:
        parts += [Text(), _sessions(picture["sessions"], width)]
    if picture["unreadable"]:
        parts.append(Text(f"{picture['unreadable']} messages are of another version", "yellow"))
    return Group(*parts)


def _table(*columns: Column) -> Table:
    return Table(*columns, box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def _left(name: str, most: int | None = None) -> Column:
    return Column(name, no_wrap=True, overflow="ellipsis", max_width=most)


def _right(name: str) -> Column:
    return Column(name, no_wrap=True, justify="right")


def _processes(rows: list[Row], width: int) -> Table:
    numbers = [_right(name) for name in ("free", "sess", "queue", "step", "due", "run", "beat", "v")]
    table = _table(
        _left("stage"), _left("id"), _left("model", max(5, width - REST)), _left("state"), *numbers
    )
    for row in rows:
        worker = row["stage"] in STAGES
        places = list(row["models"].items()) if worker else []
        model, first = places[0] if places else (", ".join(row["models"]), None)
        table.add_row(
            _text(row["stage"]),
            _text(row["id"]),
            _text(model),
            _text(row["state"], _STYLES.get(row["state"], "green")),
            _free(first["free"]) if first else "",
            str(first["sessions"] if first else row["sessions"]),
            *(_measures(row) if worker else [""] * 4),
            _age(row["heartbeat_age_s"]),
            Text(str(row["wire"]), "" if row["wire"] == WIRE else "bold red"),
        )
        for model, other in places[1:]:
            table.add_row("", "", _text(model), "", _free(other["free"]), str(other["sessions"]))
    return table


def _measures(row: Row) -> list[str | Text]:
    """Queue and step time, age of the oldest due unit and of the running step."""
    unit_s = row["unit_ms"] / 1000 or float("inf")
    return [
        _ms(row["queue_ms"], unit_s),
        _ms(row["step_ms"], unit_s),
        Text(_age(row["due_age_s"]), _strain(row["due_age_s"] / unit_s)),
        Text(_age(row["step_age_s"]), _strain(row["step_age_s"] / unit_s)),
    ]


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style)


def _ms(value: float, unit_s: float) -> Text:
    return Text(f"{value:.1f}" if value < 100 else f"{value:.0f}", _strain(value / 1000 / unit_s))


def _strain(units: float) -> str:
    """A step of half a unit leaves no time to catch up; one of a unit is too slow for good."""
    return "bold red" if units >= 1 else "yellow" if units >= 0.5 else ""


def _free(places: int) -> Text:
    return Text(str(places), "" if places else "bold red")


def _age(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f}s"
    return f"{seconds:.0f}s" if seconds < 1000 else f"{seconds / 60:.0f}m"


def _summary(picture: Row) -> str:
    free = dict.fromkeys(STAGES, 0)
    for row in picture["workers"]:
        if row["state"] == "ready" and row["stage"] in free:
            free[row["stage"]] += sum(places["free"] for places in row["models"].values())
    live = sum(row["sessions"] for row in picture["pods"] if row["state"] != SILENT)
    places = ", ".join(f"{stage} {count}" for stage, count in free.items())
    return f"{live} live session{'' if live == 1 else 's'}; free places: {places}"


def _sessions(rows: list[Row], width: int) -> Table:
    detail = max(5, width - SESSION_REST)
    table = _table(_left("session"), _left("model", 11), _left("state"), _right("age"), _left("", detail))
    for row in rows[:MOST_ROWS]:
        told = " ".join(f"{name}={value}" for name, value in row["detail"].items())
        table.add_row(
            _text(row["sid"]),
            _text(row["model"]),
            _text(row["state"], _STYLES.get(row["state"], "")),
            "" if row["age_s"] is None else _age(row["age_s"]),
            _text(told, "dim"),
        )
    if len(rows) > MOST_ROWS:
        table.add_row(Text(f"and {len(rows) - MOST_ROWS} more", "dim"))
    return table
