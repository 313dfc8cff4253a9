"""All commands put together, and what becomes of their errors."""

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from duologue.cli import api, bench, doctor, drill, offline, sessions, stdio, talk, tap, top, up, worker
from duologue.cli.command import command, given, with_flags
from duologue.cli.failure import LAST_WORDS, exit_code, line_of
from duologue.settings import EVERY, settings_of

app = typer.Typer(
    name="duologue",
    help="Serves full-duplex speech models to any OpenAI Live client.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for run in (
    up.up,
    talk.talk,
    api.api,
    worker.worker,
    offline.offline,
    doctor.doctor,
    bench.bench,
    drill.drill,
    top.top,
    tap.tap,
    sessions.sessions,
):
    command(app, run)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"duologue {importlib.metadata.version('duologue')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
]


def _before(context: typer.Context, **_: Any) -> None:
    context.obj["flags"] = given(context, settings_of(EVERY))


app.callback()(with_flags(_before, settings_of(EVERY), version=Version))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line (default: that of the process) and returns the exit code.  An error is one line on
    standard error: 1, or 2 where the command line itself is wrong."""
    stdio.ensure()
    shared: dict[str, Any] = {}
    group = typer.main.get_command(app)
    try:
        result = group.main(
            args=list(sys.argv[1:] if arguments is None else arguments),
            prog_name="duologue",
            standalone_mode=False,
            obj=shared,
        )
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # Whoever read the output has left; the interpreter must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if shared.get("debug"):
            raise
        if line := line_of(error):
            print(f"{LAST_WORDS}{line}", file=sys.stderr)
        return exit_code(error)
    return result if isinstance(result, int) else 0
