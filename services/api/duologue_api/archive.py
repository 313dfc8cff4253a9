"""What a root keeps of its session in the store: the record, the ledger behind it, and the recording if there is to be one."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from duologue.audio.formats import Format
from duologue.bus import messages as m
from duologue.models import Manifest
from duologue.session.capture import Capture
from duologue.session.chronicler import Chronicler
from duologue.session.ledger import Ledger
from duologue.session.record import ACTIVE, CLOSED, SessionRecord
from duologue.session.segments import Kept, Piece, Said
from duologue.session.writer import SegmentWriter, Shape
from duologue_api.house import House
from duologue_api.live.config import SessionConfig
from duologue_api.wiring import Place, told


class Archive:
    """Of the session `sid`, which was started with `config`.  `fenced` is called when another root holds its record."""

    def __init__(
        self,
        sid: str,
        config: SessionConfig,
        start: m.Start,
        root_epoch: int,
        manifest: Manifest,
        form: Format,
        ledger: Ledger,
        house: House,
        fenced: Callable[[], None],
    ) -> None:
        self.capture = Capture(form, manifest.unit_samples * form.rate // manifest.input_rate)
        self._ledger, self._house = ledger, house
        self._unit_samples = manifest.unit_samples
        self._units = 0
        keep = house.limits.retention
        self._record = record = SessionRecord(
            sid=sid,
            model=manifest.id,
            options=start.options,
            seed=start.seed,
            root_epochs=[(root_epoch, 0, house.exchange.address)],
            form=(form.type, form.rate),
            kept=config.store or keep.everything,
        )
        self._chronicler = Chronicler(sid, house.transport, fenced=fenced, max_age_s=keep.ledger_age_s)
        shape = Shape(
            record.form, self.capture.unit, manifest.input_rate, manifest.output_rate, manifest.unit_s
        )
        self._writer = SegmentWriter(
            sid,
            root_epoch,
            shape,
            self,
            transport=house.transport,
            chronicler=self._chronicler,
            retention=keep,
            recorded=record.kept,
        )

    @property
    def behind_s(self) -> float:
        """Seconds of the session that the store does not have yet."""
        return self._writer.behind_s

    # -- what the root tells

    def wrote(self, what: str, places: Mapping[str, Place], **detail: Any) -> None:
        """`what` happened: a new record, and a notice for observers.  The first is `opened`, the last `closed`."""
        closed = what == "closed"
        self._record = replace(self._record, state=CLOSED if closed else ACTIVE, route=told(places))
        if closed and not self._record.kept:
            # What the model was told is nobody's business once the session is over.
            self._record = replace(self._record, options={})
        self._write()
        self.tell(what, model=self._record.model, **detail)
        if what == "opened":
            self._writer.start()

    def tell(self, what: str, **detail: Any) -> None:
        """Tells observers that `what` happened."""
        self._chronicler.tell(what, **detail)

    def unit(self, envelope: m.Envelope) -> None:
        """An output unit came; its input goes to the store with it."""
        unit = envelope.unit
        self._units = unit + 1
        said = Said.of(envelope) if self._record.kept else None
        decided = m.Decided(envelope.records, envelope.horizons)
        self._writer.add(Kept(unit, self.capture.take(unit), decided, said))

    def close(self) -> "asyncio.Task[None]":
        """After the last record: what is still to be done."""
        rest = self.capture.rest()
        return self._writer.close(Kept(unit, rest[unit]) for unit in sorted(rest))

    # -- what the writer asks

    def chronicle(self, start: int) -> None:
        self._record = replace(self._record, start=start)
        self._write()

    def oldest(self) -> int:
        return self._ledger.oldest

    def context(self) -> Sequence[Kept]:
        known = self._ledger.known.since(self.oldest())
        kept = []
        for unit in range(self.oldest(), self._units):
            emission = self._ledger.inputs.get(unit)
            if emission is not None and unit in known:
                pcm = emission.body.tensors.get("pcm")
                heard: list[Piece] = [pcm.data] if pcm else [self._unit_samples]
                kept.append(Kept(unit, heard, known[unit]))
        return kept

    def _write(self) -> None:
        wall = self._house.tracing.wall()
        self._record = replace(
            self._record, units=self._units, written=wall, opened=self._record.opened or wall
        )
        self._chronicler.write(self._record)
