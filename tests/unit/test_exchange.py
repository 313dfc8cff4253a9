"""A process's place on the bus: bundles, acknowledgements, what can't be used, who isn't there."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.delivery import Emission
from duologue.bus.endpoint import Endpoint
from duologue.bus.exchange import SETTLE_S, TICK_S, Exchange
from duologue.bus.memory import DELIVER, DROP, Fate, MemoryBus, MemoryTransport, Passage
from duologue.bus.transport import Message
from duologue.virtual import run_virtual

pytestmark = pytest.mark.unit

ENCODER, LLM, OTHER_LLM, API = "encoder.enc-1", "llm.llm-1", "llm.llm-2", "api.api-1"
SENT_BY, TO = (1, 1), (1, 2)
ROOM = 8


def now() -> float:
    return asyncio.get_running_loop().time()


def count(metric: object, **labels: str) -> float:
    """A metric's value so far; tests compare before and after."""
    return metric.labels(**labels)._value.get()  # type: ignore[attr-defined]


class Bench:
    """An encoder's and an llm's exchange on one bus, and everything that was published."""

    def __init__(self, gather_s: float = 0.0) -> None:
        self.bus = MemoryBus()
        self.published: list[tuple[float, Message]] = []
        self.bus.observe(lambda message: self.published.append((now(), message)))
        self.suspected: list[str] = []
        self.unsendable: list[tuple[str, str]] = []
        self.strays: list[tuple[str, int]] = []
        self.arrived: list[tuple[str, int]] = []
        self.gather_s = gather_s

    async def __aenter__(self) -> "Bench":
        self.transport, self.llm_transport = MemoryTransport(self.bus, "a"), MemoryTransport(self.bus, "b")
        for transport in (self.transport, self.llm_transport):
            await transport.connect()
        self.encoder = Exchange(
            self.transport,
            ENCODER,
            gather_s=self.gather_s,
            suspected=self.suspected.append,
            unsendable=lambda envelope, error: self.unsendable.append((envelope.sid, type(error).__name__)),
            wall=lambda: now(),
        )
        self.llm = Exchange(
            self.llm_transport,
            LLM,
            stray=lambda sender, envelope: self.strays.append((sender, envelope.unit)),
            wall=lambda: now(),
        )
        await self.encoder.start()
        await self.llm.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.encoder.stop()
        await self.llm.stop()

    def sender(self, sid: str = "live_a", to: str = LLM) -> Endpoint:
        it = Endpoint(
            sid,
            "encoder",
            SENT_BY,
            begin=0,
            window=ROOM,
            post=self.encoder,
            clock=now,
            arrived=lambda _: None,
        )
        it.apply(m.Wiring((1, 1), True, {}, {"llm": [m.Outflow(to, TO)]}))
        self.encoder.add(it)
        return it

    def receiver(self, sid: str = "live_a") -> Endpoint:
        it = Endpoint(
            sid,
            "llm",
            TO,
            begin=0,
            window=ROOM,
            post=self.llm,
            clock=now,
            arrived=lambda envelope: self.arrived.append((envelope.sid, envelope.unit)),
        )
        it.apply(m.Wiring((1, 1), True, {"encoder": m.Inflow([(SENT_BY, 0)], 0)}, {}))
        self.llm.add(it)
        return it

    def bundles(self, to: str = LLM) -> list[tuple[float, m.Bundle]]:
        return [
            (at, m.decode(message.data, m.Bundle))
            for at, message in self.published
            if message.subject == subjects.inbox(to)
        ]

    def acks(self, to: str = ENCODER) -> list[tuple[float, m.Acks]]:
        return [
            (at, m.decode(message.data, m.Acks))
            for at, message in self.published
            if message.subject == subjects.acks(to)
        ]


def emission(unit: int, size: int = 0) -> Emission:
    return Emission(unit, m.Features(m.WIRE, {"x": m.Tensor("|u1", (size,), bytes(size))}), {})


def play(script: Callable[[Bench], Awaitable[None]], gather_s: float = 0.0) -> Bench:
    bench = Bench(gather_s)

    async def main() -> None:
        async with bench:
            await script(bench)

    run_virtual(main())
    return bench


