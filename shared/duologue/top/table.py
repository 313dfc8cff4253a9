"""The picture as tables that fit into 80 columns."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from duologue.bus.messages import DRAINING, STARTING, WIRE
from duologue.models import STAGES
from duologue.top.watch import SILENT

MOST_ROWS = 12
"""Sessions shown."""
_STYLES = {SILENT: "bold red", DRAINING: "yellow", STARTING: "yellow", "closed": "dim"}

Row = dict[str, Any]


def render(picture: dict[str, Any]) -> RenderableType:
    """Tables of pods and workers and of sessions, and lines that sum them up."""
    parts: list[RenderableType] = []
    if not picture["connected"]:
        parts.append(Text("no connection to NATS: this is what was known before", "bold red"))
    processes = [*picture["pods"], *picture["workers"]]
    if not processes:
        parts.append(Text("no heartbeat yet: nothing runs on this NATS server, or nothing of this version"))
    else:
        parts += [_processes(processes), Text(_summary(picture))]
    if picture["sessions"]:
        parts += [Text(), _sessions(picture["sessions"])]
    if picture["unreadable"]:
        parts.append(Text(f"{picture['unreadable']} messages are of another version", "yellow"))
    return Group(*parts)


def _table(*columns: tuple[str, bool]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name, right in columns:
        table.add_column(name, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _processes(rows: list[Row]) -> Table:
    table = _table(
        ("stage", False),
        ("id", False),
        ("model", False),
        ("state", False),
        ("free", True),
        ("sess", True),
        ("queue", True),
        ("step", True),
        ("due", True),
        ("run", True),
        ("beat", True),
        ("v", True),
    )
    for row in rows:
        worker = row["stage"] in STAGES
        models = list(row["models"].items()) or [("", {"free": 0, "sessions": 0})]
        for number, (model, places) in enumerate(models if worker else [(",".join(row["models"]), None)]):
            first = number == 0
            table.add_row(
                row["stage"] if first else "",
                row["id"] if first else "",
                model,
                Text(row["state"] if first else "", _STYLES.get(row["state"], "green")),
                _free(places["free"]) if places else "",
                str(places["sessions"] if places else row["sessions"]),
                *(_measures(row) if first and worker else [""] * 4),
                _age(row["heartbeat_age_s"]) if first else "",
                Text(str(row["wire"]), "" if row["wire"] == WIRE else "bold red") if first else "",
            )
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
    return f"{live} live sessions; free places: {places}"


def _sessions(rows: list[Row]) -> Table:
    table = _table(("session", False), ("model", False), ("state", False), ("age", True), ("", False))
    for row in rows[:MOST_ROWS]:
        detail = " ".join(f"{name}={value}" for name, value in row["detail"].items())
        table.add_row(
            Text(row["sid"]),
            Text(row["model"]),
            Text(row["state"], _STYLES.get(row["state"], "")),
            "" if row["age_s"] is None else _age(row["age_s"]),
            Text(detail, "dim"),
        )
    if len(rows) > MOST_ROWS:
        table.add_row(Text(f"and {len(rows) - MOST_ROWS} more", "dim"))
    return table
