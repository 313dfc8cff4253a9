"""`duologue sessions`: what the store knows of sessions; recordings as files, and run again."""

import importlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import orjson
import typer

from duologue.cli import loop
from duologue.cli.failure import Failure
from duologue.cli.options import parse_workers
from duologue.models import manifest
from duologue.settings import NATS_URL, Settings

T = TypeVar("T")


def sessions(settings: Settings) -> int:
    """List the sessions that the store knows (ls), show one (show), write a
    recorded one to a file (export), or run it again (replay).

    A session is recorded where its client asks for it (store), or with
    --keep-ledger of the API.  What a replay puts out is the same, byte by byte,
    whatever the --workers and however many sessions are stepped with it; else
    it says from which unit on it is not, and exits with 1.
    """
    if settings.action == "ls":
        return _list(settings)
    if settings.sid is None:
        raise typer.BadParameter(f"{settings.action} wants a session's id", param_hint="SID")
    return {"show": _show, "export": _export, "replay": _replay}[settings.action or ""](
        settings, settings.sid
    )


def _list(settings: Settings) -> int:
    from duologue.session.stored import records

    found = _ask(settings, records)
    rows = [_row(record) for record in found]
    if settings.as_json:
        typer.echo(orjson.dumps(rows))
        return 0
    for row in rows:
        marks = " recorded" if row["recorded"] else ""
        typer.echo(
            f"{row['sid']:<31}  {row['opened']:<20}  {row['model']:<10}  {row['state']:<6}  {row['seconds']:>9.2f} s{marks}"
        )
    return 0


def _show(settings: Settings, sid: str) -> int:
    from duologue.session.segments import gaps
    from duologue.session.stored import stored

    record, back, sizes = _ask(settings, lambda transport: stored(transport, sid))
    start = 0 if record.kept else record.start
    end = max([record.units, *(unit + 1 for unit in back.decided)])
    shown = {
        **_row(record),
        "seed": record.seed,
        "format": list(record.form),
        "route": {stage: [list(entry) for entry in entries] for stage, entries in record.route.items()},
        "root_epochs": [list(each) for each in record.root_epochs],
        "stored": {bucket: {"values": size.values, "bytes": size.bytes} for bucket, size in sizes.items()},
        "first_unit": min(back.decided, default=None),
        "gaps": gaps(back.decided, start, end) if back.decided else [],
    }
    if settings.as_json:
        typer.echo(orjson.dumps(shown))
        return 0
    for name, value in shown.items():
        if isinstance(value, dict):
            for inner, of_inner in value.items():
                typer.echo(f"{name + ' ' + inner:<18}  {_plain(of_inner)}")
        else:
            typer.echo(f"{name:<18}  {_plain(value)}")
    return 0


def _export(settings: Settings, sid: str) -> int:
    from duologue.session.recording import save

    out = settings.out or Path(f"{sid}.npz")
    if out.suffix == ".json":
        raise typer.BadParameter("the records take the name with .json", param_hint="--out")
    recording = _recording(settings, sid)
    beside = save(recording, out, manifest(recording.record.model))
    typer.echo(
        orjson.dumps({"sid": sid, "units": recording.units, "arrays": str(out), "records": str(beside)})
    )
    return 0


def _replay(settings: Settings, sid: str) -> int:
    from duologue.session.recording import NoRecording, load

    try:
        recording = load(Path(sid)) if sid.endswith(".npz") else _recording(settings, sid)
    except NoRecording as error:
        raise Failure(str(error)) from None
    workers = parse_workers(settings.workers)
    replayed = importlib.import_module("duologue.replay").run(
        recording, workers=workers, alongside=settings.alongside
    )
    differs = [each.differs(recording) for each in replayed]
    equal = not any(differs)
    compared = sum(unit < recording.units for unit in recording.said)
    if settings.as_json:
        told = {
            "sid": recording.record.sid,
            "units": recording.units,
            "units_with_output": compared,
            "sessions": len(replayed),
            "equal": equal,
            "differs": differs,
        }
        typer.echo(orjson.dumps(told))
        return int(not equal)
    against = (
        f"{compared} of them with their output" if compared else "without output: only decisions are compared"
    )
    typer.echo(f"{recording.units} units, {against}, replayed in {len(replayed)} sessions at a time")
    for number, each in enumerate(differs):
        typer.echo(f"session {number + 1}: {'equal' if not each else 'differs: ' + '; '.join(each)}")
    return int(not equal)


# ---------------------------------------------------------------- the store


def _recording(settings: Settings, sid: str) -> Any:
    from duologue.session.recording import Incomplete, complete
    from duologue.session.stored import stored

    found = _ask(settings, lambda transport: stored(transport, sid))
    if not found.record.kept:
        raise Failure(f"{sid} was not recorded: its client did not ask for it (store), nor did --keep-ledger")
    try:
        return complete(found.record, found.back)
    except Incomplete as error:
        raise Failure(str(error)) from None


def _ask(settings: Settings, question: Callable[[Any], Awaitable[T]]) -> T:
    """Raises `Failure`, and `TransportError` for a store that does not answer."""
    from duologue.bus.nats import NatsTransport
    from duologue.session.segments import NewerLedger
    from duologue.session.stored import NoSession

    async def ask() -> T:
        transport = NatsTransport(settings.nats or NATS_URL, name="duologue-sessions")
        await transport.connect()
        try:
            return await question(transport)
        finally:
            await transport.close()

    try:
        return loop.run(ask())
    except (NoSession, NewerLedger) as error:
        raise Failure(str(error.args[0])) from None


def _row(record: Any) -> dict[str, Any]:
    try:
        unit_s = manifest(record.model).unit_s
    except LookupError:  # another installation's
        unit_s = 0.0
    return {
        "sid": record.sid,
        "model": record.model,
        "state": record.state,
        "opened": datetime.fromtimestamp(record.opened, UTC)
        .isoformat(timespec="seconds")
        .removesuffix("+00:00")
        + "Z",
        "units": record.units,
        "seconds": record.units * unit_s,
        "recorded": record.kept,
    }


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{inner} {name}" for name, inner in value.items())
    if isinstance(value, list):
        return (
            "; ".join(
                " ".join(map(str, each)) if isinstance(each, list | tuple) else str(each) for each in value
            )
            or "none"
        )
    return str(value).lower() if isinstance(value, bool) else str(value)