# ---------------------------------------------------------------- bundles


def test_units_of_one_moment_travel_in_one_message_to_each_addressee() -> None:
    async def script(bench: Bench) -> None:
        one, two, three = bench.sender(), bench.sender("live_b"), bench.sender("live_c", OTHER_LLM)
        for sid in ("live_a", "live_b"):
            bench.receiver(sid)
        for unit in range(2):
            for it in (one, two, three):
                it.emit("llm", emission(unit))
        await asyncio.sleep(0.01)

    bench = play(script)
    ((_, bundle),) = bench.bundles()
    assert bundle.sender == ENCODER
    assert [(each.sid, each.unit) for each in bundle.units] == [
        ("live_a", 0),
        ("live_b", 0),
        ("live_a", 1),
        ("live_b", 1),
    ]
    ((_, other),) = bench.bundles(OTHER_LLM)
    assert [(each.sid, each.unit) for each in other.units] == [("live_c", 0), ("live_c", 1)]
    assert bench.arrived == [("live_a", 0), ("live_b", 0), ("live_a", 1), ("live_b", 1)]


def test_units_are_stamped_when_they_are_sent_and_told_where_acks_go() -> None:
    async def script(bench: Bench) -> None:
        it = bench.sender()
        bench.sender("live_b")
        await asyncio.sleep(1.0)
        it.emit("llm", emission(0))
        await asyncio.sleep(0.1)

    bench = play(script, gather_s=0.02)
    ((at, bundle),) = bench.bundles()
    assert bundle.units[0].sent == at == pytest.approx(1.02)
    assert {message.reply for _, message in bench.published if message.subject == subjects.inbox(LLM)} == {
        subjects.acks(ENCODER)
    }


def test_a_bundle_is_split_at_half_a_mebibyte() -> None:
    each = 100_000

    async def script(bench: Bench) -> None:
        bench.receiver()
        it = bench.sender()
        for unit in range(ROOM):
            it.emit("llm", emission(unit, each))
        await asyncio.sleep(0.03)

    bench = play(script)
    parts = [[unit.unit for unit in bundle.units] for _, bundle in bench.bundles()]
    assert parts == [[0, 1, 2, 3, 4], [5, 6, 7]]
    assert all(
        len(message.data) <= m.MAX_MESSAGE_BYTES
        for _, message in bench.published
        if message.subject == subjects.inbox(LLM)
    )
    assert [unit for _, unit in bench.arrived] == list(range(ROOM))


def test_a_unit_above_the_bound_is_a_message_by_itself() -> None:
    async def script(bench: Bench) -> None:
        it = bench.sender()
        for unit, size in enumerate((10, m.MAX_MESSAGE_BYTES + 1, 10)):
            it.emit("llm", emission(unit, size))
        await asyncio.sleep(0.03)

    assert [[unit.unit for unit in bundle.units] for _, bundle in play(script).bundles()] == [[0], [1], [2]]


def test_a_unit_that_no_bus_takes_stops_no_other_session() -> None:
    """It raised out of the sending of everybody's units."""
    before = count(telemetry.DROPPED, role="encoder", reason="oversized")

    async def script(bench: Bench) -> None:
        bench.receiver("live_b")
        huge, small = bench.sender("live_a", OTHER_LLM), bench.sender("live_b")
        huge.emit("llm", emission(0, 1 << 20))
        small.emit("llm", emission(0))
        await asyncio.sleep(0.03)

    bench = play(script)
    assert bench.arrived == [("live_b", 0)]
    assert bench.unsendable == [("live_a", "TransportError")]
    assert count(telemetry.DROPPED, role="encoder", reason="oversized") == before + 1


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (object(), "TypeError"),
        (1 << 64, "OverflowError"),
        ("\ud800", "UnicodeEncodeError"),
        ("x" * (1 << 20), "TransportError"),
    ],
)
def test_a_record_that_fits_no_message_hurts_one_session(record: object, error: str) -> None:
    """Units of all sessions that were gathered with it were lost, and it was sent again for ever."""

    async def script(bench: Bench) -> None:
        for sid in ("live_b", "live_c"):
            bench.receiver(sid)
        for sid in ("live_b", "live_a", "live_c"):
            unit = emission(0)._replace(records={"llm": record} if sid == "live_a" else {})
            bench.sender(sid).emit("llm", unit)
        await asyncio.sleep(0.03)

    bench = play(script)
    assert bench.arrived == [("live_b", 0), ("live_c", 0)]
    assert bench.unsendable == [("live_a", error)]


