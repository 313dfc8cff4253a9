"""Writes a session's ledger behind it: each second what was decided since, while the session waits for nothing."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import structlog

from duologue import telemetry
from duologue.bus.messages import encode
from duologue.bus.transport import Bucket, StoreUnavailable, Transport, TransportError
from duologue.session import segments
from duologue.session.chronicler import LAST_RETRIES, RETRY_S, Chronicler
from duologue.session.retention import Retention
from duologue.session.segments import AUDIO, LEDGERS, STORE, Form, Kept, TooLarge

EVERY_S = 1.0
LAG_S = 30.0
"""What is not written after so long of the session is given up, the oldest first."""
PRUNE_S = 10.0
"""So much of the ledger has to be of no use any more before it is deleted."""

log = structlog.get_logger()


class Source(Protocol):
    """The root, as its writer sees it."""

    def chronicle(self, start: int) -> None:
        """Has the session record written: units before `start` are not in the ledger any more."""
        ...

    def oldest(self) -> int:
        """The oldest unit that is still of use."""
        ...

    def context(self) -> Sequence[Kept]:
        """All units from `oldest` on that were answered, as PCM at the model's own rate."""
        ...


class Shape(NamedTuple):
    """The client's format with its samples of a unit; the model's input and output in samples a second, and seconds of a
    unit."""

    form: Form
    samples: int
    input_rate: int
    output_rate: int
    unit_s: float


class _Put(NamedTuple):
    bucket: str
    key: str
    value: bytes
    end: int
    """The first unit after those in it."""


