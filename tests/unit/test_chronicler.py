"""What a root leaves behind: the record in the store, and notices for observers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.memory import LATENCY_S, MemoryBus, MemoryTransport
from duologue.session.chronicler import LAST_RETRIES, RETRY_S, Chronicler
from duologue.session.record import ACTIVE, BUCKET, CLOSED, MAX_AGE_S, SessionRecord
from duologue.virtual import run_virtual

pytestmark = pytest.mark.unit

SID = "live_x"


def record(units: int, state: str = ACTIVE, root_epoch: int = 1, pod: str = "api.a") -> SessionRecord:
    return SessionRecord(sid=SID, state=state, units=units, root_epochs=[(root_epoch, 0, pod)])


class Bench:
    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.fenced = 0

    async def start(self) -> None:
        self.transport, self.other = MemoryTransport(self.bus, "pod"), MemoryTransport(self.bus, "other")
        await self.transport.connect()
        await self.other.connect()
        self.chronicler = Chronicler(SID, self.transport, fenced=self._fence)

    def _fence(self) -> None:
        self.fenced += 1

    async def stored(self) -> SessionRecord | None:
        entry = await (await self.other.bucket(BUCKET, max_age_s=MAX_AGE_S)).get(SID)
        return None if entry is None else m.decode(entry.value, SessionRecord)

    async def usurp(self, by: SessionRecord) -> None:
        await (await self.other.bucket(BUCKET)).put(SID, m.encode(by))

    @staticmethod
    def errors() -> float:
        return telemetry.STORE_ERRORS.labels(BUCKET)._value.get()  # type: ignore[no-any-return]


def play(script: Callable[[Bench], Awaitable[None]]) -> Bench:
    bench = Bench()

    async def main() -> None:
        await bench.start()
        await script(bench)

    run_virtual(main())
    return bench


def test_the_newest_record_is_written() -> None:
    async def script(bench: Bench) -> None:
        assert await bench.stored() is None
        bench.chronicler.write(record(1))
        await asyncio.sleep(0.1)
        assert await bench.stored() == record(1)
        bench.chronicler.write(record(2, CLOSED))
        await asyncio.sleep(0.1)
        assert await bench.stored() == record(2, CLOSED)

    assert play(script).fenced == 0


def test_writing_never_waits_and_only_the_newest_counts() -> None:
    async def script(bench: Bench) -> None:
        bucket = await bench.other.bucket(BUCKET)
        before = await bucket.put("other", b"")
        for units in range(100):
            bench.chronicler.write(record(units))
        await asyncio.sleep(LATENCY_S / 2)
        bench.chronicler.write(record(100))
        await asyncio.sleep(0.1)
        assert await bench.stored() == record(100)
        entry = await bucket.get(SID)
        assert entry is not None
        assert entry.revision <= before + 3

    play(script)


def test_without_a_store_it_goes_on_trying_and_counts() -> None:
    async def script(bench: Bench) -> None:
        bench.bus.store.up = False
        before = bench.errors()
        bench.chronicler.write(record(1))
        await asyncio.sleep(10 * RETRY_S - 0.5)
        assert bench.errors() == before + 10
        bench.chronicler.write(record(2))
        bench.bus.store.up = True
        await asyncio.sleep(RETRY_S)
        assert await bench.stored() == record(2)
        await asyncio.sleep(10 * RETRY_S)
        assert bench.errors() == before + 10

    assert play(script).fenced == 0


def test_of_a_session_that_is_over_it_tries_a_few_times() -> None:
    """Failures before the end counted too, so that the record of a session that had lived without a store was tried
    once and then given up."""

    async def script(bench: Bench) -> None:
        bench.bus.store.up = False
        bench.chronicler.write(record(1))
        await asyncio.sleep(20 * RETRY_S - 0.5)
        before = bench.errors()
        bench.chronicler.write(record(2, CLOSED))
        await asyncio.sleep(60 * RETRY_S)
        assert bench.errors() == before + LAST_RETRIES + 1
        bench.bus.store.up = True
        await asyncio.sleep(10 * RETRY_S)
        assert await bench.stored() is None, "nobody tries any more"

    play(script)


def test_the_record_of_a_session_that_is_over_outlasts_a_short_outage() -> None:
    async def script(bench: Bench) -> None:
        bench.bus.store.up = False
        bench.chronicler.write(record(1))
        await asyncio.sleep(20 * RETRY_S - 0.5)
        bench.chronicler.write(record(2, CLOSED))
        await asyncio.sleep(LAST_RETRIES * RETRY_S - 0.5)
        bench.bus.store.up = True
        await asyncio.sleep(2 * RETRY_S)
        assert await bench.stored() == record(2, CLOSED)

    play(script)


@pytest.mark.parametrize("state", [ACTIVE, CLOSED])
def test_another_roots_record_is_left_alone(state: str) -> None:
    async def script(bench: Bench) -> None:
        bench.chronicler.write(record(1))
        await asyncio.sleep(0.1)
        await bench.usurp(record(5, root_epoch=2))
        bench.chronicler.write(record(2, state))
        await asyncio.sleep(5)
        assert bench.fenced == 1
        assert await bench.stored() == record(5, root_epoch=2)

    play(script)


def test_a_record_that_is_found_at_the_start_is_another_roots() -> None:
    async def script(bench: Bench) -> None:
        await bench.usurp(record(5, root_epoch=2))
        bench.chronicler.write(record(1))
        await asyncio.sleep(5)
        assert bench.fenced == 1

    play(script)


@pytest.mark.parametrize("found", [record(5, pod="api.z"), record(5, root_epoch=0)])
def test_only_a_higher_root_epoch_is_a_fence(found: SessionRecord) -> None:
    """Our own write whose answer was lost changes the revision too.  An address was compared where the epochs were
    equal."""

    async def script(bench: Bench) -> None:
        bench.chronicler.write(record(1))
        await asyncio.sleep(0.1)
        await bench.usurp(found)
        bench.chronicler.write(record(2))
        await asyncio.sleep(5)
        assert await bench.stored() == record(2)

    assert play(script).fenced == 0


def test_garbage_in_the_store_is_written_over() -> None:
    async def script(bench: Bench) -> None:
        await (await bench.other.bucket(BUCKET)).put(SID, b"\x01")
        bench.chronicler.write(record(1))
        await asyncio.sleep(5)
        assert await bench.stored() == record(1)

    assert play(script).fenced == 0


def test_a_write_whose_answer_is_lost_is_made_again() -> None:
    async def script(bench: Bench) -> None:
        bench.chronicler.write(record(1))
        await asyncio.sleep(0.1)
        bench.chronicler.write(record(2))
        await asyncio.sleep(1.5 * LATENCY_S)
        bench.transport.blink(0.1)
        bench.chronicler.write(record(3))
        await asyncio.sleep(2 * RETRY_S)
        assert await bench.stored() == record(3)

    assert play(script).fenced == 0


def test_after_a_wiped_store_the_record_is_written_anew() -> None:
    async def script(bench: Bench) -> None:
        bench.chronicler.write(record(1))
        await asyncio.sleep(0.1)
        bench.bus.store.wipe()
        bench.chronicler.write(record(2))
        await asyncio.sleep(3 * RETRY_S)
        assert await bench.stored() == record(2)

    assert play(script).fenced == 0


def test_nobody_renewed_it_for_an_hour() -> None:
    async def script(bench: Bench) -> None:
        bench.chronicler.write(record(1))
        await asyncio.sleep(MAX_AGE_S - 1)
        assert await bench.stored() == record(1)
        await asyncio.sleep(2)
        assert await bench.stored() is None

    bench = Bench()

    async def main() -> None:
        await bench.start()
        await script(bench)

    run_virtual(main(), limit_s=2 * MAX_AGE_S)


def test_observers_are_told() -> None:
    async def script(bench: Bench) -> None:
        heard: list[m.Event] = []
        await bench.other.subscribe(
            subjects.event("opened", SID), lambda message: heard.append(m.decode(message.data, m.Event))
        )
        bench.chronicler.tell("opened", model="parrot")
        bench.chronicler.tell("closed", units=3)
        await asyncio.sleep(0.1)
        assert heard == [m.Event(m.WIRE, "opened", SID, {"model": "parrot"})]

    play(script)


def test_a_record_tells_its_last_root() -> None:
    assert SessionRecord().root_epoch == 0
    assert SessionRecord(root_epochs=[(1, 0, "api.a"), (4, 7, "api.b")]).root_epoch == 4


def test_a_store_that_stays_away_is_not_told_at_every_try(capsys: pytest.CaptureFixture[str]) -> None:
    """Without JetStream every session logged a line a second, for as long as it lived."""

    async def script(bench: Bench) -> None:
        bench.bus.store.up = False
        bench.chronicler.write(record(1))
        await asyncio.sleep(40)
        assert bench.errors() - before >= 40

    before = Bench.errors()
    play(script)
    assert 1 <= "".join(capsys.readouterr()).count("not written") <= 7
