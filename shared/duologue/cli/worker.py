"""`duologue worker STAGE`: one stage of one model, as in a pod."""

import importlib
from typing import Annotated

import typer

from duologue import lifeline
from duologue.cli import loop
from duologue.cli.options import NATS_URL, Announce, Model, Nats, Options, check_stage, given, parse_options


def worker(
    stage: Annotated[
        str,
        typer.Argument(envvar="DUO_STAGE", callback=check_stage, help="encoder, llm, talker or codec."),
    ],
    model: Model,
    nats: Nats = NATS_URL,
    option: Options = None,
    places: Annotated[
        int | None, typer.Option(envvar="DUO_PLACES", min=1, help="Sessions at a time, at most.")
    ] = None,
    memory_bytes: Annotated[
        int | None,
        typer.Option(
            envvar="DUO_MEMORY_BYTES",
            min=1,
            help="Memory of the stage and its sessions.  Default: nine tenths of what is free.",
        ),
    ] = None,
    utilisation: Annotated[
        float | None,
        typer.Option(
            envvar="DUO_UTILISATION", min=0.01, max=100, help="Share of a unit that a step of all may take."
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(envvar="DUO_METRICS_PORT", min=0, max=65535, help="Serve metrics here; 0: any port."),
    ] = None,
    metrics_host: Annotated[
        str | None, typer.Option(envvar="DUO_METRICS_HOST", help="Interface of the metrics.")
    ] = None,
    drain_s: Annotated[
        float | None,
        typer.Option(envvar="DUO_DRAIN_S", min=0, help="After SIGTERM, time for the sessions to leave."),
    ] = None,
    gather_ms: Annotated[
        float | None,
        typer.Option(envvar="DUO_GATHER_MS", min=0, help="Wait of a step for more sessions' units."),
    ] = None,
    announce: Announce = True,
) -> int:
    """Run one stage of one model."""
    lifeline.watch()
    service = importlib.import_module("duologue.stage.worker")
    settings = service.WorkerSettings(
        stage=stage,
        model=model,
        nats_url=nats,
        options=parse_options(option),
        announce=announce,
        metrics_port=metrics_port,
        **given(
            places=places,
            memory_bytes=memory_bytes,
            utilisation=utilisation,
            metrics_host=metrics_host,
            drain_s=drain_s,
            gather_s=None if gather_ms is None else gather_ms / 1000,
        ),
    )
    code: int = loop.run(service.run(settings))
    return code
