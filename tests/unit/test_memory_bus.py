"""The bus in memory: what only it can do.  What it has in common with NATS is in tests/bus/test_nats_transport.py."""

import asyncio
import math
from collections.abc import Callable, Coroutine

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duologue.bus import memory
from duologue.bus.memory import DELIVER, DROP, LATENCY_S, Fate, MemoryBus, MemoryTransport, Passage
from duologue.bus.subjects import matches
from duologue.bus.transport import (
    Entry,
    Message,
    NoResponders,
    RequestTimeout,
    StoreUnavailable,
    TransportError,
    WrongRevision,
)
from duologue.virtual import run_virtual

pytestmark = pytest.mark.unit


async def pair(bus: MemoryBus) -> tuple[MemoryTransport, MemoryTransport]:
    a, b = MemoryTransport(bus, "a"), MemoryTransport(bus, "b")
    await a.connect()
    await b.connect()
    return a, b


def now() -> float:
    return asyncio.get_running_loop().time()


def received(
    play: Callable[[MemoryTransport], Coroutine[object, object, None]],
    fate: Callable[[Passage], Fate] = lambda _: DELIVER,
) -> list[tuple[bytes, float]]:
    """What b hears on `t.>` while `play` runs with a, and a second longer."""

    async def main() -> list[tuple[bytes, float]]:
        heard: list[tuple[bytes, float]] = []
        a, b = await pair(MemoryBus(fate))
        await b.subscribe("t.>", lambda message: heard.append((message.data, now())))
        await play(a)
        await asyncio.sleep(1)
        return heard

    return run_virtual(main())


# ---------------------------------------------------------------- subjects


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.>", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("a.*.c.>", "a.b.c.d.e", True),
        ("a.*.c.>", "a.b.d.d.e", False),
    ],
)
def test_wildcards(pattern: str, subject: str, expected: bool) -> None:
    assert matches(pattern, subject) is expected


@pytest.mark.parametrize("pattern", ["", "a..b", ".a", "a.", "a.>.b", ">.a"])
def test_what_is_no_subject_is_refused(pattern: str) -> None:
    async def main() -> None:
        a, _ = await pair(MemoryBus())
        with pytest.raises(TransportError):
            await a.subscribe(pattern, lambda _: None)

    run_virtual(main())


# ---------------------------------------------------------------- delivery and fates


def test_a_message_takes_the_default_latency() -> None:
    async def play(a: MemoryTransport) -> None:
        await asyncio.sleep(1)
        a.publish("t.x", b"1")

    assert received(play) == [(b"1", pytest.approx(1 + LATENCY_S))]


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.01, 0.02, 0.05]), min_size=1, max_size=12))
def test_order_per_publisher_and_subject_holds_under_any_delays(delays: list[float]) -> None:
    async def play(a: MemoryTransport) -> None:
        for n in range(len(delays)):
            a.publish("t.x", b"%d" % n)
            await asyncio.sleep(0.005)

    heard = received(play, lambda passage: Fate((delays[passage.ordinal],)))
    assert [data for data, _ in heard] == [b"%d" % n for n in range(len(delays))]
    for n, (_, at) in enumerate(heard):
        assert at >= n * 0.005 + delays[n] - 1e-9


def test_subjects_do_not_hold_each_other_back() -> None:
    async def play(a: MemoryTransport) -> None:
        a.publish("t.slow", b"slow")
        a.publish("t.quick", b"quick")

    heard = received(play, lambda passage: Fate((0.1 if passage.subject == "t.slow" else 0.001,)))
    assert [data for data, _ in heard] == [b"quick", b"slow"]


def test_a_late_message_is_overtaken() -> None:
    async def play(a: MemoryTransport) -> None:
        for n in range(3):
            a.publish("t.x", b"%d" % n)

    heard = received(play, lambda p: Fate((0.5,), late=True) if p.ordinal == 0 else DELIVER)
    assert [data for data, _ in heard] == [b"1", b"2", b"0"]


def test_a_dropped_message_is_lost_and_counted_and_brings_no_notice() -> None:
    async def main() -> tuple[list[bytes], list[Message], int]:
        bus = MemoryBus(lambda p: DROP if p.ordinal == 1 else DELIVER)
        a, b = await pair(bus)
        heard: list[bytes] = []
        notices: list[Message] = []
        await b.subscribe("t", lambda message: heard.append(message.data))
        await a.subscribe("acks", notices.append)
        for n in range(3):
            a.publish("t", b"%d" % n, reply="acks")
        await asyncio.sleep(1)
        return heard, notices, bus.lost

    assert run_virtual(main()) == ([b"0", b"2"], [], 1)


