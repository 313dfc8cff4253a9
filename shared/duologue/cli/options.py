"""Reading of values that are more than one word or number."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from duologue.cli.failure import Failure
from duologue.models import STAGES


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