class SegmentWriter:
    """Of one session.  What waits to be written is bounded by `LAG_S`.  A store that is away is tried again each second:
    when it is back everything that still waits is written; where something was given up, or the store has lost what it
    had, the whole context is written anew (`recorded` sessions have a hole there all the same)."""

    def __init__(
        self,
        sid: str,
        root_epoch: int,
        shape: Shape,
        source: Source,
        *,
        transport: Transport,
        chronicler: Chronicler,
        retention: Retention,
        recorded: bool,
    ) -> None:
        self.dropped = 0
        """Units given up."""
        self._sid, self._root_epoch, self._shape, self._source = sid, root_epoch, shape, source
        self._transport, self._chronicler = transport, chronicler
        self._retention, self._recorded = retention, recorded
        self._most = max(1, round(LAG_S / shape.unit_s))
        self._waiting: deque[Kept] = deque()  # bounded: by add
        self._puts: deque[_Put] = deque()  # bounded: one batch of what waited, or the context
        self._number = 0
        self._start = self._taken = self._stored = 0
        self._anew = False
        self._failures = 0
        self._losses = 0
        self._written: dict[str, deque[tuple[int, int]]] = {
            LEDGERS: deque(),  # bounded: by _prune, to the context
            AUDIO: deque(),  # bounded: as that
        }
        """(end, revision) of each value that is there."""
        self._newest: dict[str, int] = {}
        """Revision of the newest value by bucket."""
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- what the root calls; nothing of it waits

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def add(self, kept: Kept) -> None:
        """The session's next unit."""
        self._waiting.append(kept)
        self._taken = kept.unit + 1
        while len(self._waiting) > self._most:
            self._waiting.popleft()
            self.dropped += 1
            self._anew = True
            telemetry.LEDGER_DROPPED.inc()

    def close(self, rest: Iterable[Kept]) -> "asyncio.Task[None]":
        """The session is over, `rest` the input that was never answered; the task ends when all is written that can
        be, and what is not to be kept is deleted."""
        if self._recorded:
            for kept in rest:
                self.add(kept)
        self._ending.set()
        if self._task is None:  # it ended while it was being started
            self.start()
        assert self._task is not None
        return self._task

    @property
    def behind_s(self) -> float:
        """Seconds of the session that the store does not have yet."""
        return max(0, self._taken - self._stored) * self._shape.unit_s

    # -- the task

    async def _run(self) -> None:
        while not self._ending.is_set():
            try:
                async with asyncio.timeout(EVERY_S):
                    await self._ending.wait()
            except TimeoutError:
                await self._tried(self._keep_up)
        for _ in range(1 + LAST_RETRIES):
            if await self._tried(self._end):
                return
            await asyncio.sleep(RETRY_S)
        log.warning("ledger not settled", sid=self._sid, recorded=self._recorded)

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except TransportError as error:
            self._failures += 1
            telemetry.STORE_ERRORS.labels(LEDGERS).inc()
            # The 1st, 2nd, 4th, … of each session: a store may be away for hours.
            if self._failures.bit_count() == 1:
                log.warning("ledger not written", sid=self._sid, tries=self._failures, error=str(error))
            return False
        self._failures = 0
        return True

    async def _keep_up(self) -> None:
        await self._chronicler.confirm()
        if self._chronicler.superseded:
            return
        if self._chronicler.losses > self._losses:
            self._losses = self._chronicler.losses
            self._lost()
        await self._write()
        if self._anew:
            self._rewrite()
            await self._write()
        await self._prune()

    async def _end(self) -> None:
        """A live session's ledger is of no use any more.  The record goes first, so that nobody reads what is half
        gone (DESIGN §5)."""
        if (writing := self._chronicler.writing) is not None:
            await writing
        if not self._chronicler.settled:  # the record is another root's, or says that the session lives
            return
        if self._recorded:
            await self._write()
            assert self._chronicler.last is not None
            await (await self._bucket(STORE)).put(self._sid, encode(self._chronicler.last))
        if self._number:
            for name in self._written:
                await (await self._bucket(name)).purge(f"{self._sid}.")

    async def _write(self) -> None:
        """Everything that waits.  Raises `TransportError`."""
        while self._puts or self._waiting:
            if not self._puts:
                batch = list(self._waiting)
                self._waiting.clear()
                self._queue(batch, self._shape.form, self._shape.samples, self._recorded)
            while self._puts:
                await self._put(self._puts[0])
                end = self._puts.popleft().end
            self._stored = end

    async def _put(self, put: _Put) -> None:
        if put.bucket == STORE and STORE not in self._newest and (record := self._chronicler.last):
            await (await self._bucket(STORE)).put(self._sid, encode(record))
        try:
            revision = await (await self._bucket(put.bucket)).put(put.key, put.value)
        except StoreUnavailable:  # if it was found missing, it is made now
            revision = await (await self._bucket(put.bucket)).put(put.key, put.value)
        telemetry.SEGMENTS.labels(put.bucket).inc()
        if revision < self._newest.get(put.bucket, 0):
            self._lost()
        self._newest[put.bucket] = revision
        if (written := self._written.get(put.bucket)) is not None:
            written.append((put.end, revision))

    def _lost(self) -> None:
        """The store has not what it had."""
        if self._anew:
            return
        telemetry.STORE_LOSSES.inc()
        log.warning("the store was wiped", sid=self._sid)
        self._anew, self._stored = True, self._source.oldest()

    def _rewrite(self) -> None:
        self._anew = False
        self._newest.clear()
        for written in self._written.values():
            written.clear()
        self._start = self._source.oldest()
        self._source.chronicle(self._start)
        rate = self._shape.input_rate
        samples = round(rate * self._shape.unit_s)
        self._queue(self._source.context(), ("audio/pcm", rate), samples, False)

    def _queue(self, units: Sequence[Kept], form: Form, samples: int, recorded: bool) -> None:
        if not units:
            return
        end = units[-1].unit + 1
        try:
            values = {
                LEDGERS: [*segments.decisions(units)],
                AUDIO: [*segments.inputs(units, form, samples)],
            }
            if recorded:
                said = segments.outputs(units, self._shape.output_rate)
                values[STORE] = [*values[LEDGERS], *values[AUDIO], *said]
        except TooLarge as error:
            log.error("ledger has a hole", sid=self._sid, why=str(error))
            telemetry.LEDGER_DROPPED.inc(len(units))
            return
        for bucket, of_bucket in values.items():
            for value in of_bucket:
                self._number += 1
                self._puts.append(
                    _Put(bucket, segments.key(self._sid, self._root_epoch, self._number), value, end)
                )

    async def _prune(self) -> None:
        """Deletes what nothing depends on any more, once the record says so."""
        oldest = self._source.oldest()
        if (oldest - self._start) * self._shape.unit_s < PRUNE_S:
            return
        self._source.chronicle(oldest)
        if (writing := self._chronicler.writing) is not None:
            await asyncio.shield(writing)
        if not self._chronicler.settled:
            return
        self._start = oldest
        for name, written in self._written.items():
            kept = next((at for at, (end, _) in enumerate(written) if end > oldest), len(written))
            for _ in range(kept):
                gone = written.popleft()[1]
            if kept:
                before = written[0][1] if written else gone + 1
                await (await self._bucket(name)).purge(f"{self._sid}.", before)

    async def _bucket(self, name: str) -> Bucket:
        keep = self._retention
        return await self._transport.bucket(name, max_age_s=keep.age_s(name), max_bytes=keep.bytes(name))
