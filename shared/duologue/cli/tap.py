"""`duologue tap`: what passes the bus, decoded."""

import json
from pathlib import Path

import typer

from duologue import lifeline
from duologue.bus import subjects
from duologue.cli import loop
from duologue.settings import NATS_URL, Settings


def tap(settings: Settings) -> int:
    """Show what passes the bus, decoded, one line a message.

    Units with all that they carry, acknowledgements, claims, control, heartbeats,
    events, and what the server returned because nobody listens (503).

    What sessions say is among it, transcripts and the models' decisions: you
    asked for it.  Of audio and other arrays only size and range are shown,
    unless you ask for --bytes.

    Looking disturbs nobody.  When it is too slow to show everything, it says how
    much it left out.
    """
    nats, subject = settings.nats or NATS_URL, settings.subject
    for kind in settings.kind:
        if kind not in subjects.KINDS:
            raise typer.BadParameter(f"{kind!r} is none of {', '.join(subjects.KINDS)}", param_hint="--kind")
    if settings.write is not None:
        if (
            subject
            or settings.kind
            or settings.session
            or settings.as_json
            or settings.count
            or settings.whole
        ):
            raise typer.BadParameter("it goes with --nats, --model and --tap-mib alone", param_hint="--write")
        _write(nats, settings.write, settings.model, settings.tap_mib, settings.announce)
        return 0
    from duologue.tap import watching
    from duologue.tap.choosing import NoSubject, kinds_of

    kinds = tuple(settings.kind) or subjects.KINDS
    if subject is not None:
        try:
            kinds = tuple(each for each in kinds_of(subject) if each in kinds)
        except NoSubject as error:
            raise typer.BadParameter(str(error), param_hint="SUBJECT") from None
        if not kinds:
            raise typer.BadParameter(f"{subject!r} is of another kind", param_hint="--kind")
    chosen = watching.TapSettings(
        nats, kinds, subject, settings.session, settings.as_json, settings.whole, settings.count
    )
    loop.run(watching.run(chosen))
    return 0


def _write(nats: str, folder: Path, model: str | None, memory_mib: int, announce: bool) -> None:
    from duologue.tap import writing

    lifeline.watch()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def ready() -> None:
        if announce:
            print(json.dumps({"ready": True, "role": "tap", "writes": str(folder.resolve())}), flush=True)

    loop.run(writing.run(nats, folder, most_bytes=memory_mib << 20, model=model, ready=ready))
