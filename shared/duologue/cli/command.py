"""A command is a function of the settings; its flags are made from them."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from duologue.cli.failure import Misuse
from duologue.cli.logs import configure
from duologue.settings import EVERY, Setting, Settings, load, settings_of

Run = Callable[[Settings], int]

SERVICES = ("api", "worker")
"""Commands whose log is their only voice."""
PANEL = "Every command"


def command(app: typer.Typer, run: Run) -> None:
    """Adds `run` to `app` under its own name and with its own documentation."""
    name = run.__name__
    rows = [*settings_of(name), *settings_of(EVERY)]

    def start(context: typer.Context, **_: Any) -> int:
        settings = load({**context.obj["flags"], **given(context, rows)})
        context.obj["debug"] = settings.debug
        for row in rows:
            if row.use.required_by(name) and getattr(settings, row.name) is None:
                kind = "argument" if row.positional else "option"
                raise Misuse(f"Missing {kind} '{row.flag}' (see duologue {name} --help)")
        usual = "info" if name in SERVICES else "warning"
        try:
            configure("debug" if settings.debug else settings.log_level or usual, settings.log_format)
        except ValueError as error:
            raise Misuse(str(error)) from None
        return run(settings)

    app.command(name, help=run.__doc__)(with_flags(start, rows, name))


def with_flags(
    function: Callable[..., Any], rows: list[Setting], name: str = "", **others: Any
) -> Callable[..., Any]:
    """`function`, of the command `name`, as typer is to see it: with a parameter for each setting, and `others`, which
    are annotations of flags."""
    only = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature(
        [
            inspect.Parameter("context", only, annotation=typer.Context),
            *(_parameter(row, name) for row in rows),
            *(inspect.Parameter(k, only, default=False, annotation=other) for k, other in others.items()),
        ]
    )
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return function


def given(context: typer.Context, rows: list[Setting]) -> dict[str, Any]:
    """What stands on the command line itself, by key.  Variables are read where the settings are."""
    found = {}
    for row in rows:
        source = context.get_parameter_source(row.name)
        if source is not None and source.name == "COMMANDLINE":
            found[row.key] = context.params[row.name]
    return found


def _parameter(row: Setting, command: str) -> inspect.Parameter:
    low, high = row.range
    kind: Any = list[str] if row.kind is list else row.kind
    common: dict[str, Any] = {
        "envvar": row.env,
        "help": row.description + (" Required." if row.use.required_by(command) else ""),
        "metavar": row.metavar,
        "min": low,
        "max": high,
        "show_default": row.use.without(command) or row.default is not None,
    }
    info: Any
    if row.positional:
        info = typer.Argument(**{**common, "metavar": row.flag})
    elif row.kind is bool and row.default:
        info = typer.Option(f"{row.flag}/--no-{row.flag.removeprefix('--')}", **common)
    else:
        panel = PANEL if EVERY in row.commands else None
        info = typer.Option(row.flag, rich_help_panel=panel, **common)
    shape: Any = kind if row.default is not None else kind | None
    annotation: Any = Annotated[shape, info]
    return inspect.Parameter(
        row.name, inspect.Parameter.KEYWORD_ONLY, default=row.default, annotation=annotation
    )
