"""What the model thread does next, with real owners and a model half that is scripted."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duologue.bus import messages as m
from duologue.models import manifest
from duologue.stage.engine import InlineEngine, ThreadEngine
from duologue.stage.model import SessionError
from duologue.stage.owner import Owner, Phase
from duologue.stage.ticks import Ticks
from duologue.stage.watch import Watch
from duologue.virtual import VirtualLoop, run_virtual
from scripted import Scripted

pytestmark = pytest.mark.unit

GATHER_S = 0.02
LIMIT = 4
WINDOW = 25
ROOT_EPOCH: m.Epoch = (1, 0)


class Bench:
    """An encoder's ticks and owners; `sent` has (time, name of the session, unit)."""

    def __init__(self, model: Scripted, *, threaded: bool = False) -> None:
        self.loop = asyncio.get_running_loop()
        self.model = model
        self.engine = ThreadEngine(self.loop) if threaded else InlineEngine(self.loop)
        model.sleep = self.engine.sleep
        self.within: list[bool] = []
        model.during = lambda _: self.within.append(self.engine.busy)
        self.owners: dict[tuple[str, m.Epoch], Owner] = {}
        self.sent: list[tuple[float, int, int]] = []
        self.opened: list[int] = []
        self.failed: list[int] = []
        self.fatal: list[str] = []
        self.on_opened: Callable[[], None] = lambda: None
        self.ticks = Ticks(
            "encoder",
            model,
            self.engine,
            owners=self.owners,
            clock=self.loop.time,
            gather_s=GATHER_S,
            limit=LIMIT,
            watch=Watch("encoder", manifest("parrot")),
            opened=self._open_now,
            failed=self._fail,
            fatal=self.fatal.append,
        )

    def _open_now(self, owner: Owner) -> None:
        self.opened.append(owner.start.seed)
        self.on_opened()

    def _fail(self, owner: Owner, error: SessionError) -> None:
        self.failed.append(owner.start.seed)
        self.close(owner)

    # Post
    def unit(self, address: str, envelope: m.Envelope) -> None:
        self.sent.append((self.loop.time(), int(envelope.sid), envelope.unit))

    def owes(self, endpoint: object, urgent: bool) -> None:
        pass

    def open(self, name: int) -> Owner:
        wiring = m.Wiring(
            (1, 1),
            True,
            {"root": m.Inflow([(ROOT_EPOCH, 0)], 0)},
            {"llm": [m.Outflow("llm.x", (1, 9))]},
        )
        claim = m.Claim(
            m.WIRE, m.LEDGER, str(name), "encoder", "parrot", (1, 1), "api.a", m.Start(name), wiring
        )
        owner = Owner(
            claim,
            manifest("parrot"),
            post=self,
            clock=self.loop.time,
            arrived=self.ticks.look,
            window=WINDOW,
        )
        self.owners[owner.sid, owner.epoch] = owner
        self.ticks.open(owner)
        return owner

    def feed(self, owner: Owner, *units: int) -> None:
        for unit in units:
            envelope = m.Envelope(
                m.WIRE, owner.sid, "root", "encoder", unit, ROOT_EPOCH, owner.epoch, m.Audio()
            )
            owner.endpoint.offer("api.a", envelope)

    def close(self, owner: Owner) -> None:
        """As the shell does it."""
        if self.owners.pop((owner.sid, owner.epoch), None) is not None:
            owner.phase = Phase.CLOSED
            self.ticks.close(owner)

    async def settled(self) -> None:
        """Everything that was under way has ended; for a real thread without the clock's going on."""
        if isinstance(self.engine, InlineEngine):
            await asyncio.sleep(5.0)
            return
        assert isinstance(self.loop, VirtualLoop)
        with self.loop.outside():
            while self.engine.busy:  # noqa: ASYNC110  (the thread tells by calling back)
                await asyncio.sleep(0)


