"""All commands put together, and what becomes of their errors."""

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from duologue.cli import api, bench, offline, talk, tap, top, up, worker
from duologue.cli.failure import LAST_WORDS, exit_code, line_of
from duologue.cli.logs import configure

SERVICES = ("api", "worker")
"""Commands whose log is their only voice."""

app = typer.Typer(
    name="duologue",
    help="Serves full-duplex speech models to any OpenAI Live client.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(up.up)
app.command()(talk.talk)
app.command()(api.api)
app.command()(worker.worker)
app.command()(offline.offline)
app.command()(bench.bench)
app.command()(top.top)
app.command()(tap.tap)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"duologue {importlib.metadata.version('duologue')}")
        raise typer.Exit


@app.callback()
def _everywhere(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="DUO_DEBUG", help="Show tracebacks and log more.")
    ] = False,
    log_level: Annotated[
        str | None, typer.Option(envvar="DUO_LOG_LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[
        str, typer.Option(envvar="DUO_LOG_FORMAT", help="text, json, or auto: text on a terminal.")
    ] = "auto",
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    usual = "info" if context.invoked_subcommand in SERVICES else "warning"
    try:
        configure("debug" if debug else log_level or usual, log_format)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    context.obj.update(debug=debug, log_level=log_level)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line (default: that of the process) and returns the exit code.  An error is one line on
    standard error: 1, or 2 where the command line itself is wrong."""
    shared: dict[str, Any] = {}
    command = typer.main.get_command(app)
    try:
        result = command.main(
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