# ---------------------------------------------------------------- gathering


def test_the_first_unit_waits_for_others() -> None:
    async def script(bench: Bench) -> None:
        one, two, _ = bench.sender(), bench.sender("live_b"), bench.sender("live_c")
        one.emit("llm", emission(0))
        await asyncio.sleep(0.015)
        two.emit("llm", emission(0))
        await asyncio.sleep(0.1)

    ((at, bundle),) = play(script, gather_s=0.02).bundles()
    assert at == pytest.approx(0.02)
    assert len(bundle.units) == 2


def test_nobody_waits_once_every_session_has_contributed() -> None:
    async def script(bench: Bench) -> None:
        one, two = bench.sender(), bench.sender("live_b")
        one.emit("llm", emission(0))
        one.emit("llm", emission(1))
        await asyncio.sleep(0.005)
        assert bench.bundles() == []
        two.emit("llm", emission(0))
        await asyncio.sleep(0.001)
        assert len(bench.bundles()) == 1
        one.emit("llm", emission(2))
        await asyncio.sleep(0.001)
        assert len(bench.bundles()) == 1, "the next bundle gathers anew"
        await asyncio.sleep(0.1)

    bench = play(script, gather_s=0.02)
    assert [at for at, _ in bench.bundles()] == pytest.approx([0.005, 0.026])


def test_a_lone_session_waits_for_nobody() -> None:
    async def script(bench: Bench) -> None:
        gone = bench.sender("live_b")
        bench.encoder.remove(gone)
        bench.encoder.remove(gone)
        bench.sender().emit("llm", emission(0))
        await asyncio.sleep(0.1)

    assert [at for at, _ in play(script, gather_s=0.02).bundles()] == [0.0]


def test_what_waits_is_sent_before_the_end() -> None:
    async def script(bench: Bench) -> None:
        bench.sender("live_b")
        bench.sender().emit("llm", emission(0))

    assert [len(bundle.units) for _, bundle in play(script, gather_s=5.0).bundles()] == [1]


# ---------------------------------------------------------------- acknowledgements


def test_acknowledgements_go_out_within_40_ms_and_together() -> None:
    async def script(bench: Bench) -> None:
        for sid in ("live_a", "live_b"):
            bench.receiver(sid)
        one, two = bench.sender(), bench.sender("live_b")
        for unit in range(3):
            for it in (one, two):
                it.emit("llm", emission(unit))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)

    bench = play(script)
    first = bench.bundles()[0][0]
    ((at, acks),) = bench.acks()
    assert first < at <= first + TICK_S + 0.001
    assert acks.sender == LLM
    assert [(ack.sid, ack.next) for ack in acks.acks] == [("live_a", 3), ("live_b", 3)]


def test_a_repair_is_asked_for_and_answered_at_once() -> None:
    async def script(bench: Bench) -> None:
        bench.receiver()
        it = bench.sender()
        bench.bus.fate = lambda passage: DROP if passage.subject == subjects.inbox(LLM) else DELIVER
        it.emit("llm", emission(0))
        await asyncio.sleep(0.045)
        bench.bus.fate = lambda _: DELIVER
        it.emit("llm", emission(1))
        await asyncio.sleep(0.005)
        assert bench.arrived == [("live_a", 0), ("live_a", 1)]

    play(script)