def play(script: Callable[[Bench], Awaitable[None]], model: Scripted | None = None, **options: Any) -> Bench:
    async def main() -> Bench:
        bench = Bench(model or Scripted("encoder"), **options)
        await script(bench)
        bench.ticks.stop()
        assert all(bench.within), "the model was used outside of the engine's jobs"
        return bench

    return run_virtual(main())


# ---------------------------------------------------------------- stepping


def test_a_unit_is_stepped_and_sent() -> None:
    async def script(bench: Bench) -> None:
        owner = bench.open(1)
        await asyncio.sleep(0.1)
        bench.feed(owner, 0, 1)
        await asyncio.sleep(1)

    bench = play(script, Scripted("encoder", step_s=0.01))
    assert bench.opened == [1]
    assert [(name, unit) for _, name, unit in bench.sent] == [(1, 0), (1, 1)]
    assert [at for at, *_ in bench.sent] == pytest.approx([0.11, 0.12])


def test_sessions_that_are_ready_within_the_wait_step_together() -> None:
    async def script(bench: Bench) -> None:
        owners = [bench.open(name) for name in range(4)]
        await asyncio.sleep(1)
        for owner in owners[:3]:
            bench.feed(owner, 0)
            await asyncio.sleep(0.008)
        await asyncio.sleep(1)

    bench = play(script)
    assert bench.model.did("step") == [((0, 1, 2),)]
    assert [at for at, *_ in bench.sent] == pytest.approx([1 + GATHER_S] * 3)


def test_nobody_waits_for_others_once_all_are_ready() -> None:
    async def script(bench: Bench) -> None:
        owners = [bench.open(name) for name in range(2)]
        await asyncio.sleep(1)
        bench.feed(owners[0], 0)
        await asyncio.sleep(0.005)
        bench.feed(owners[1], 0)
        await asyncio.sleep(1)

    bench = play(script)
    assert bench.model.did("step") == [((0, 1),)]
    assert [at for at, *_ in bench.sent] == pytest.approx([1.005] * 2)


def test_a_batch_has_a_limit_and_the_oldest_come_first() -> None:
    async def script(bench: Bench) -> None:
        owners = [bench.open(name) for name in range(7)]
        await asyncio.sleep(1)
        first = owners[6]
        bench.feed(first, 0, 1, 2)
        for owner in owners[:6]:
            bench.feed(owner, 0)
        await asyncio.sleep(1)

    bench = play(script, Scripted("encoder", step_s=0.05))
    assert bench.model.did("step") == [((6, 0, 1, 2),), ((3, 4, 5, 6),), ((6,),)]
    assert bench.ticks.due_age == 0.0


def test_how_long_the_oldest_has_waited() -> None:
    async def script(bench: Bench) -> None:
        owners = [bench.open(name) for name in range(2)]
        await asyncio.sleep(1)
        bench.feed(owners[0], 0)
        await asyncio.sleep(0.03)
        assert bench.ticks.busy
        bench.feed(owners[1], 0)
        await asyncio.sleep(0.05)
        assert bench.ticks.due_age == pytest.approx(0.05)

    play(script, Scripted("encoder", step_s=0.5))


def test_an_acknowledgement_can_make_somebody_ready() -> None:
    async def script(bench: Bench) -> None:
        owner = bench.open(1)
        await asyncio.sleep(0.1)
        for unit in range(2 * WINDOW + 1):
            bench.feed(owner, unit)
            await asyncio.sleep(0.001)
        assert owner.unit == 2 * WINDOW
        owner.endpoint.on_ack(m.Ack("1", "encoder", "llm", (1, 9), 1, 1, 0, WINDOW))
        await asyncio.sleep(1)
        assert owner.unit == 2 * WINDOW
        bench.ticks.look_all()
        await asyncio.sleep(0.1)
        assert owner.unit == 2 * WINDOW + 1

    play(script)


# ---------------------------------------------------------------- opening


