"""`duologue up`: everything on this machine, by one command."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel

from duologue.cli.failure import Failure
from duologue.cli.options import PORT, Keys, KeysFile, Options, Seed, parse_options, parse_workers, read_keys


def up(
    context: typer.Context,
    model: Annotated[str, typer.Option(envvar="DUO_MODEL", help="Id of the model.")] = "parrot",
    port: Annotated[
        int, typer.Option(envvar="DUO_PORT", min=0, max=65535, help="Port of the first API pod; 0: any.")
    ] = PORT,
    workers: Annotated[
        str, typer.Option(envvar="DUO_WORKERS", help="Workers of each stage.", metavar="STAGE=N,…")
    ] = "encoder=1,llm=1,talker=1,codec=1",
    api_pods: Annotated[int, typer.Option(envvar="DUO_API_PODS", min=1, max=100, help="API processes.")] = 1,
    seed: Seed = None,
    as_json: Annotated[
        bool, typer.Option("--json", envvar="DUO_JSON", help="When ready, print one JSON object and no more.")
    ] = False,
    option: Options = None,
    key: Keys = None,
    keys_file: KeysFile = None,
    data_dir: Annotated[
        Path | None, typer.Option(envvar="DUO_DATA_DIR", help="Keep the embedded NATS server's data here.")
    ] = None,
    nats: Annotated[
        str | None,
        typer.Option(envvar="DUO_NATS", help="Join this NATS server instead of starting one.", metavar="URL"),
    ] = None,
    tap: Annotated[
        Path | None,
        typer.Option(
            envvar="DUO_TAP",
            help="Write every stage boundary of every session here when it is over.",
            metavar="DIR",
        ),
    ] = None,
    start_timeout_s: Annotated[
        float, typer.Option(envvar="DUO_UP_TIMEOUT_S", min=1, help="All must be ready within this.")
    ] = 120.0,
) -> int:
    """Run everything on this machine: NATS, all stages, the API."""
    from duologue import allinone, processes

    if port and port + api_pods - 1 > 65535:
        raise typer.BadParameter(f"{api_pods} pods from port {port} on", param_hint="--port")
    if nats is not None and data_dir is not None:
        raise Failure("--data-dir is for the embedded NATS server, and --nats joins another one")
    settings = processes.UpSettings(
        model=model,
        port=port,
        workers=parse_workers(workers),
        api_pods=api_pods,
        seed=seed,
        options=parse_options(option),
        keys=read_keys(key, keys_file),
        nats_url=nats,
        data_dir=data_dir,
        tap_dir=tap,
        start_timeout_s=start_timeout_s,
        env=_logging(context.obj, as_json),
    )
    console = Console(stderr=True)

    def report(name: str, line: str) -> None:
        console.print(f"[{name}] {line}", markup=False, highlight=False, soft_wrap=True)

    def on_ready(deployment: processes.Deployment) -> None:
        summary = deployment.summary()
        if as_json:
            print(json.dumps(summary), flush=True)
        else:
            Console().print(_panel(model, summary))
            if deployment.nats_pid is not None:
                # By environment: other users of this machine see what stands on a command line.
                look = f"Look at it: DUO_NATS={deployment.nats_url} duologue top"
                Console().print(look, style="dim", markup=False, highlight=False, soft_wrap=True)
            sys.stdout.flush()

    if not as_json:
        console.print(f"Starting {model} …", highlight=False)
    return asyncio.run(allinone.run(settings, report, on_ready))


def _logging(shared: dict[str, Any], as_json: bool) -> dict[str, str]:
    """How the processes log: for a person only what is not as it should be."""
    if shared.get("debug"):
        return {"DUO_DEBUG": "1"}
    level = shared.get("log_level") or ("info" if as_json else "warning")
    return {"DUO_LOG_LEVEL": level} if as_json else {"DUO_LOG_LEVEL": level, "DUO_LOG_FORMAT": "text"}


def _panel(model: str, summary: dict[str, Any]) -> Panel:
    stages = [worker["stage"] for worker in summary["workers"]]
    counts = ", ".join(f"{stages.count(stage)} {stage}" for stage in dict.fromkeys(stages))
    rows = [
        ("API", summary["url"]),
        *(("Live", url) for url in summary["live_urls"]),
        ("Workers", counts or "none here"),
        ("Try", f"duologue talk FILE.wav --url {summary['live_url'].removesuffix('/v1/live/sessions')}"),
        ("Stop", "Ctrl-C"),
    ]
    text = "\n".join(f"[bold]{name:<8}[/bold] {value}" for name, value in rows)
    return Panel(text, title=f"Duologue · {model}", expand=False)