def test_a_message_can_arrive_several_times() -> None:
    async def play(a: MemoryTransport) -> None:
        a.publish("t.x", b"twice")

    heard = received(play, lambda _: Fate((0.1, 0.3)))
    assert heard == [(b"twice", pytest.approx(0.1)), (b"twice", pytest.approx(0.3))]


def test_fate_is_asked_once_for_every_receiver() -> None:
    asked: list[Passage] = []

    def fate(passage: Passage) -> Fate:
        asked.append(passage)
        return DROP if passage.receiver == "b" else DELIVER

    async def main() -> list[str]:
        heard: list[str] = []
        bus = MemoryBus(fate)
        a, b = await pair(bus)
        c = MemoryTransport(bus, "c")
        await c.connect()
        await b.subscribe("t", lambda _: heard.append("b"))
        await c.subscribe("t", lambda _: heard.append("c"))
        a.publish("t", b"x")
        await asyncio.sleep(1)
        return heard

    assert run_virtual(main()) == ["c"]
    assert asked == [Passage("a", "b", "t", 0, b"x"), Passage("a", "c", "t", 1, b"x")]


def test_answers_and_notices_have_fates_too() -> None:
    passages: list[tuple[str, str]] = []

    def fate(passage: Passage) -> Fate:
        passages.append((passage.sender, passage.receiver))
        return DROP

    async def main() -> None:
        a, _ = await pair(MemoryBus(fate))
        with pytest.raises(RequestTimeout):
            await a.request("nobody.here", b"", 1.0)

    run_virtual(main())
    assert passages == [("", "a")]


def test_messages_of_one_instant_keep_their_order() -> None:
    """Timers of asyncio are in a heap and so lose the order of equal times; the bus must not."""

    async def play(a: MemoryTransport) -> None:
        for n in range(200):
            a.publish(f"t.{n}", b"%d" % n)

    assert [data for data, _ in received(play)] == [b"%d" % n for n in range(200)]


def test_what_is_under_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "UNDER_WAY", 3)

    async def main() -> tuple[int, int]:
        a, b = await pair(MemoryBus())
        await b.subscribe("t", lambda _: None)
        for _ in range(5):
            a.publish("t", b"")
        await asyncio.sleep(1)
        return a.stats.dropped, b.stats.delivered

    assert run_virtual(main()) == (2, 3)


def test_a_failing_handler_fails_the_run_and_no_other_handler() -> None:
    heard: list[bytes] = []

    async def main() -> None:
        a, b = await pair(MemoryBus())
        await b.subscribe("t", lambda _: [][0])
        await b.subscribe("t", lambda message: heard.append(message.data))
        a.publish("t", b"x")
        await asyncio.sleep(1)

    with pytest.raises(IndexError):
        run_virtual(main())
    assert heard == [b"x"]


def test_an_observer_sees_every_published_message_once() -> None:
    async def main() -> list[tuple[str, bytes]]:
        bus = MemoryBus(lambda _: DROP)
        seen: list[tuple[str, bytes]] = []
        end = bus.observe(lambda message: seen.append((message.subject, message.data)))
        a, b = await pair(bus)
        await a.subscribe("t", lambda _: None)
        await b.subscribe("t", lambda _: None)
        a.publish("t", b"1")
        b.publish("nobody", b"2")
        end()
        a.publish("t", b"3")
        return seen

    assert run_virtual(main()) == [("t", b"1"), ("nobody", b"2")]


# ---------------------------------------------------------------- lost connections


def test_a_blink_loses_what_is_under_way_both_ways() -> None:
    async def main() -> tuple[list[bytes], list[bytes], int]:
        bus = MemoryBus(lambda _: Fate((0.1,)))
        a, b = await pair(bus)
        at_a: list[bytes] = []
        at_b: list[bytes] = []
        await a.subscribe("to.a", lambda message: at_a.append(message.data))
        await b.subscribe("to.b", lambda message: at_b.append(message.data))
        a.publish("to.b", b"lost")
        b.publish("to.a", b"lost")
        await asyncio.sleep(0.05)
        a.blink(0.01)
        await asyncio.sleep(0.02)
        a.publish("to.b", b"later")
        b.publish("to.a", b"later")
        await asyncio.sleep(1)
        return at_a, at_b, bus.lost

    assert run_virtual(main()) == ([b"later"], [b"later"], 2)


