"""Writes every stage boundary of every session down when the session is over: `duologue up --tap DIR`."""

import asyncio
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from duologue.boundaries import Boundaries, save
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.nats import NatsTransport
from duologue.bus.tape import Copy, Tap
from duologue.bus.transport import TransportError
from duologue.models import UnknownModel, manifest

KINDS = ("claim", "in", "ev")
MOST_BYTES = 512 << 20
SETTLE_S = 0.5
"""A session's last units may come by another way than the notice of its end."""
IDLE_S = 120.0
"""A session of which nothing was seen for so long is over, though nobody said so: its pod is gone."""
LOOK_S = 5.0

log = structlog.get_logger()


@dataclass(slots=True)
class _Session:
    boundaries: Boundaries
    seen: float
    over: bool = False


class Writer:
    """Collects sessions; one that is over goes to `folder` as `<sid>.npz` and `<sid>.json`.  All of them together take
    at most `most_bytes` of memory: beyond it a session's later units are not kept, and the .json says so.  `model` is
    that of sessions whose start was not seen."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Callable[[], float],
        most_bytes: int = MOST_BYTES,
        model: str | None = None,
    ) -> None:
        self._folder, self._clock, self._most_bytes, self._model = folder, clock, most_bytes, model
        self._models: dict[str, str] = {}
        self._sessions: dict[str, _Session] = {}
        self._ended: dict[str, float] = {}
        """Those written, whose late units come to nothing; forgotten after `IDLE_S`."""
        self._bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self.start)
        now = self._clock()
        for session in self._sessions.values():
            session.over |= now - session.seen > IDLE_S
        self._ended = {sid: at for sid, at in self._ended.items() if now - at <= IDLE_S}
        self._kick()

    async def stop(self) -> None:
        """Writes what there is of every session."""
        if self._timer is not None:
            self._timer.cancel()
        for session in self._sessions.values():
            session.over = True
        self._kick()
        while self._writing is not None:
            await self._writing

    def see(self, copy: Copy) -> None:
        """A message of the bus."""
        kind = subjects.kind_of(copy.subject)
        if copy.no_responders or kind not in KINDS:
            return
        try:
            if kind == "in":
                for envelope in m.decode(copy.data, m.Bundle).units:
                    self._take(envelope)
            elif kind == "claim":
                claim = m.decode(copy.data, m.Claim)
                self._open(claim.sid, claim.model)
            else:
                event = m.decode(copy.data, m.Event)
                if event.kind == "closed" and event.sid in self._sessions:
                    asyncio.get_running_loop().call_later(SETTLE_S, self._over, event.sid)
        except m.Malformed as error:
            log.warning("not understood", subject=copy.subject, error=str(error))

    def _open(self, sid: str, model: str) -> None:
        if sid in self._sessions or sid in self._ended or not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", sid):
            return
        try:
            found = manifest(model)
        except UnknownModel as error:
            log.warning("session not written", sid=sid, error=str(error))
            self._ended[sid] = self._clock()
            return
        self._sessions[sid] = _Session(Boundaries(found), self._clock())

    def _take(self, envelope: m.Envelope) -> None:
        if envelope.sid not in self._sessions and self._model is not None:
            self._open(envelope.sid, self._model)
        session = self._sessions.get(envelope.sid)
        if session is None:
            return
        session.seen = self._clock()
        kept = session.boundaries
        if self._bytes > self._most_bytes:
            kept.cut(f"the {self._most_bytes >> 20} MiB for all sessions were used up")
        before = kept.bytes
        try:
            kept.take(envelope)
        except m.Malformed as error:
            log.warning("unit not understood", sid=envelope.sid, unit=envelope.unit, error=str(error))
        self._bytes += kept.bytes - before

    def _over(self, sid: str) -> None:
        if sid in self._sessions:
            self._sessions[sid].over = True
            self._kick()

    def _kick(self) -> None:
        if self._writing is None and any(session.over for session in self._sessions.values()):
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while over := [sid for sid, session in self._sessions.items() if session.over]:
                kept = self._sessions.pop(over[0]).boundaries
                self._ended[over[0]] = self._clock()
                if not kept.units:
                    continue
                try:
                    await asyncio.to_thread(write, self._folder, over[0], kept)
                except (OSError, ValueError) as error:
                    log.error("session not written", sid=over[0], error=str(error))
                self._bytes -= kept.bytes
        finally:
            self._writing = None


def write(folder: Path, sid: str, kept: Boundaries) -> None:
    """The records last and each file at once, so that whoever sees a .json finds all of the session.  Raises
    `OSError`, `ValueError`."""
    name, again = sid, 1
    while (folder / f"{name}.json").exists():
        again += 1
        name = f"{sid}-{again}"
    making = Path(tempfile.mkdtemp(prefix=".", dir=folder))
    try:
        records = kept.records()
        save(kept.arrays(), records, making / "npz", making / "json")
        os.replace(making / "npz", folder / f"{name}.npz")
        os.replace(making / "json", folder / f"{name}.json")
    finally:
        shutil.rmtree(making, ignore_errors=True)
    if kept.holes or kept.cut_at is not None:
        incomplete = [record["unit"] for record in records if "missing" in record]
        log.warning("session with units missing", sid=sid, units=len(incomplete), first=incomplete[0])


async def run(
    nats_url: str, folder: Path, *, most_bytes: int, model: str | None, ready: Callable[[], None]
) -> None:
    """Until SIGTERM or SIGINT, then writes what there is.  Raises `TransportError`."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[str] = loop.create_future()

    def end(why: str = "") -> None:
        if not ended.done():
            ended.set_result(why)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    transport = NatsTransport(nats_url, name="duologue-tap", on_closed=end)
    await transport.connect()
    writer = Writer(folder, clock=loop.time, most_bytes=most_bytes, model=model)
    tap = Tap(transport, KINDS, writer.see)
    await tap.start()
    writer.start()
    ready()
    why = await ended
    await tap.stop()
    await writer.stop()
    await transport.close()
    if why:
        raise TransportError(f"the NATS server closed the connection: {why}")