def test_a_lost_bundle_is_sent_again() -> None:
    lost: list[Passage] = []

    def fate(passage: Passage) -> Fate:
        if passage.subject == subjects.inbox(LLM) and len(lost) < 2:
            lost.append(passage)
            return DROP
        return DELIVER

    async def script(bench: Bench) -> None:
        bench.receiver()
        bench.bus.fate = fate
        it = bench.sender()
        for unit in range(3):
            it.emit("llm", emission(unit))
        await asyncio.sleep(1.0)

    bench = play(script)
    assert bench.arrived == [("live_a", 0), ("live_a", 1), ("live_a", 2)]
    assert [[unit.unit for unit in bundle.units] for _, bundle in bench.bundles()] == [
        [0, 1, 2],
        [0],
        [0],
        [1, 2],
    ]


def test_an_endpoint_that_left_is_told_nothing_and_owes_nothing() -> None:
    async def script(bench: Bench) -> None:
        gone = bench.receiver()
        bench.sender().emit("llm", emission(0))
        await asyncio.sleep(0.001)
        assert bench.arrived == [("live_a", 0)]
        bench.llm.remove(gone)
        await asyncio.sleep(0.1)
        assert bench.acks() == []
        await asyncio.sleep(0.1)
        assert bench.strays == [(ENCODER, 0)]

    before = count(telemetry.DROPPED, role="llm", reason="unaddressed")
    play(script)
    assert count(telemetry.DROPPED, role="llm", reason="unaddressed") == before + 1


def test_two_owners_of_a_session_may_live_in_one_process() -> None:
    async def script(bench: Bench) -> None:
        it = bench.receiver()
        bench.llm.remove(it)
        bench.llm.add(it)
        heir = Endpoint(
            "live_a",
            "llm",
            (1, 9),
            begin=0,
            window=ROOM,
            post=bench.llm,
            clock=now,
            arrived=lambda envelope: bench.arrived.append(("heir", envelope.unit)),
        )
        heir.apply(m.Wiring((1, 1), True, {"encoder": m.Inflow([(SENT_BY, 0)], 0)}, {}))
        bench.llm.add(heir)
        sender = bench.sender()
        flows = [m.Outflow(LLM, TO), m.Outflow(LLM, (1, 9))]
        sender.apply(m.Wiring((1, 2), True, {}, {"llm": flows}))
        sender.emit("llm", emission(0))
        await asyncio.sleep(0.05)
        bench.llm.remove(it)
        sender.emit("llm", emission(1))
        await asyncio.sleep(0.05)
        assert [outlet.acked for outlet in sender.outlets["llm"]] == [1, 2]

    assert play(script).arrived == [("live_a", 0), ("heir", 0), ("heir", 1)]


# ---------------------------------------------------------------- what can't be used


@pytest.mark.parametrize(
    ("subject", "data", "reason", "dropped"),
    [
        (subjects.inbox(LLM), b"", "malformed", 1),
        (subjects.inbox(LLM), b"\xc1 not MessagePack", "malformed", 1),
        (subjects.inbox(LLM), m.encode(m.Acks(m.WIRE, ENCODER, [])), "malformed", 0),
        (subjects.inbox(LLM), m.encode(m.Bundle(m.WIRE + 1, ENCODER, [])), "version", 1),
        (subjects.acks(LLM), b"\x93\x01", "malformed", 1),
        (subjects.acks(LLM), m.encode(m.Acks(m.WIRE + 1, ENCODER, [])), "version", 1),
    ],
)
def test_what_can_not_be_used_is_counted_and_dropped(
    subject: str, data: bytes, reason: str, dropped: int
) -> None:
    async def script(bench: Bench) -> None:
        bench.receiver()
        bench.transport.publish(subject, data)
        await asyncio.sleep(0.01)
        bench.sender().emit("llm", emission(0))
        await asyncio.sleep(0.01)

    before = count(telemetry.DROPPED, role="llm", reason=reason)
    assert play(script).arrived == [("live_a", 0)], "the next message is none the worse"
    assert count(telemetry.DROPPED, role="llm", reason=reason) == before + dropped


