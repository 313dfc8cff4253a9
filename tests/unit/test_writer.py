"""What the store has of sessions while they live and afterwards, whatever happens to it."""

import asyncio
import gc
from typing import Any

import pytest

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus.memory_store import MemoryBucket
from duologue.session.record import ACTIVE, BUCKET, CLOSED, SessionRecord
from duologue.session.retention import Retention
from duologue.session.segments import AUDIO, LEDGERS, STORE, gaps
from duologue.session.writer import EVERY_S, LAG_S, PRUNE_S
from kept_sessions import Call, Keeping, play, speech

pytestmark = pytest.mark.unit

UNITS_PER_S = 12.5
AGE_S = 60.0
AGES = Retention(ledger_age_s=AGE_S, store_age_s=4 * AGE_S)


def talking(call: Call, units: int) -> "asyncio.Task[None]":
    return asyncio.create_task(call.say(speech(units).tobytes()))


async def settled(it: Keeping, call: Call) -> None:
    """Everything that was answered so far has had its second."""
    await asyncio.sleep(2 * EVERY_S + 0.1)


async def complete_from(it: Keeping, call: Call, start: int) -> None:
    """Records and audio of all units from `start` on are in the store, but for those of the last second."""
    end = call.root.units_out - round(call.root.behind_s / 0.08)
    assert call.root.behind_s <= EVERY_S + 0.2
    there = await it.read(call.sid)
    assert gaps(there.back.decided, start, end) == []
    assert gaps(there.back.heard, start, end) == []
    assert end > start


# ---------------------------------------------------------------- a live session


def test_each_second_what_was_decided_is_written() -> None:
    async def script(it: Keeping) -> None:
        call = await it.session()
        talk = talking(call, 60)
        await asyncio.sleep(3.0)
        assert 0 <= call.root.behind_s <= EVERY_S + 0.2
        there = await it.read(call.sid)
        assert len(there.back.decided) >= 1.5 * UNITS_PER_S
        assert there.record.state == ACTIVE
        assert there.back.said == {}, "what is said is kept of recorded sessions alone"
        known = call.root.ledger.known
        for unit, decided in there.back.decided.items():
            assert decided.horizons.keys() == {"encoder", "llm", "talker", "codec"}
            assert decided.records["llm"] == known.record(unit, "llm")
        await talk
        await settled(it, call)
        await complete_from(it, call, 0)
        assert call.root.behind_s == 0
        await call.close()
        assert await it.counts() == {BUCKET: 1, LEDGERS: 0, AUDIO: 0, STORE: 0}
        record = await it.record(call.sid)
        assert record is not None
        assert (record.state, record.units) == (CLOSED, 60)

    play(script)


def test_a_recorded_session_stays_in_its_own_bucket() -> None:
    async def script(it: Keeping) -> None:
        call = await it.session(store=True)
        await talking(call, 30)
        await call.close()
        counts = await it.counts()
        assert (counts[LEDGERS], counts[AUDIO]) == (0, 0)
        assert counts[STORE] >= 4
        there = await it.read(call.sid)
        assert sorted(there.back.said) == list(range(30))
        assert there.sizes[STORE].values == counts[STORE] - 1, "beside the record"

    play(script)


def test_what_no_stage_can_need_is_deleted_after_the_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[tuple[int, int]] = []
    purge = MemoryBucket.purge

    async def watched(self: Any, prefix: str, before: int = 0) -> None:
        sid = prefix.rstrip(".")
        record = self._store.find(BUCKET).held[sid].entry.value
        await purge(self, prefix, before)
        left = [
            m.decode(held.entry.value, list)[3]
            for key, held in self._store.find(self._name).held.items()
            if key.startswith(prefix)
        ]
        starts.append((m.decode(record, SessionRecord).start, min(left, default=0)))

    monkeypatch.setattr(MemoryBucket, "purge", watched)

    async def script(it: Keeping) -> None:
        call = await it.session()
        talk = talking(call, 900)
        sizes = []
        for _ in range(6):
            await asyncio.sleep(11)
            sizes.append((await it.counts())[AUDIO])
            record = await it.record(call.sid)
            assert record is not None
            await complete_from(it, call, record.start)
            assert call.root.ledger.oldest - record.start <= (PRUNE_S + 2) * UNITS_PER_S
        assert max(sizes) <= 2 * (PRUNE_S + 5), sizes
        assert len(starts) >= 8
        for start, first in starts:
            assert first <= start, "nothing goes before the record says so"
        await talk
        await call.close()
        assert await it.counts() == {BUCKET: 1, LEDGERS: 0, AUDIO: 0, STORE: 0}

    play(script, session_options={"context_units": 12})


