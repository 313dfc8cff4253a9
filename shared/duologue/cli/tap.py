"""`duologue tap`: what passes the bus, decoded."""

import asyncio
import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from duologue import lifeline
from duologue.bus import subjects
from duologue.cli.options import NATS_URL, Announce, Nats

Kind = Enum("Kind", {kind: kind for kind in subjects.KINDS}, type=str)  # type: ignore[misc]


def tap(
    subject: Annotated[
        str | None,
        typer.Argument(
            envvar="DUO_SUBJECT",
            help="Only messages to these subjects, * and > as in NATS.",
            show_default=False,
        ),
    ] = None,
    nats: Nats = NATS_URL,
    kind: Annotated[
        list[Kind] | None,
        typer.Option(envvar="DUO_KIND", help="Only messages of this kind; repeatable.", show_default=False),
    ] = None,
    session: Annotated[
        str | None, typer.Option(envvar="DUO_SESSION", help="Only what concerns this session.", metavar="SID")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", envvar="DUO_JSON", help="One JSON object a line.")
    ] = False,
    count: Annotated[
        int | None, typer.Option(envvar="DUO_COUNT", min=1, help="End after so many messages.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--bytes", envvar="DUO_BYTES", help="Show all bytes of arrays too, in base64.")
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(
            envvar="DUO_WRITE",
            help="Print nothing; write every stage boundary of every session here when it is over.",
            metavar="DIR",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(envvar="DUO_MODEL", help="With --write: of sessions whose start was not seen."),
    ] = None,
    memory_mib: Annotated[
        int, typer.Option(envvar="DUO_TAP_MIB", min=1, help="With --write: memory for all live sessions.")
    ] = 512,
    announce: Announce = True,
) -> None:
    """Show what passes the bus, decoded, one line a message: units with all that
    they carry, acknowledgements, claims, control, heartbeats, events, and what the
    server returned because nobody listens (503).

    What sessions say is among it, transcripts and the models' decisions: you
    asked for it.  Of audio and other arrays only size and range are shown,
    unless you ask for --bytes.

    Looking disturbs nobody.  When it is too slow to show everything, it says how
    much it left out.
    """
    if write is not None:
        if subject or kind or session or as_json or count or whole:
            raise typer.BadParameter(
                "it goes with --nats, --model and --memory-mib alone", param_hint="--write"
            )
        _write(nats, write, model, memory_mib, announce)
        return
    from duologue.tap import watching
    from duologue.tap.choosing import NoSubject, kinds_of

    kinds = tuple(each.value for each in kind or ()) or subjects.KINDS
    if subject is not None:
        try:
            kinds = tuple(each for each in kinds_of(subject) if each in kinds)
        except NoSubject as error:
            raise typer.BadParameter(str(error), param_hint="SUBJECT") from None
        if not kinds:
            raise typer.BadParameter(f"{subject!r} is of another kind", param_hint="--kind")
    asyncio.run(watching.run(watching.TapSettings(nats, kinds, subject, session, as_json, whole, count)))


def _write(nats: str, folder: Path, model: str | None, memory_mib: int, announce: bool) -> None:
    from duologue.tap import writing

    lifeline.watch()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def ready() -> None:
        if announce:
            print(json.dumps({"ready": True, "role": "tap", "writes": str(folder.resolve())}), flush=True)

    asyncio.run(writing.run(nats, folder, most_bytes=memory_mib << 20, model=model, ready=ready))
