"""The rules by which a pod lets a session start: reserve, deadline, and which message tells of which."""

import random
from collections.abc import Collection
from typing import Any

import pytest

from duologue.bus import messages as m
from duologue.models import STAGES
from duologue.stage.headroom import WINDOW_UNITS
from duologue_api.admission import Admission
from duologue_api.placement import Roster
from edge import Clock

pytestmark = pytest.mark.unit

UNIT_S, GATHER_S = 0.08, 0.02
OTHERS = [stage for stage in STAGES if stage != "llm"]


class Bench:
    """A roster with a beat of one worker a stage, `<stage>.a`, which further beats add to."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.roster = Roster(
            {"parrot": UNIT_S, "budgie": UNIT_S},
            clock=self.clock,
            settled_s=lambda: 100.0,
            rng=random.Random(5),
        )
        self.admission = Admission(
            self.roster,
            {"parrot": UNIT_S, "budgie": UNIT_S},
            clock=self.clock,
            gather_s=GATHER_S,
            **options,
        )
        for stage in STAGES:
            self.beat(f"{stage}.a")

    def beat(
        self, address: str, free: int = 9, sessions: int = 1, model: str = "parrot", **times: Any
    ) -> None:
        places = m.Places(free, sessions, **times)
        self.roster.on_heartbeat(m.Heartbeat(m.WIRE, m.LEDGER, address, m.READY, {model: places}))

    def starts(self, model: str = "parrot") -> dict[str, str] | str:
        """The workers of a session that starts, or the stage at which it can't."""
        chosen: dict[str, str] = {}
        for stage in STAGES:
            found = self.admission.pick(stage, model, chosen)
            if found is None:
                assert not self.admission.has_room(stage, model, chosen)
                return stage
            chosen[stage] = found
        return chosen

    def count(self, model: str = "parrot") -> int:
        """Sessions that start before one can't."""
        started = 0
        while not isinstance(self.starts(model), str):
            started += 1
        return started

    def why(
        self, stage: str = "llm", without: Collection[str] = (), absent: Collection[str] = ()
    ) -> tuple[str, str]:
        code, message = self.admission.why_none(stage, "parrot", without, absent)
        return code, message.removesuffix(" Try again later.")


# ---------------------------------------------------------------- reserve


@pytest.mark.parametrize(
    ("reserve", "workers", "sessions"),
    [
        ("auto", [(9, 1)], 9),
        ("auto", [(9, 1), (4, 2)], 3),
        ("auto", [(5, 5), (5, 5), (5, 5)], 5),
        ("auto", [(5, 5), (0, 10)], 0),
        (0, [(9, 1), (4, 2)], 13),
        (4, [(9, 1)], 5),
        (4, [(3, 1), (3, 1)], 2),
        (100, [(9, 1)], 0),
    ],
)
def test_the_reserve_goes_to_no_new_session(
    reserve: Any, workers: list[tuple[int, int]], sessions: int
) -> None:
    """As (free places, sessions) of the llm's workers; the other stages have many places."""
    bench = Bench(reserve=reserve)
    for stage in OTHERS:
        bench.beat(f"{stage}.a", free=1000)
    for number, (free, has) in enumerate(workers):
        bench.beat(f"llm.{'abc'[number]}", free, has)
    assert bench.count() == sessions
    assert bench.why() == (
        "session_limit_reached",
        "The llm workers of parrot are full but for their reserve."
        if bench.roster.has_room("llm", "parrot")
        else "Every llm worker of parrot is full.",
    )


def test_the_reserve_is_that_of_each_stage_and_model() -> None:
    bench = Bench(reserve=2)
    for stage in STAGES:
        bench.beat(f"{stage}.b", free=5, model="budgie")
    bench.beat("talker.a", free=2)
    assert bench.starts() == "talker"
    assert bench.count("budgie") == 3


def test_a_worker_that_is_passed_over_keeps_its_share_in_reserve() -> None:
    """It said that it is full, though it seemed not to be; the other one's places are reserved all the same."""
    bench = Bench()
    bench.beat("llm.a", free=6, sessions=4)
    bench.beat("llm.b", free=6, sessions=4)
    assert bench.admission.has_room("llm", "parrot", {})
    assert not bench.admission.has_room("llm", "parrot", {}, {"llm.a"})
    assert "reserve" in bench.why(without={"llm.a"})[1]


# ---------------------------------------------------------------- deadline


def test_a_session_starts_while_the_stages_answer_in_time_together() -> None:
    """Of 80 ms the pod takes 20 and the stages 44; each session adds 4 ms in all."""
    bench = Bench()
    for stage in STAGES:
        bench.beat(f"{stage}.a", free=30, stage_s=0.011, more_s=0.001)
    assert bench.count() == 4
    assert bench.why() == ("session_limit_reached", "parrot would not answer another session in time.")


