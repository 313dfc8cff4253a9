"""`duologue drill`: faults under load, and whether anything was lost."""

import asyncio
import sys

import orjson
import typer
from rich.console import Console

from duologue.cli.failure import Failure, Misuse
from duologue.cli.logs import configure
from duologue.cli.options import parse_options, parse_workers
from duologue.models import STAGES
from duologue.settings import Settings, for_services

FAULTS = (*(f"kill:{stage}" for stage in STAGES), "kill:all")
WORKERS = ",".join(f"{stage}=2" for stage in STAGES)
UNLIMITED = {"DUO_DEADLINE_UNITS": "100"}
"""Whether a busy machine would have taken so many sessions is not what is asked."""

WIDTH = 100
"""Of what is not a terminal, whose lines nothing should cut."""


def drill(settings: Settings) -> int:
    """Strike a deployment under paced sessions, and tell what was lost.

    Starts one with the parrot, whose every sample is known, or joins the one at
    --url: there only faults of clients can be done.  --seed and --option must
    then be those that it was started with.  Exit code 1: something was lost,
    wrong, or ended.

    Faults: kill:WHERE, term:WHERE, hang:WHERE, stop:WHERE:2s, nats:restart,
    nats:blip:300ms, slow-client:10s, fast-client:10s, wait:30s.  WHERE is a stage or api,
    several with + between them, all stages, or any one of them; of each a
    process drawn at random.
    """
    from duologue.drill import drill as drills
    from duologue.drill.fault import BadFault, parse
    from duologue.drill.report import table
    from duologue.drill.striking import NotWhole
    from duologue.processes import UpSettings

    if settings.log_level is None and not settings.debug:
        # That connections break is what it does; what came of it is told in the end.
        configure("error", settings.log_format)
    joined = "url" in settings.origins
    given = settings.fault or (["slow-client", "fast-client"] if joined else FAULTS)
    try:
        faults = [parse(text) for text in given]
    except BadFault as error:
        raise Misuse(str(error)) from None
    if settings.nats is not None and not joined:
        raise Misuse("--nats is the bus of the deployment at --url")
    console = Console(stderr=True, quiet=settings.as_json, highlight=False)

    def tell(what: str) -> None:
        console.print(what, markup=False)

    def log(name: str, line: str) -> None:
        console.print(f"[{name}] {line}", markup=False, soft_wrap=True, style="dim")

    ours = drills.DrillSettings(
        faults=faults,
        sessions=settings.sessions,
        every_s=settings.every_s,
        rounds=settings.rounds or 1,
        seed=settings.seed,
        options=parse_options(settings.option),
        key=next(iter(settings.key), None),
    )
    up = UpSettings(
        models=("parrot",),
        port=0,
        workers=parse_workers(settings.workers if "workers" in settings.origins else WORKERS),
        api_pods=settings.api_pods,
        seed=settings.seed,
        options=ours.options,
        keys=(ours.key,) if ours.key else (),
        env={**UNLIMITED, **for_services(settings), "DUO_LOG_LEVEL": settings.log_level or "error"},
    )
    try:
        said = asyncio.run(
            drills.on_joined(ours, settings.url, settings.nats, tell)
            if joined
            else drills.on_own(ours, up, log, tell)
        )
    except drills.CantStrike as error:
        raise Misuse(str(error)) from None
    except (drills.Interrupted, NotWhole) as error:
        raise Failure(str(error)) from None
    if settings.as_json:
        typer.echo(orjson.dumps(said))
    else:
        Console(width=None if sys.stdout.isatty() else WIDTH).print(table(said))
    return 0 if said["ok"] else 1