# ---------------------------------------------------------------- a store in trouble


def test_a_store_that_is_away_for_five_seconds_is_caught_up_with() -> None:
    async def script(it: Keeping) -> None:
        call = await it.session(store=True)
        talk = talking(call, 150)
        await asyncio.sleep(3.0)
        it.store.up = False
        errors = telemetry.STORE_ERRORS.labels(LEDGERS)._value.get()
        await asyncio.sleep(5.0)
        assert telemetry.STORE_ERRORS.labels(LEDGERS)._value.get() >= errors + 4
        assert 5 <= call.root.behind_s <= 7
        assert len(call.client.units) >= 7.5 * UNITS_PER_S, "the session waits for nothing"
        it.store.up = True
        await settled(it, call)
        assert call.root.behind_s <= 2
        await talk
        await call.close()
        there = await it.read(call.sid)
        assert sorted(there.back.said) == list(range(150))
        assert gaps(there.back.decided, 0, 150) == []

    play(script)


def test_a_store_that_is_away_too_long_gets_the_context_and_what_is_given_up_is_counted() -> None:
    async def script(it: Keeping) -> None:
        call = await it.session()
        talk = talking(call, 800)
        await asyncio.sleep(2.0)
        it.store.up = False
        dropped = telemetry.LEDGER_DROPPED._value.get()
        away_s = LAG_S + 20
        await asyncio.sleep(away_s)
        writer = call.root._archive._writer
        assert len(writer._waiting) + sum(1 for _ in writer._puts) <= (LAG_S + 2) * UNITS_PER_S
        assert telemetry.LEDGER_DROPPED._value.get() - dropped > 15 * UNITS_PER_S
        it.store.up = True
        await settled(it, call)
        await settled(it, call)
        await complete_from(it, call, call.root.ledger.oldest)
        await talk
        await call.close()
        assert (await it.counts())[AUDIO] == 0

    play(script)


@pytest.mark.parametrize("store", [False, True])
def test_a_wiped_store_gets_record_and_context_anew(store: bool) -> None:
    async def script(it: Keeping) -> None:
        call = await it.session(store=store)
        talk = talking(call, 200)
        for _ in range(2):
            await asyncio.sleep(5.0)
            losses = telemetry.STORE_LOSSES._value.get()
            it.store.wipe()
            await settled(it, call)
            await settled(it, call)
            assert telemetry.STORE_LOSSES._value.get() == losses + 1
            record = await it.record(call.sid)
            assert record is not None
            assert (record.state, record.start) == (ACTIVE, call.root.ledger.oldest)
            await complete_from(it, call, record.start)
        await talk
        await call.close()
        assert len(call.client.units) == 200
        counts = await it.counts()
        assert (counts[BUCKET], counts[LEDGERS], counts[AUDIO]) == (1, 0, 0)

    play(script)


def test_one_bucket_that_was_wiped_while_others_filled_it_again() -> None:
    """The record is still there, and no write ever failed: only that revisions begin anew tells it."""

    async def script(it: Keeping) -> None:
        call = await it.session()
        talk = talking(call, 150)
        await asyncio.sleep(6.0)
        it.store._buckets[AUDIO].held.clear()
        it.store._revisions = iter(range(1, 1000))  # type: ignore[assignment]
        await settled(it, call)
        await settled(it, call)
        await complete_from(it, call, call.root.ledger.oldest)
        await talk
        await call.close()

    play(script)