def test_every_unit_of_another_version_counts() -> None:
    units = [m.Envelope(m.WIRE, "live_a", "encoder", "llm", n, SENT_BY, TO, m.Features()) for n in range(3)]

    async def script(bench: Bench) -> None:
        bench.receiver()
        bundle = m.Bundle(m.WIRE + 1, ENCODER, units)
        bench.transport.publish(subjects.inbox(LLM), m.encode(bundle))
        await asyncio.sleep(0.01)

    before = count(telemetry.DROPPED, role="llm", reason="version")
    assert play(script).arrived == []
    assert count(telemetry.DROPPED, role="llm", reason="version") == before + 3


def test_acknowledgements_of_another_version_mean_nothing() -> None:
    """Only bundles were checked for their version."""

    async def script(bench: Bench) -> None:
        it = bench.sender()
        it.emit("llm", emission(0))
        ack = m.Ack("live_a", "encoder", "llm", TO, 1, 1, 0, ROOM)
        bench.llm_transport.publish(subjects.acks(ENCODER), m.encode(m.Acks(m.WIRE + 1, LLM, [ack])))
        await asyncio.sleep(0.01)
        assert it.outlets["llm"][0].acked == 0
        bench.llm_transport.publish(subjects.acks(ENCODER), m.encode(m.Acks(m.WIRE, LLM, [ack])))
        await asyncio.sleep(0.01)
        assert it.outlets["llm"][0].acked == 1

    play(script)


def test_an_acknowledgement_reaches_the_stage_that_it_names() -> None:
    async def script(bench: Bench) -> None:
        it = bench.sender()
        it.emit("llm", emission(0))
        foreign = m.Ack("live_a", "talker", "llm", TO, 1, 1, 0, ROOM)
        bench.llm_transport.publish(subjects.acks(ENCODER), m.encode(m.Acks(m.WIRE, LLM, [foreign])))
        await asyncio.sleep(0.01)
        assert it.outlets["llm"][0].acked == 0

    play(script)


# ---------------------------------------------------------------- who isn't there


def test_a_503_makes_the_addressee_suspect() -> None:
    async def script(bench: Bench) -> None:
        await asyncio.sleep(SETTLE_S)
        bench.sender("live_b", "llm.gone").emit("llm", emission(0))
        await asyncio.sleep(0.01)
        assert bench.suspected == ["llm.gone"]
        bench.encoder.probe("llm.gone")
        bench.encoder.probe(LLM)
        await asyncio.sleep(0.01)
        assert bench.suspected == ["llm.gone"] * 2

    before = count(telemetry.DROPPED, role="llm", reason="malformed")
    play(script)
    assert count(telemetry.DROPPED, role="llm", reason="malformed") == before, "a probe is a good message"


def test_just_reconnected_a_503_proves_nothing() -> None:
    async def script(bench: Bench) -> None:
        await asyncio.sleep(SETTLE_S)
        bench.transport.blink(0.05)
        await asyncio.sleep(0.05 + SETTLE_S - 0.01)
        bench.encoder.probe("llm.gone")
        await asyncio.sleep(0.005)
        assert bench.suspected == []
        await asyncio.sleep(0.01)
        bench.encoder.probe("llm.gone")
        await asyncio.sleep(0.005)
        assert bench.suspected == ["llm.gone"]

    play(script)


def test_a_role_that_a_sender_makes_up_becomes_no_label() -> None:
    """Labels live as long as the process: whoever may publish could fill its memory with them.  Such a bundle is
    malformed."""

    async def scenario() -> None:
        async with Bench() as bench:
            bench.receiver("live_x")
            for number in range(100):
                unit = m.Envelope(m.WIRE, "live_x", "encoder", "llm", number, SENT_BY, TO, m.Features())
                bundle = m.Bundle(m.WIRE, f"made{number}.up", [unit])
                bench.transport.publish(subjects.inbox(LLM), m.encode(bundle))
            await asyncio.sleep(0.1)

    run_virtual(scenario())
    roles = {sample.labels["role"] for sample in next(iter(telemetry.HOP_SECONDS.collect())).samples}
    assert roles <= {*telemetry.ROLES.values(), "other"}