def test_sessions_that_do_not_show_yet_count_too() -> None:
    bench = Bench()
    for stage in STAGES:
        bench.beat(f"{stage}.a", free=30, stage_s=0.011, more_s=0.001, fresh=3)
    assert bench.count() == 1


@pytest.mark.parametrize(("deadline_units", "sessions"), [(0.9, 2), (1.5, 14)])
def test_the_deadline_can_be_set(deadline_units: float, sessions: int) -> None:
    bench = Bench(deadline_units=deadline_units)
    for stage in STAGES:
        bench.beat(f"{stage}.a", free=30, stage_s=0.011, more_s=0.001)
    assert bench.count() == sessions


def test_only_a_worker_with_which_the_others_are_in_time_is_picked() -> None:
    bench = Bench(reserve=0)
    bench.beat("llm.a", free=90, stage_s=0.050, more_s=0.001)
    bench.beat("llm.b", free=9, stage_s=0.030, more_s=0.001)
    bench.beat("talker.a", free=90, stage_s=0.028, more_s=0.0)
    started = [bench.starts() for _ in range(2)]
    assert [s if isinstance(s, str) else s["llm"] for s in started] == ["llm.b", "llm.b"]
    assert bench.starts() == "encoder", "told before anything was claimed"


def test_the_fastest_of_the_other_stages_counts_until_one_is_chosen() -> None:
    bench = Bench(reserve=0)
    bench.beat("encoder.a", stage_s=0.030)
    bench.beat("talker.a", stage_s=0.050)
    bench.beat("talker.b", stage_s=0.020)
    assert bench.admission.has_room("encoder", "parrot", {})
    assert not bench.admission.has_room("encoder", "parrot", {"talker": "talker.a"})
    assert bench.admission.has_room("encoder", "parrot", {"talker": "talker.b"})


def test_where_nobody_is_one_may_always_try() -> None:
    """A wrong measurement must not close a deployment for ever."""
    bench = Bench()
    for stage in STAGES:
        bench.beat(f"{stage}.a", sessions=0, stage_s=0.5, more_s=0.001)
    assert bench.count() == 1


def test_what_the_stages_do_not_explain_is_measured() -> None:
    bench = Bench()
    for stage in STAGES:
        bench.beat(f"{stage}.a", free=30, stage_s=0.010, more_s=0.001)
    for _ in range(100):
        bench.clock.now += 0.04
        bench.roster.tick()
        for stage in STAGES:
            bench.beat(f"{stage}.a", free=30, stage_s=0.010, more_s=0.001)
        bench.admission.answered("parrot", 0.068)
        bench.admission.answered("parrot", None)
        bench.admission.measure()
    assert bench.count() == 3, "28 ms beside the stages' 40"


@pytest.mark.parametrize(("answer_s", "sessions"), [(5.0, 4), (0.001, 9)])
def test_it_is_bounded(answer_s: float, sessions: int) -> None:
    """No stall of the machine alone closes a deployment, and what the pod waits for others is always in it."""
    bench = Bench()
    for _ in range(100):
        bench.clock.now += 0.04
        bench.roster.tick()
        for stage in STAGES:
            bench.beat(f"{stage}.a", free=30, stage_s=0.006, more_s=0.001)
        bench.admission.answered("parrot", answer_s)
        bench.admission.measure()
    assert bench.count() == sessions


@pytest.mark.parametrize(
    ("slowest_s", "sessions"), [(0.048, 8), (0.0515, 7), (0.055, 6), (0.067, 3), (9.0, 3)]
)
def test_room_is_left_for_the_slowest_answers(slowest_s: float, sessions: int) -> None:
    """At most 1 % may be late, while what is measured beside the stages covers but nine tenths; no stall of the machine
    takes more than a quarter of the deadline."""
    bench = Bench()
    for number in range(400):
        bench.clock.now += 0.01
        bench.admission.answered("parrot", slowest_s if number % 20 == 0 else 0.048)
        if number % 8 == 0:
            bench.roster.tick()
            for stage in STAGES:
                bench.beat(f"{stage}.a", free=30, stage_s=0.005, more_s=0.001)
            bench.admission.measure()
    assert bench.count() == sessions


def test_old_answers_do_not_count() -> None:
    bench = Bench()
    for _ in range(50):
        bench.admission.answered("parrot", 0.070)
    bench.clock.now += (WINDOW_UNITS + 1) * UNIT_S
    bench.admission.measure()
    assert bench.admission._overhead_s["parrot"] == GATHER_S


# ---------------------------------------------------------------- why not


def test_a_stage_without_a_worker_is_no_full_one() -> None:
    bench = Bench()
    assert bench.why(without={"llm.a"}, absent={"llm.a"}) == (
        "model_unavailable",
        "No llm worker of parrot is ready.",
    )
    assert bench.why(without={"llm.a"}) == ("session_limit_reached", "Every llm worker of parrot is full.")