def test_while_disconnected() -> None:
    async def main() -> None:
        a, b = await pair(MemoryBus())
        heard: list[bytes] = []
        notices: list[Message] = []
        await a.subscribe("to.a", lambda message: heard.append(message.data))
        await b.subscribe("acks.b", notices.append)
        bucket = await a.bucket("things")
        await asyncio.sleep(5)
        assert a.settled_s == pytest.approx(5, abs=0.01)
        a.blink(2.0)
        assert not a.connected
        assert a.settled_s == 0.0
        a.publish("anything", b"")
        assert (a.stats.dropped, a.stats.published) == (1, 0)
        with pytest.raises(RequestTimeout):
            await a.request("anything", b"", 60.0)
        with pytest.raises(StoreUnavailable):
            await bucket.get("key")
        b.publish("to.a", b"to nobody", reply="acks.b")
        await asyncio.sleep(1)
        assert notices == [Message("to.a", b"", no_responders=True)]
        await asyncio.sleep(1.5)
        assert a.connected
        assert a.settled_s == pytest.approx(0.5, abs=0.01)
        assert a.stats.reconnects == 1
        b.publish("to.a", b"again", reply="acks.b")
        await asyncio.sleep(1)
        assert heard == [b"again"]
        assert len(notices) == 1

    run_virtual(main())


def test_a_blink_ends_requests_at_once() -> None:
    async def main() -> float:
        a, b = await pair(MemoryBus())
        await b.subscribe("silent", lambda _: None)
        asyncio.get_running_loop().call_later(1.0, a.blink, 0.1)
        with pytest.raises(RequestTimeout):
            await a.request("silent", b"", 60.0)
        return now()

    assert run_virtual(main()) == pytest.approx(1.0)


def test_a_transport_that_was_cut_for_good_stays_away() -> None:
    async def main() -> None:
        a, b = await pair(MemoryBus())
        a.blink(1.0)
        a.blink(math.inf)
        await asyncio.sleep(3600)
        assert not a.connected
        await b.subscribe("t", lambda _: None)
        with pytest.raises(NoResponders):
            await b.request("only.a", b"", 1.0)

    run_virtual(main(), limit_s=4000)


def test_a_closed_transport_does_not_come_back() -> None:
    async def main() -> None:
        a, _ = await pair(MemoryBus())
        a.blink(1.0)
        await a.close()
        await asyncio.sleep(5)
        assert not a.connected

    run_virtual(main())


# ---------------------------------------------------------------- the store


def test_a_write_whose_answer_is_lost_was_done() -> None:
    async def main() -> Entry | None:
        a, b = await pair(MemoryBus())
        mine, theirs = await a.bucket("things"), await b.bucket("things")
        asyncio.get_running_loop().call_later(1.5 * LATENCY_S, a.blink, 0.1)
        with pytest.raises(StoreUnavailable):
            await mine.put("key", b"value")
        return await theirs.get("key")

    found = run_virtual(main())
    assert found is not None
    assert found.value == b"value"


def test_a_write_that_did_not_get_there_was_not_done() -> None:
    async def main() -> Entry | None:
        a, b = await pair(MemoryBus())
        mine, theirs = await a.bucket("things"), await b.bucket("things")
        asyncio.get_running_loop().call_later(0.5 * LATENCY_S, a.blink, 0.1)
        with pytest.raises(StoreUnavailable):
            await mine.put("key", b"value")
        return await theirs.get("key")

    assert run_virtual(main()) is None


def test_writes_of_one_instant_keep_their_order() -> None:
    async def main() -> list[int]:
        a, _ = await pair(MemoryBus())
        bucket = await a.bucket("things")
        return await asyncio.gather(*(bucket.put("key", b"%d" % n) for n in range(50)))

    revisions = run_virtual(main())
    assert revisions == sorted(revisions)


def test_a_store_that_is_down_and_one_that_was_wiped() -> None:
    async def main() -> None:
        bus = MemoryBus()
        a, b = await pair(bus)
        bucket = await a.bucket("things")
        revision = await bucket.put("key", b"value")
        bus.store.up = False
        with pytest.raises(StoreUnavailable):
            await bucket.get("key")
        with pytest.raises(StoreUnavailable):
            await b.bucket("others")
        bus.store.up = True
        assert await bucket.get("key") == Entry(b"value", revision)
        bus.store.wipe()
        with pytest.raises(StoreUnavailable):
            await bucket.get("key")
        bucket = await a.bucket("things")
        with pytest.raises(WrongRevision):
            await bucket.update("key", b"newer", revision)
        await bucket.update("key", b"anew", 0)

    run_virtual(main())


def test_what_nobody_writes_for_long_is_dropped() -> None:
    async def main() -> list[list[str]]:
        a, _ = await pair(MemoryBus())
        bucket = await a.bucket("things", max_age_s=100)
        seen = []
        await bucket.put("left", b"")
        await bucket.put("touched", b"")
        await asyncio.sleep(60)
        await bucket.put("touched", b"")
        seen.append(await bucket.keys())
        await asyncio.sleep(60)
        seen.append(await bucket.keys())
        return seen

    assert run_virtual(main()) == [["left", "touched"], ["touched"]]