def test_a_slow_store_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    put = MemoryBucket.put

    async def slow(self: Any, key: str, value: bytes) -> int:
        await asyncio.sleep(1.5)
        return await put(self, key, value)

    monkeypatch.setattr(MemoryBucket, "put", slow)

    async def script(it: Keeping) -> None:
        call = await it.session()
        talk = talking(call, 200)
        behind = []
        for _ in range(15):
            await asyncio.sleep(1.0)
            behind.append(call.root.behind_s)
        assert max(behind) <= 8, "batches grow, the backlog does not"
        await talk
        assert len(call.client.units) >= 199
        await call.close()

    play(script)


def test_a_full_store_is_an_outage_and_no_end() -> None:
    async def script(it: Keeping) -> None:
        call = await it.session(store=True)
        await talking(call, 100)
        assert len(call.client.units) >= 99
        assert call.root.behind_s > 2
        beat = it.deployment.pod._behind_s()
        assert beat == call.root.behind_s
        await call.close()

    play(script, limits={"retention": Retention(ledger_bytes=100_000)})


# ---------------------------------------------------------------- whose session it is


def test_a_root_that_is_superseded_ends_within_a_second_and_deletes_nothing() -> None:
    """It looks at its record with each segment; what it would purge is its successor's."""

    async def script(it: Keeping) -> None:
        call = await it.session()
        talk = talking(call, 60)
        await asyncio.sleep(3.0)
        record = await it.record(call.sid)
        assert record is not None
        history = [*record.root_epochs, (2, 20, "api.other")]
        taken = m.decode(m.encode(record), SessionRecord)
        taken = SessionRecord(sid=call.sid, state=ACTIVE, units=20, root_epochs=history)
        await (await it.looker.bucket(BUCKET)).put(call.sid, m.encode(taken))
        before = await it.keys(LEDGERS)
        await asyncio.sleep(EVERY_S + 0.1)
        assert [error.code for error in call.client.errors] == ["session_failed"]
        talk.cancel()
        await asyncio.sleep(6)
        assert await it.record(call.sid) == taken
        assert set(before) <= set(await it.keys(LEDGERS))
        call.leave()

    play(script)


# ---------------------------------------------------------------- nothing is left behind


async def cycle(it: Keeping, number: int) -> None:
    call = await it.session(store=False)
    if number % 3:
        await call.say(speech(4).tobytes())
    if number % 2:
        await call.close()
    else:
        call.leave()


@pytest.mark.parametrize(
    "cycles", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
def test_nothing_is_left_of_sessions_that_were_opened_and_closed(cycles: int) -> None:
    async def script(it: Keeping) -> None:
        begun = 0
        tasks = len(asyncio.all_tasks())
        objects = 0
        while begun < cycles:
            await asyncio.gather(*(cycle(it, begun + n) for n in range(20)))
            begun += 20
            if begun == 100:
                await asyncio.sleep(5)
                gc.collect()
                objects = len(gc.get_objects())
        await asyncio.sleep(5)
        counts = await it.counts()
        assert counts == {BUCKET: counts[BUCKET], LEDGERS: 0, AUDIO: 0, STORE: 0}
        assert len(asyncio.all_tasks()) == tasks
        await asyncio.sleep(AGE_S + 1)
        assert await it.counts() == {BUCKET: 0, LEDGERS: 0, AUDIO: 0, STORE: 0}
        gc.collect()
        assert len(gc.get_objects()) <= 1.05 * objects

    play(script, limit_s=100_000, limits={"retention": AGES})


def test_recordings_age_out_on_their_own_time() -> None:
    async def script(it: Keeping) -> None:
        call = await it.session(store=True)
        await talking(call, 10)
        await call.close()
        await asyncio.sleep(AGE_S + 1)
        counts = await it.counts()
        assert counts[BUCKET] == 0
        assert counts[STORE] > 0
        assert (await it.read(call.sid)).record.state == CLOSED, "found in the recordings"
        await asyncio.sleep(4 * AGE_S)
        assert await it.counts() == {BUCKET: 0, LEDGERS: 0, AUDIO: 0, STORE: 0}

    play(script, limit_s=1000, limits={"retention": AGES})