def test_an_opening_of_many_quanta_and_steps_take_turns() -> None:
    async def script(bench: Bench) -> None:
        busy = bench.open(1)
        await asyncio.sleep(1)
        bench.model.quanta = 9
        bench.feed(busy, *range(20))
        bench.open(2)
        await asyncio.sleep(5)

    bench = play(script, Scripted("encoder", step_s=0.01, open_s=0.01))
    turns = "".join(str(entry[0])[0] for entry in bench.model.log[1:])
    during = turns[: turns.rindex("o")]
    assert during.count("o") == 9
    assert "ss" not in during, "the opening starves"
    assert "ooo" not in during, "steps starve: two quanta fit into the wait for others"
    assert turns.count("s") == 20
    assert bench.opened == [1, 2]


def test_an_opening_goes_on_while_every_batch_is_full() -> None:
    async def script(bench: Bench) -> None:
        owners = [bench.open(name) for name in range(LIMIT)]
        await asyncio.sleep(1)
        bench.model.quanta = 9
        for owner in owners:
            bench.feed(owner, *range(20))
        bench.open(9)
        await asyncio.sleep(5)

    bench = play(script, Scripted("encoder", step_s=0.01, open_s=0.01))
    turns = "".join(str(entry[0])[0] for entry in bench.model.log[LIMIT:])
    assert turns.lstrip("o").startswith("so" * 9), turns


def test_several_openings_take_turns() -> None:
    async def script(bench: Bench) -> None:
        for name in (1, 2, 3):
            bench.open(name)
        await asyncio.sleep(5)

    bench = play(script, Scripted("encoder", quanta=2, open_s=0.01))
    assert bench.model.did("open") == [(name, quantum) for quantum in range(3) for name in (1, 2, 3)]
    assert bench.opened == [1, 2, 3]


def test_an_opening_uses_the_time_in_which_a_batch_gathers() -> None:
    async def script(bench: Bench) -> None:
        first, _ = bench.open(1), bench.open(2)
        await asyncio.sleep(1)
        bench.model.quanta = 3
        bench.feed(first, 0)
        bench.open(3)
        await asyncio.sleep(5)

    bench = play(script, Scripted("encoder", open_s=0.005))
    assert [entry[0] for entry in bench.model.log[2:]] == ["open"] * 4 + ["step"]
    assert bench.sent[0][0] == pytest.approx(1 + GATHER_S)


def test_units_that_came_during_the_opening_are_stepped_after_it() -> None:
    async def script(bench: Bench) -> None:
        owner = bench.open(1)
        bench.feed(owner, 0)
        assert bench.sent == []
        await asyncio.sleep(1)

    bench = play(script, Scripted("encoder", quanta=1, open_s=0.1))
    assert [at for at, *_ in bench.sent] == pytest.approx([0.2])


def test_an_opening_is_done_with_before_its_owner_is_open() -> None:
    """What a model does after its last item was left to whoever dropped the iterator, and when."""

    class Tidy(Scripted):
        def open(self, start: m.Start, history: Any) -> Any:
            try:
                yield from super().open(start, history)
            finally:
                self._enter("tidied", start.seed)

    model = Tidy("encoder", quanta=1)

    async def script(bench: Bench) -> None:
        bench.on_opened = lambda: bench.model.log.append(("opened",))
        bench.open(1)
        await bench.settled()

    play(script, model)
    assert [entry[0] for entry in model.log] == ["open", "open", "tidied", "opened"]


# ---------------------------------------------------------------- errors


def test_a_rows_error_ends_its_session_alone() -> None:
    model = Scripted("encoder", step_s=0.01)
    model.fails = {(2, 1)}

    async def script(bench: Bench) -> None:
        owners = [bench.open(name) for name in (1, 2, 3)]
        await asyncio.sleep(1)
        for owner in owners:
            bench.feed(owner, 0, 1, 2)
        await bench.settled()

    bench = play(script, model)
    assert bench.failed == [2]
    assert [unit for _, name, unit in bench.sent if name == 2] == [0]
    for name in (1, 3):
        assert [unit for _, who, unit in bench.sent if who == name] == [0, 1, 2]
    assert model.did("close") == [(2,)]
    assert bench.fatal == []


