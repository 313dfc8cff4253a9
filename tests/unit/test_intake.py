"""A session's input: framed, numbered, bounded."""

import asyncio
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duologue.audio.framing import OddBytes
from duologue.bus.endpoint import Endpoint
from duologue.bus.messages import SHED, Ack, Audio, Outflow, Wiring
from duologue.models import manifest
from duologue.virtual import run_virtual
from duologue_api.intake import SHED_RECORD, Intake
from edge import Clock, Post

pytestmark = pytest.mark.unit

UNIT = 3840
"""Bytes of a unit."""
BACKLOG = 10
WINDOW = 4
TO = (1, 1)


class Bench:
    """An intake of `BACKLOG` units before an encoder that takes `WINDOW` units at a time, once it is `wired`."""

    def __init__(self, *, wired: bool = True) -> None:
        self.clock, self.post = Clock(), Post()
        self.episodes: list[bool] = []
        self.end = Endpoint(
            "live_x",
            "root",
            (1, 0),
            begin=0,
            window=WINDOW,
            post=self.post,
            clock=self.clock,
            arrived=lambda _: None,
        )
        self.end.apply(Wiring((0, 1), False, {}, {"encoder": []}))
        if wired:
            self.wire()
        self.intake = Intake(
            manifest("parrot"),
            self.end,
            clock=self.clock,
            backlog_s=BACKLOG * 0.08,
            shedding=self.episodes.append,
        )
        self.appended = 0
        self.acked = 0

    def wire(self) -> None:
        self.end.apply(Wiring((1, 1), True, {}, {"encoder": [Outflow("encoder.x", TO)]}))

    def append(self, units: int) -> None:
        """Units that all differ, and none is silent."""
        for _ in range(units):
            self.appended += 1
            assert self.intake.append(sound(self.appended - 1)) == 1

    def ack(self, units: int) -> None:
        """The encoder took and used so many more units."""
        self.acked += units
        self.end.on_ack(Ack("live_x", "root", "encoder", TO, self.acked, self.acked, self.acked, WINDOW))

    def sent(self) -> list[tuple[int, Audio]]:
        return [(envelope.unit, envelope.body) for _, envelope in self.post.units]  # type: ignore[misc]


def sound(number: int) -> bytes:
    return np.full(1920, 1 + number % 30_000, "<i2").tobytes()


def body(number: int) -> Audio:
    return Audio.of({"pcm": np.frombuffer(sound(number), "<i2")})


# ---------------------------------------------------------------- framing


def test_samples_become_units_however_they_come() -> None:
    bench, data = Bench(), b"".join(sound(n) for n in range(3))
    sizes = [2, 3838, 100, 5000, 2, 2578]
    assert sum(sizes) == 3 * UNIT
    completed, at = [], 0
    for size in sizes:
        completed.append(bench.intake.append(data[at : at + size]))
        at += size
        assert bench.intake.samples == at // 2
    assert completed == [0, 1, 0, 1, 0, 1]
    assert bench.sent() == [(n, body(n)) for n in range(3)]
    assert bench.intake.units == bench.intake.pending == 3


def test_half_a_sample_is_refused_whole() -> None:
    bench = Bench()
    with pytest.raises(OddBytes):
        bench.intake.append(bytes(3))


def test_exact_zeros_travel_as_a_marker() -> None:
    bench = Bench()
    almost = bytearray(UNIT)
    almost[-2] = 1
    bench.intake.append(bytes(UNIT) + bytes(almost))
    (_, silence), (_, quiet) = bench.sent()
    assert silence.marker
    assert quiet.tensors["pcm"].data == bytes(almost)


def test_the_last_unit_is_filled_with_zeros() -> None:
    bench = Bench()
    assert bench.intake.flush() == 0
    bench.intake.append(sound(0) + sound(1)[:100])
    assert bench.intake.flush() == 1
    assert bench.intake.flush() == 0
    assert bench.sent()[1][1].tensors["pcm"].data == sound(1)[:100] + bytes(UNIT - 100)
    assert (bench.intake.units, bench.intake.samples) == (2, 1970)


def test_an_answer_tells_how_long_it_took() -> None:
    bench = Bench()
    bench.append(2)
    bench.clock.now += 0.3
    assert bench.intake.answered(0) == pytest.approx(0.3)
    assert bench.intake.pending == 1
    assert bench.intake.answered(0) is None


# ---------------------------------------------------------------- shedding


def test_beyond_the_backlog_the_oldest_sound_becomes_silence() -> None:
    bench = Bench(wired=False)
    bench.append(BACKLOG)
    assert (bench.intake.shed, bench.episodes) == (0, [])
    bench.append(3)
    assert (bench.intake.shed, bench.episodes) == (3, [True])
    bench.wire()
    for _ in range(BACKLOG + 3):
        bench.ack(1)
    sent = bench.sent()
    assert [unit for unit, _ in sent] == list(range(BACKLOG + 3)), "numbers are kept"
    assert all(audio.marker for _, audio in sent[:3])
    assert sent[3:] == [(n, body(n)) for n in range(3, BACKLOG + 3)]
    envelopes = [envelope for _, envelope in bench.post.units]
    assert [envelope.flags for envelope in envelopes] == [SHED] * 3 + [0] * BACKLOG
    assert [envelope.records for envelope in envelopes] == [SHED_RECORD] * 3 + [{}] * BACKLOG


