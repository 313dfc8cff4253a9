"""`duologue up`: everything on this machine, by one command."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.panel import Panel

from duologue.cli.browser import desktop, show
from duologue.cli.failure import Failure
from duologue.cli.options import parse_options, parse_workers, read_keys
from duologue.doctor.installation import missing_for
from duologue.settings import Settings, for_services

MODEL = "pocket"


def up(settings: Settings) -> int:
    """Run everything on this machine: NATS, all stages, the API."""
    from duologue import allinone, processes

    models = tuple(dict.fromkeys(settings.models or [settings.model or MODEL]))
    as_json = settings.as_json
    if settings.port and settings.port + settings.api_pods - 1 > 65535:
        raise typer.BadParameter(
            f"{settings.api_pods} pods from port {settings.port} on", param_hint="--port"
        )
    if settings.nats is not None and settings.data_dir is not None:
        raise Failure("--data-dir is for the embedded NATS server, and --nats joins another one")
    workers = parse_workers(settings.workers)
    if settings.nats is None and (without := [stage for stage, count in workers.items() if not count]):
        why = (
            f"no {', '.join(without)} worker, and no --nats where there might be one: no session could start"
        )
        raise typer.BadParameter(why, param_hint="--workers")
    ours = processes.UpSettings(
        models=models,
        port=settings.port,
        workers=workers,
        api_pods=settings.api_pods,
        seed=settings.seed,
        takeover_reserve=settings.takeover_reserve,
        keep_ledger=settings.keep_ledger,
        options=parse_options(settings.option),
        keys=read_keys(settings.key, settings.keys_file),
        nats_url=settings.nats,
        data_dir=settings.data_dir,
        tap_dir=settings.tap,
        tap_mib=settings.tap_mib,
        start_timeout_s=settings.up_timeout_s,
        env={**for_services(settings), **_logging(settings)},
    )
    console = Console(stderr=True)

    def report(name: str, line: str) -> None:
        console.print(f"[{name}] {line}", markup=False, highlight=False, soft_wrap=True)

    def on_ready(deployment: processes.Deployment) -> None:
        summary = deployment.summary()
        if as_json:
            print(json.dumps(summary), flush=True)
        else:
            Console().print(_panel(", ".join(models), summary))
            if deployment.nats_pid is not None:
                # By environment: other users of this machine see what stands on a command line.
                look = f"Look at it: DUO_NATS={deployment.nats_url} {_duologue()} top"
                Console().print(look, style="dim", markup=False, highlight=False, soft_wrap=True)
            sys.stdout.flush()
            if settings.browser and desktop(sys.platform, os.environ, terminal=sys.stdout.isatty()):
                show(page_url(summary))

    if not as_json:
        # No failure yet: there are other distributions of the same modules, such as onnxruntime-gpu.
        for model in models if any(workers.values()) else ():
            if missing := missing_for(model):
                lacks = f"{model} needs {', '.join(missing)}: pip install 'duologue[{model}]'"
                console.print(lacks, markup=False, highlight=False, soft_wrap=True)
        console.print(f"Starting {', '.join(models)} …", highlight=False)
    return asyncio.run(allinone.run(ours, report, on_ready))


def _logging(settings: Settings) -> dict[str, str]:
    """How the processes log: for a person only what is not as it should be."""
    if settings.debug:
        return {"DUO_DEBUG": "1"}
    level = settings.log_level or ("info" if settings.as_json else "warning")
    return {"DUO_LOG_LEVEL": level, "DUO_LOG_FORMAT": settings.log_format if settings.as_json else "text"}


def page_url(summary: dict[str, Any]) -> str:
    """Of the talk page of the first pod."""
    return f"{summary['url']}/"


def _duologue() -> str:
    """How this command can be called again: in an environment that is not active, by its path."""
    called = Path(sys.argv[0])
    if called.name != "duologue" or not called.is_file():
        return "duologue"
    found = shutil.which("duologue")
    if found is not None and Path(found).resolve() == called.resolve():
        return "duologue"
    return sys.argv[0]


def _panel(model: str, summary: dict[str, Any]) -> Panel:
    stages = [worker["stage"] for worker in summary["workers"]]
    counts = ", ".join(f"{stages.count(stage)} {stage}" for stage in dict.fromkeys(stages))
    rows = [
        ("Talk", f"{page_url(summary)} in a browser"),
        ("API", summary["url"]),
        *(("Live", url) for url in summary["live_urls"]),
        ("Workers", counts or "none here"),
        ("Try", f"{_duologue()} talk FILE.wav --url {summary['live_url'].removesuffix('/v1/live/sessions')}"),
        ("Stop", "Ctrl-C"),
    ]
    text = "\n".join(f"[bold]{name:<8}[/bold] {value}" for name, value in rows)
    return Panel(text, title=f"Duologue · {model}", expand=False)