def test_an_opening_that_fails_ends_its_session_alone() -> None:
    model = Scripted("encoder", quanta=2, open_s=0.01)

    def during(what: str) -> None:
        if what == "open" and model.log[-1] == ("open", 2, 1):
            raise SessionError("told to")

    async def script(bench: Bench) -> None:
        model.during = during
        first, _ = bench.open(1), bench.open(2)
        await bench.settled()
        bench.feed(first, 0)
        await bench.settled()

    bench = play(script, model)
    assert (bench.failed, bench.opened) == ([2], [1])
    assert [(name, unit) for _, name, unit in bench.sent] == [(1, 0)]
    assert (model.did("close"), bench.fatal) == ([], [])


@pytest.mark.parametrize("what", ["open", "step", "horizon", "close"])
def test_any_other_error_ends_the_process(what: str) -> None:
    model = Scripted("encoder")
    model.raises[what] = ZeroDivisionError("told to")

    async def script(bench: Bench) -> None:
        owner = bench.open(1)
        await bench.settled()
        bench.feed(owner, 0)
        await bench.settled()
        bench.close(owner)
        await bench.settled()

    bench = play(script, model)
    (why,) = bench.fatal
    assert "ZeroDivisionError" in why
    assert why.startswith(f"encoder: {'step' if what == 'horizon' else what}: ")
    assert bench.failed == []


def test_an_opening_without_a_state_ends_the_process() -> None:
    class Stateless(Scripted):
        def open(self, start: m.Start, history: object) -> Any:
            yield None

    async def script(bench: Bench) -> None:
        bench.open(1)
        await bench.settled()

    (why,) = play(script, Stateless("encoder")).fatal
    assert "StopIteration" in why


def test_a_step_with_too_few_results_ends_the_process() -> None:
    class Short(Scripted):
        def step(self, batch: Any) -> Any:
            return super().step(batch)[1:]

    async def script(bench: Bench) -> None:
        owner = bench.open(1)
        await bench.settled()
        bench.feed(owner, 0)
        await bench.settled()

    (why,) = play(script, Short("encoder")).fatal
    assert "step" in why


def test_a_result_without_a_body_for_a_destination_ends_the_process() -> None:
    """It raised out of the loop over the batch, and the rows after it were never stepped again."""
    model = Scripted("encoder")
    model.out = {}

    async def script(bench: Bench) -> None:
        owner = bench.open(1)
        await bench.settled()
        bench.feed(owner, 0)
        await bench.settled()

    (why,) = play(script, model).fatal
    assert "no body for 'llm'" in why


# ---------------------------------------------------------------- leaving


def test_a_state_is_freed_when_its_owner_leaves() -> None:
    async def script(bench: Bench) -> None:
        owner = bench.open(1)
        await bench.settled()
        bench.close(owner)
        bench.ticks.close(owner)
        await bench.settled()
        bench.ticks.close(owner)
        await bench.settled()

    bench = play(script)
    assert bench.model.did("close") == [(1,)]


def test_a_state_that_is_being_stepped_is_freed_after_the_step() -> None:
    async def script(bench: Bench) -> None:
        leaving, staying = bench.open(1), bench.open(2)
        await bench.settled()
        bench.feed(leaving, 0)
        bench.feed(staying, 0)
        await asyncio.sleep(0.05)
        bench.close(leaving)
        assert bench.model.did("close") == []
        await asyncio.sleep(0.1)
        assert bench.model.did("close") == [(1,)]

    bench = play(script, Scripted("encoder", step_s=0.1))
    assert [(name, unit) for _, name, unit in bench.sent] == [(2, 0)], "it has no say any more"


@pytest.mark.parametrize(
    ("after_s", "expected"),
    [
        (0.05, ["open 1 0", "left 1"]),
        (0.15, ["open 1 0", "open 1 1", "left 1"]),
        (0.25, ["open 1 0", "open 1 1", "open 1 2", "close 1"]),
    ],
)
def test_an_owner_may_leave_while_it_is_opened(after_s: float, expected: list[str]) -> None:
    """A half-done opening was dropped wherever its last reference went, on the loop's thread and during steps."""

    async def script(bench: Bench) -> None:
        owner = bench.open(1)
        await asyncio.sleep(after_s)
        bench.close(owner)
        await bench.settled()

    bench = play(script, Scripted("encoder", quanta=2, open_s=0.1))
    assert [" ".join(map(str, entry)) for entry in bench.model.log] == expected
    assert (bench.opened, bench.fatal) == ([], [])


