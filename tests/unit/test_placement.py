"""Who is there, and where a session goes."""

import random
from collections import Counter

import pytest

from duologue.bus import messages as m
from duologue_api.placement import (
    FORGET_S,
    HEARD_S,
    LATE_S,
    MISSING_S,
    PROBE_S,
    SETTLE_S,
    Life,
    Roster,
)
from edge import Clock

pytestmark = pytest.mark.unit

TICK_S = 0.04


class Bench:
    """A roster of a pod that ticks, and beats as workers send them."""

    def __init__(self, unit_s: float = 0.08) -> None:
        self.clock = Clock()
        self.settled_s = 100.0
        self.roster = Roster(
            {"parrot": unit_s},
            clock=self.clock,
            settled_s=lambda: self.settled_s,
            rng=random.Random(5),
        )

    def beat(self, address: str, free: int = 5, *, model: str = "parrot", **fields: object) -> None:
        values = {"v": m.WIRE, "ledger": m.LEDGER, "state": m.READY, **fields}
        self.roster.on_heartbeat(m.Heartbeat(address=address, models={model: m.Places(free, 0)}, **values))

    def pass_s(self, seconds: float) -> None:
        """Time in which the loop ticks."""
        end = self.clock.now + seconds
        while self.clock.now < end - 1e-9:
            self.clock.now = min(end, self.clock.now + TICK_S)
            self.roster.tick()

    def judge(self, address: str = "llm.a") -> Life:
        return self.roster.judge(address)

    def picks(self, count: int, stage: str = "llm") -> Counter[str | None]:
        return Counter(self.roster.pick(stage, "parrot") for _ in range(count))


# ---------------------------------------------------------------- picking


def test_sessions_spread_over_workers() -> None:
    """Each pick takes a place, so that a burst between two heartbeats does not fall on one worker."""
    bench = Bench()
    for n in range(5):
        bench.beat(f"llm.{n}", free=20)
    counts = bench.picks(50)
    assert set(counts) == {f"llm.{n}" for n in range(5)}
    assert max(counts.values()) - min(counts.values()) <= 4


def test_of_two_the_freer_is_picked() -> None:
    bench = Bench()
    bench.beat("llm.busy", free=1)
    bench.beat("llm.free", free=9)
    assert bench.picks(5) == {"llm.free": 5}


def test_of_many_only_two_are_compared() -> None:
    """The freest of all would draw every pod's sessions at once."""
    bench = Bench()
    bench.beat("llm.freest", free=1000)
    for n in range(6):
        bench.beat(f"llm.{n}", free=500)
    assert 5 <= bench.picks(100)["llm.freest"] <= 60


def test_places_that_were_picked_since_the_heartbeat_are_taken() -> None:
    bench = Bench()
    bench.beat("llm.a", free=2)
    bench.beat("llm.b", free=1)
    assert bench.picks(4) == {"llm.a": 2, "llm.b": 1, None: 1}
    assert not bench.roster.has_room("llm", "parrot")
    bench.roster.freed("llm.b")
    bench.roster.freed("llm.unknown")
    bench.roster.refused("llm.unknown", 0.0)
    assert bench.roster.has_room("llm", "parrot")
    assert not bench.roster.has_room("llm", "parrot", {"llm.b"})
    assert bench.picks(2) == {"llm.b": 1, None: 1}
    bench.beat("llm.a", free=1)
    assert bench.picks(2) == {"llm.a": 1, None: 1}


@pytest.mark.parametrize(
    ("address", "fields"),
    [
        ("talker.a", {}),
        ("llm.a", {"model": "moshi"}),
        ("llm.a", {"state": m.DRAINING}),
        ("llm.a", {"state": m.STARTING}),
        ("llm.a", {"v": m.WIRE + 1}),
        ("llm.a", {"ledger": m.LEDGER + 1}),
        ("llm.a", {"step_age": 1.5}),
        ("llm.a", {"free": 0}),
    ],
)
def test_who_can_not_take_a_session_is_not_picked(address: str, fields: dict[str, object]) -> None:
    bench = Bench()
    bench.beat(address, **fields)  # type: ignore[arg-type]
    assert bench.picks(1) == {None: 1}
    bench.beat("llm.b")
    assert bench.picks(5) == {"llm.b": 5}


def test_suspects_refusers_and_the_silent_are_not_picked() -> None:
    bench = Bench()
    for name in ("suspect", "refuser", "silent", "good"):
        bench.beat(f"llm.{name}", free=50)
    bench.pass_s(MISSING_S + 0.01)
    for name in ("suspect", "refuser", "good"):
        bench.beat(f"llm.{name}", free=50)
    bench.roster.on_suspect("llm.suspect")
    picked = Counter(bench.roster.pick("llm", "parrot", {"llm.refuser"}) for _ in range(9))
    assert picked == {"llm.good": 9}
    bench.beat("llm.suspect", free=99)
    assert bench.roster.pick("llm", "parrot", {"llm.refuser"}) == "llm.suspect", "it has reconnected"


def test_what_a_deployment_lacks() -> None:
    bench = Bench()
    assert bench.roster.lacking("parrot") == ["encoder", "llm", "talker", "codec"]
    bench.beat("llm.a", free=0)
    bench.beat("codec.a")
    assert bench.roster.lacking("parrot") == ["encoder", "talker"], "a full worker is there"
    bench.pass_s(MISSING_S + 0.01)
    assert bench.roster.lacking("parrot") == ["encoder", "llm", "talker", "codec"]
    assert bench.roster.lacking("moshi") == ["encoder", "llm", "talker", "codec"]