def test_what_an_encoder_may_have_is_never_shed() -> None:
    bench = Bench()
    bench.append(WINDOW + BACKLOG + 2)
    assert bench.intake.shed == 2
    assert bench.sent() == [(n, body(n)) for n in range(WINDOW)]
    for _ in range(BACKLOG + 2):
        bench.ack(1)
    assert [unit for unit, audio in bench.sent() if audio.marker] == [WINDOW, WINDOW + 1]


def test_a_probe_is_never_shed() -> None:
    """The unit that probes for lost credit was not known as sent.  The encoder had heard it, the ledger said silence."""
    bench = Bench()
    bench.append(WINDOW + 1)
    bench.end.on_ack(Ack("live_x", "root", "encoder", TO, WINDOW, 0, 0, 0))
    bench.clock.now += 1.0
    bench.end.check()
    assert bench.sent()[-1] == (WINDOW, body(WINDOW))
    bench.append(BACKLOG + 1)
    assert bench.intake.shed == 1
    bench.end.on_ack(Ack("live_x", "root", "encoder", TO, WINDOW + 1, WINDOW + 1, WINDOW + 1, 0))
    bench.append(5)
    assert bench.intake.shed == 6
    bench.acked = WINDOW + 1
    bench.ack(0)
    assert bench.sent()[WINDOW + 1][1].marker


def test_an_episode_is_over_when_half_of_the_backlog_has_gone() -> None:
    bench = Bench()
    bench.append(WINDOW + BACKLOG + 1)
    answered = 0
    while bench.episodes == [True]:
        bench.ack(1)
        bench.intake.answered(answered)
        answered += 1
    assert bench.episodes == [True, False]
    assert answered == BACKLOG - BACKLOG // 2 + 1, "the shed unit counts as none"
    bench.append(BACKLOG - BACKLOG // 2)
    assert bench.episodes == [True, False]
    bench.append(1)
    assert bench.episodes == [True, False, True]


def test_a_backlog_is_at_least_two_units() -> None:
    bench = Bench(wired=False)
    tiny = Intake(manifest("parrot"), bench.end, clock=bench.clock, backlog_s=0.0, shedding=lambda _: None)
    tiny.append(sound(0) + sound(1))
    assert tiny.shed == 0
    tiny.append(sound(2))
    assert tiny.shed == 1


@given(seed=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_every_unit_is_one_thing_for_everybody(seed: int) -> None:
    """Whatever is acknowledged when: units have numbers without holes, and a unit that was ever sent with sound or as
    silence is never sent as anything else; no more than the backlog waits; shed units are counted."""
    rng = random.Random(seed)
    bench = Bench(wired=rng.random() < 0.5)
    answered = 0
    for _ in range(60):
        match rng.randrange(5):
            case 0 | 1:
                bench.append(rng.randrange(5))
            case 2 if bench.acked < len({unit for unit, _ in bench.sent()}):
                bench.ack(1)
            case 3 if answered < bench.acked:
                bench.intake.answered(answered)
                answered += 1
            case 4:
                bench.clock.now += rng.choice([0.01, 0.2, 1.0])
                bench.end.check()
                if bench.end.version == (0, 1):
                    bench.wire()
        sound_waiting = bench.appended - len({unit for unit, _ in bench.sent()}) - bench.intake.shed
        assert sound_waiting <= BACKLOG
    bench.wire()
    for _ in range(bench.appended):
        if bench.acked < len({unit for unit, _ in bench.sent()}):
            bench.ack(1)
    units: dict[int, Audio] = {}
    for unit, audio in bench.sent():
        assert units.setdefault(unit, audio) == audio
    assert list(units) == list(range(bench.appended))
    shed = [unit for unit, audio in units.items() if audio.marker]
    assert len(shed) == bench.intake.shed
    assert all(audio == body(unit) for unit, audio in units.items() if unit not in shed)


# ---------------------------------------------------------------- room


def test_a_client_that_is_far_ahead_is_read_no_further() -> None:
    async def main() -> None:
        bench = Bench(wired=False)
        bench.append(4 * BACKLOG - 1)
        await asyncio.wait_for(bench.intake.room(), 1.0)
        bench.append(1)
        reading = asyncio.create_task(bench.intake.room())
        await asyncio.sleep(100)
        assert not reading.done()
        bench.intake.answered(0)
        await asyncio.wait_for(reading, 0.001)
        bench.append(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(bench.intake.room(), 1.0)

    run_virtual(main())


def test_a_large_append_is_waited_out() -> None:
    async def main() -> None:
        bench = Bench(wired=False)
        bench.append(4 * BACKLOG + 2)
        reading = asyncio.create_task(bench.intake.room())
        for unit in range(2):
            bench.intake.answered(unit)
            await asyncio.sleep(1)
            assert not reading.done()
        bench.intake.answered(2)
        await asyncio.wait_for(reading, 0.001)

    run_virtual(main())


def test_a_session_that_is_over_holds_nobody() -> None:
    async def main() -> None:
        bench = Bench(wired=False)
        bench.append(4 * BACKLOG)
        reading = asyncio.create_task(bench.intake.room())
        await asyncio.sleep(1)
        assert not reading.done()
        bench.intake.release()
        await asyncio.wait_for(reading, 0.001)

    run_virtual(main())
