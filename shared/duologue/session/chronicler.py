"""What a root leaves behind of its session: the record in the store, and notices for observers.  Nobody waits for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from duologue import telemetry
from duologue.bus import subjects
from duologue.bus.messages import WIRE, Event, Malformed, decode, encode
from duologue.bus.transport import Bucket, Entry, Transport, TransportError, WrongRevision
from duologue.session.record import BUCKET, CLOSED, MAX_AGE_S, SessionRecord

RETRY_S = 1.0
LAST_RETRIES = 3
"""For the record of a session that is over."""

log = structlog.get_logger()


class Chronicler:
    """One session's record: at most one write under way, always of the newest state; a failed one is retried until
    it succeeds or the next `write` replaces it.  Sessions go on meanwhile; durability is then degraded, and counted.
    `fenced` is called when another root holds the record."""

    def __init__(
        self, sid: str, transport: Transport, *, fenced: Callable[[], None], max_age_s: float = MAX_AGE_S
    ) -> None:
        self.last: SessionRecord | None = None
        """The newest that was written."""
        self.losses = 0
        """How often a record that was written was found gone."""
        self.superseded = False
        """Another root holds the record: nothing of the session is this root's any more."""
        self._sid, self._transport, self._fenced = sid, transport, fenced
        self._max_age_s = max_age_s
        self._revision = 0
        self._newest: SessionRecord | None = None
        self._asked: SessionRecord | None = None
        self._task: asyncio.Task[None] | None = None

    def write(self, record: SessionRecord) -> None:
        """Never waits."""
        if self.superseded:
            return
        self._newest = self._asked = record
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    @property
    def writing(self) -> "asyncio.Task[None] | None":
        """The write under way; it ends when nothing is left to be written, or nothing can be."""
        return None if self._task is None or self._task.done() else self._task

    @property
    def settled(self) -> bool:
        """Whether the newest record is in the store, as far as is known, and this root's."""
        return self.last is not None and self.last is self._asked and not self.superseded

    async def confirm(self) -> None:
        """Looks whether the record is still there: writes it anew where it is gone, and ends a root that is superseded.
        Raises `TransportError`."""
        if self.writing is None and (record := self.last) is not None:
            entry = await (await self._bucket()).get(self._sid)
            if self.writing is not None:
                return
            if self._found(entry, record):
                self._fence()
            elif entry is None:
                self.write(record)

    def tell(self, what: str, **detail: Any) -> None:
        """Tells observers that `what` happened to the session."""
        event = Event(WIRE, what, self._sid, detail)
        self._transport.publish(subjects.event(what, self._sid), encode(event))

    def _bucket(self) -> Awaitable[Bucket]:
        return self._transport.bucket(BUCKET, max_age_s=self._max_age_s)

    async def _run(self) -> None:
        failures = last_failures = 0
        while (record := self._newest) is not None:
            self._newest = None
            try:
                bucket = await self._bucket()
                self._revision = await bucket.update(self._sid, encode(record), self._revision)
                self.last = record
            except WrongRevision:
                if await self._is_superseded(record):
                    self._fence()
                    return
                self._newest = self._newest or record
            except TransportError as error:
                failures += 1
                last_failures += record.state == CLOSED
                telemetry.STORE_ERRORS.labels(BUCKET).inc()
                # The 1st, 2nd, 4th, … of each session: a store may be away for hours.
                if failures.bit_count() == 1:
                    log.warning("record not written", sid=self._sid, tries=failures, error=str(error))
                if last_failures > LAST_RETRIES:
                    return
                self._newest = self._newest or record
                await asyncio.sleep(RETRY_S)

    async def _is_superseded(self, record: SessionRecord) -> bool:
        """Whether the record found is of a higher root epoch.  If not, a write of our own whose answer was lost may
        have changed the revision: the next try goes on from the revision found."""
        try:
            entry = await (await self._bucket()).get(self._sid)
        except TransportError:
            return False
        return self._found(entry, record)

    def _fence(self) -> None:
        log.warning("another root holds the record", sid=self._sid)
        self.superseded = True
        self._fenced()

    def _found(self, entry: Entry | None, record: SessionRecord) -> bool:
        """Whether what the store has for the record is of a higher root epoch."""
        if entry is None:
            self.losses += self._revision > 0
            self._revision = 0
            return False
        self._revision = entry.revision
        try:
            return decode(entry.value, SessionRecord).root_epoch > record.root_epoch
        except Malformed:
            return False