def test_an_owner_may_leave_between_two_quanta() -> None:
    async def script(bench: Bench) -> None:
        one, _ = bench.open(1), bench.open(2)
        await asyncio.sleep(0.15)
        bench.close(one)
        await bench.settled()

    bench = play(script, Scripted("encoder", quanta=1, open_s=0.1))
    assert bench.model.did("left") == [(1,)]
    assert bench.opened == [2]


def test_an_owner_may_leave_before_its_opening_has_begun() -> None:
    async def script(bench: Bench) -> None:
        bench.open(1)
        bench.close(bench.open(2))
        await bench.settled()

    bench = play(script, Scripted("encoder", open_s=0.1))
    assert bench.model.log == [("open", 1, 0)]


def test_the_model_is_used_on_one_thread_that_is_not_the_loops() -> None:
    model = Scripted("encoder", quanta=2)

    async def script(bench: Bench) -> None:
        owners = [bench.open(name) for name in range(3)]
        await bench.settled()
        for owner in owners:
            bench.feed(owner, 0)
        await asyncio.sleep(GATHER_S)
        await bench.settled()
        half_done = bench.open(9)
        while ("open", 9, 0) not in model.log:  # noqa: ASYNC110  (logged by the thread)
            await asyncio.sleep(0)
        for owner in (half_done, *owners):
            bench.close(owner)
        await bench.settled()

    play(script, model, threaded=True)
    assert {entry[0] for entry in model.log} >= {"open", "step", "close"}
    assert len(model.did("left")) + len([state for state in model.states if state.name == 9]) == 1
    assert len(model.threads) == 1
    assert threading.get_ident() not in model.threads
    assert all(state.closed == 1 for state in model.states)


def test_what_is_left_is_freed_after_the_stop() -> None:
    async def script(bench: Bench) -> None:
        owners = [bench.open(name) for name in range(3)]
        await bench.settled()
        for owner in owners:
            bench.feed(owner, 0, 1)
        await asyncio.sleep(0.05)
        for owner in owners:
            bench.close(owner)
        bench.ticks.stop()
        await bench.settled()

    bench = play(script, Scripted("encoder", step_s=0.1))
    assert sorted(bench.model.did("close")) == [(0,), (1,), (2,)]
    assert len(bench.model.did("step")) == 1


def test_nothing_is_stepped_or_opened_after_the_stop() -> None:
    async def script(bench: Bench) -> None:
        owner = bench.open(1)
        await bench.settled()
        bench.ticks.stop()
        bench.open(2)
        bench.feed(owner, 0)
        bench.ticks.look_all()
        await bench.settled()

    assert play(script).model.log == [("open", 1, 0)]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_state_is_freed_once_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    model = Scripted("encoder", quanta=rng.randrange(3), open_s=0.01, step_s=0.02)
    model.fails = {(rng.randrange(40), rng.randrange(3)) for _ in range(20)}

    async def script(bench: Bench) -> None:
        fed: dict[Owner, int] = {}
        for name in range(40):
            fed[bench.open(name)] = 0
            for _ in range(3):
                owner = rng.choice(list(fed))
                bench.feed(owner, fed[owner])
                fed[owner] += 1
            if rng.random() < 0.7:
                bench.close(rng.choice(list(fed)))
            await asyncio.sleep(rng.choice([0.0, 0.004, 0.03]))
        await bench.settled()
        for owner in fed:
            bench.close(owner)
        await bench.settled()
        assert bench.owners == {}

    bench = play(script, model)
    assert bench.fatal == []
    assert [state.closed for state in model.states] == [1] * len(model.states)
    for name in range(40):
        units = [unit for _, who, unit in bench.sent if who == name]
        assert units == list(range(len(units)))