# ---------------------------------------------------------------- judging


def test_three_missing_heartbeats_are_silence() -> None:
    bench = Bench()
    bench.beat("llm.a")
    bench.pass_s(MISSING_S - 0.01)
    assert bench.judge() is Life.ALIVE
    bench.pass_s(0.02)
    assert bench.judge() is Life.SILENT
    bench.beat("llm.a")
    assert bench.judge() is Life.ALIVE
    assert bench.judge("llm.never-seen") is Life.SILENT


@pytest.mark.parametrize(("unit_s", "bound_s"), [(0.08, 1.0), (1.0, 3.0)])
def test_a_step_that_is_too_old_is_a_hung_worker(unit_s: float, bound_s: float) -> None:
    bench = Bench(unit_s)
    bench.beat("llm.a", step_age=bound_s)
    assert bench.judge() is Life.ALIVE
    bench.beat("llm.a", step_age=bound_s + 0.04)
    assert bench.judge() is Life.SILENT


def test_a_second_503_after_the_probe_is_the_proof() -> None:
    bench = Bench()
    bench.beat("llm.a")
    bench.pass_s(HEARD_S + 0.02)
    assert bench.roster.on_suspect("llm.a") is True, "probe it"
    assert bench.roster.on_suspect("llm.a") is False, "once"
    bench.pass_s(PROBE_S / 2)
    assert bench.roster.on_suspect("llm.a") is False
    assert bench.judge() is Life.ALIVE
    bench.pass_s(PROBE_S / 2 + 0.001)
    assert bench.roster.on_suspect("llm.a") is False
    assert bench.judge() is Life.GONE
    assert bench.roster.on_suspect("llm.a") is False
    assert bench.judge() is Life.GONE


def test_a_fresh_heartbeat_outweighs_503s() -> None:
    bench = Bench()
    bench.beat("llm.a")
    bench.roster.on_suspect("llm.a")
    bench.pass_s(PROBE_S + 0.01)
    bench.roster.on_suspect("llm.a")
    assert bench.judge() is Life.ALIVE, "it may just have reconnected"
    bench.pass_s(HEARD_S - PROBE_S)
    assert bench.judge() is Life.GONE
    bench.beat("llm.a")
    assert bench.judge() is Life.ALIVE
    assert bench.roster.on_suspect("llm.a") is True, "suspected anew"


def test_one_503_alone_proves_nothing_however_old() -> None:
    bench = Bench()
    bench.beat("llm.a")
    bench.roster.on_suspect("llm.a")
    bench.pass_s(MISSING_S - 0.01)
    assert bench.judge() is Life.ALIVE


def test_who_was_never_heard_of_can_be_gone() -> None:
    bench = Bench()
    bench.roster.on_suspect("llm.x")
    bench.pass_s(PROBE_S + 0.001)
    bench.roster.on_suspect("llm.x")
    assert bench.judge("llm.x") is Life.GONE


@pytest.mark.parametrize("settled_s", [0.0, SETTLE_S - 0.01])
def test_just_reconnected_nobody_is_judged(settled_s: float) -> None:
    bench = Bench()
    bench.beat("llm.a")
    bench.pass_s(10.0)
    bench.roster.on_suspect("llm.a")
    bench.pass_s(PROBE_S + 0.001)
    bench.roster.on_suspect("llm.a")
    assert bench.judge() is Life.GONE
    bench.settled_s = settled_s
    assert bench.judge() is Life.ALIVE
    bench.settled_s = SETTLE_S
    assert bench.judge() is Life.GONE


def test_after_its_own_lateness_a_pod_judges_nobody_for_a_second() -> None:
    bench = Bench()
    bench.beat("llm.a")
    bench.pass_s(0.2)
    bench.clock.now += 5.0
    assert bench.judge() is Life.ALIVE, (
        "late right now: it was judged before the tick that would have noticed"
    )
    bench.roster.tick()
    assert bench.judge() is Life.ALIVE
    bench.pass_s(SETTLE_S - 0.02)
    assert bench.judge() is Life.ALIVE
    bench.pass_s(0.04)
    assert bench.judge() is Life.SILENT


def test_a_loop_that_is_a_little_late_judges() -> None:
    bench = Bench()
    bench.beat("llm.a")
    for _ in range(20):
        bench.clock.now += LATE_S - 0.01
        bench.roster.tick()
    assert bench.judge() is Life.SILENT


def test_a_new_pod_judges_at_once() -> None:
    assert Bench().judge("llm.unknown") is Life.SILENT


def test_the_long_gone_are_forgotten() -> None:
    bench = Bench()
    bench.beat("llm.a")
    bench.roster.on_suspect("llm.b")
    bench.pass_s(PROBE_S + 0.001)
    bench.roster.on_suspect("llm.b")
    bench.pass_s(FORGET_S - 1)
    assert bench.judge("llm.b") is Life.GONE
    bench.pass_s(2)
    assert bench.judge("llm.b") is Life.SILENT
    bench.pass_s(1)
    assert bench.roster._seen == bench.roster._suspected == bench.roster._gone == {}
