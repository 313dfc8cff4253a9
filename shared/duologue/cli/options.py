"""Flags that several commands have, and the reading of their values."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from duologue.cli.failure import Failure
from duologue.models import STAGES

NATS_URL = "nats://127.0.0.1:4222"
PORT = 8700
URL = f"ws://127.0.0.1:{PORT}"

Nats = Annotated[str, typer.Option(envvar="DUO_NATS", help="Address of the NATS server.", metavar="URL")]
Model = Annotated[str, typer.Option(envvar="DUO_MODEL", help="Id of the model.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", envvar="DUO_OPTION", help="Option of the model; repeatable.", metavar="K=V"),
]
Seed = Annotated[
    int | None,
    typer.Option(envvar="DUO_SEED", help="Seed of every session; else it comes from the session's id."),
]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", envvar="DUO_KEY", help="Accept this bearer key; repeatable.", metavar="KEY"),
]
KeysFile = Annotated[
    Path | None,
    typer.Option(envvar="DUO_KEYS_FILE", help="File of accepted bearer keys, one a line.", metavar="FILE"),
]
Announce = Annotated[
    bool, typer.Option(envvar="DUO_ANNOUNCE", help="Print one line of JSON on standard output when ready.")
]


def parse_options(given: Iterable[str] | None) -> dict[str, Any]:
    """`k=v` texts; values that are JSON numbers, booleans or `null` become that, all others stay text."""
    options: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r} is not K=V", param_hint="--option")
        try:
            found = json.loads(value)
        except ValueError:
            found = value
        options[name] = found if isinstance(found, int | float | None) else value
    return options


def parse_workers(text: str) -> dict[str, int]:
    """`encoder=1,llm=2` → workers of each stage; a stage that is not named has one."""
    workers = dict.fromkeys(STAGES, 1)
    for part in filter(None, text.replace(" ", "").split(",")):
        stage, _, count = part.partition("=")
        if stage not in STAGES or not count.isdecimal() or int(count) > 1000:
            raise typer.BadParameter(
                f"{part!r} is not STAGE=N with one of {', '.join(STAGES)}", param_hint="--workers"
            )
        workers[stage] = int(count)
    return workers


def read_keys(given: Iterable[str] | None, path: Path | None) -> tuple[str, ...]:
    """The accepted keys; in the file empty lines and those after `#` don't count.  Raises `Failure`, `OSError`."""
    keys = [key.strip() for key in given or ()]
    if path is not None:
        lines = [line.strip() for line in path.read_text().splitlines()]
        found = [line for line in lines if line and not line.startswith("#")]
        if not found:
            raise Failure(f"{path}: no key in the file")
        keys += found
    if any(not key or not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise Failure("a key is printable ASCII without spaces")
    return tuple(dict.fromkeys(keys))


def check_stage(stage: str) -> str:
    if stage not in STAGES:
        raise typer.BadParameter(f"{stage!r} is none of {', '.join(STAGES)}")
    return stage


def given(**settings: Any) -> dict[str, Any]:
    """Those that were given, so that the defaults stay where they are defined."""
    return {name: value for name, value in settings.items() if value is not None}
