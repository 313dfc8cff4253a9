"""Placing a session: an owner for every stage, whatever the workers answer."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.memory import DELIVER, DROP, MemoryBus, MemoryTransport
from duologue.bus.transport import Message
from duologue.models import CHAIN, ROOT, STAGES
from duologue.virtual import run_virtual
from duologue_api.admission import Admission
from duologue_api.asking import ATTEMPT_S
from duologue_api.opening import START_S, Opening, Refused
from duologue_api.placement import Roster
from duologue_api.wiring import Place

pytestmark = pytest.mark.unit

POD = "api.pod-1"


class Played:
    """A worker whose answers to claims are `answers`, the last of them for ever; `None`: no answer."""

    def __init__(self, address: str, transport: MemoryTransport, answers: list[str | bytes | None]) -> None:
        self.address, self.transport, self.answers = address, transport, answers
        self.claims: list[m.Claim] = []
        self.routes: list[m.Route] = []
        self.closed: list[m.Epoch] = []
        self.knows = True
        self.delay_s = 0.0

    async def start(self) -> None:
        await self.transport.connect()
        await self.transport.subscribe(subjects.claims(self.address), self._on_claim)
        await self.transport.subscribe(subjects.control(self.address), self._on_control)

    def _on_claim(self, message: Message) -> None:
        claim = m.decode(message.data, m.Claim)
        self.claims.append(claim)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            answer = m.encode(m.Claimed(m.WIRE, claim.sid, claim.epoch, answer, f"told {answer}"))
        if answer is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(self.delay_s, self.transport.publish, message.reply, answer)

    def _on_control(self, message: Message) -> None:
        control = m.decode_control(message.data)
        if isinstance(control, m.Close):
            self.closed += control.epochs
        elif isinstance(control, m.Route):
            self.routes.append(control)
            known = m.Routed(m.WIRE, control.sid, control.epoch, control.wiring.version, 0, self.knows)
            self.transport.publish(message.reply, m.encode(known))


class Bench:
    """A pod's roster, and the workers that it knows of."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.workers: dict[str, Played] = {}

    async def __aenter__(self) -> "Bench":
        self.clock = asyncio.get_running_loop().time
        self.transport = MemoryTransport(self.bus, "pod")
        await self.transport.connect()
        self.roster = Roster(
            {"parrot": 0.08},
            clock=self.clock,
            settled_s=lambda: self.transport.settled_s,
            rng=random.Random(1),
        )
        self.admission = Admission(self.roster, {"parrot": 0.08}, clock=self.clock, gather_s=0.02, reserve=0)
        self.beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.beating.cancel()

    async def _beat(self) -> None:
        while True:
            self.roster.tick()
            for worker in self.workers.values():
                if worker.transport.connected:
                    self.beat(worker.address)
            await asyncio.sleep(0.04)

    def beat(self, address: str, free: int = 9) -> None:
        places = {"parrot": m.Places(free, 0)}
        self.roster.on_heartbeat(m.Heartbeat(m.WIRE, m.LEDGER, address, m.READY, places))

    async def worker(self, name: str, *answers: str | bytes | None) -> Played:
        transport = MemoryTransport(self.bus, name)
        worker = self.workers[name] = Played(name, transport, list(answers or [m.OPEN]))
        await worker.start()
        self.beat(name)
        return worker

    async def others(self, *without: str) -> list[Played]:
        """One willing worker of each other stage."""
        return [await self.worker(f"{stage}.good") for stage in STAGES if stage not in without]

    def opening(self) -> Opening:
        return Opening(
            "live_a",
            "parrot",
            m.Start(7, {"loop": False}),
            CHAIN,
            Place(POD, (3, 0)),
            transport=self.transport,
            roster=self.roster,
            admission=self.admission,
            clock=self.clock,
        )

    async def refused(self, opening: Opening) -> tuple[str, str]:
        with pytest.raises(Refused) as caught:
            await opening.run()
        opening.close()
        await asyncio.sleep(0.01)
        return caught.value.code, str(caught.value)


def play(script: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Bench() as bench:
            await script(bench)

    run_virtual(main(), limit_s=600)


def test_every_stage_gets_an_owner_and_all_are_wired() -> None:
    async def script(bench: Bench) -> None:
        workers = await bench.others()
        opening = bench.opening()
        began = bench.clock()
        places = await opening.run()
        assert bench.clock() - began < 0.001, "all claims at once"
        assert places[ROOT] == Place(POD, (3, 0))
        assert {stage: place.address for stage, place in places.items() if stage != ROOT} == {
            stage: f"{stage}.good" for stage in STAGES
        }
        epochs = [place.epoch for place in places.values()]
        assert len(set(epochs)) == 5
        assert all(epoch[0] == 3 for epoch in epochs)
        for worker in workers:
            (claim,) = worker.claims
            assert (claim.v, claim.ledger, claim.sid, claim.model) == (m.WIRE, m.LEDGER, "live_a", "parrot")
            assert (claim.root, claim.start) == (POD, m.Start(7, {"loop": False}))
            assert claim.epoch == places[claim.stage].epoch
            assert claim.wiring.go
            assert claim.wiring.told == {s: [(places[s].address, places[s].epoch, 0)] for s in STAGES}
            assert worker.closed == worker.routes == []
        assert opening.wirings == 1
        opening.close()
        await asyncio.sleep(0.01)
        assert [worker.closed for worker in workers] == [[places[w.claims[0].stage].epoch] for w in workers]

    play(script)


@pytest.mark.parametrize("answer", [m.FULL, m.REFUSED, m.GONE, b"\x01", m.encode(m.Done(m.WIRE))])
def test_who_does_not_take_it_is_passed_over(answer: str | bytes) -> None:
    """An answer that could not be read left the session half-open for ever."""

    async def script(bench: Bench) -> None:
        good = await bench.others("llm")
        bad = await bench.worker("llm.bad", answer)
        other = await bench.worker("llm.other")
        for _ in range(8):  # either may be drawn first
            opening = bench.opening()
            places = await opening.run()
            assert places["llm"].address == "llm.other"
            if bad.claims:
                break
        first, (second,) = bad.claims[-1], other.claims[-1:]
        assert bad.closed == [first.epoch], "should it have been taken all the same"
        assert second.epoch > first.epoch
        assert opening.wirings == second.wiring.version[1] == 2
        for worker in good:
            route = worker.routes[-1]
            assert route.epoch == places[worker.claims[-1].stage].epoch
            assert route.wiring.version == (3, 2)
            assert route.wiring.told["llm"] == [("llm.other", second.epoch, 0)]
        neighbour = next(worker for worker in good if worker.address == "encoder.good")
        assert neighbour.routes[-1].wiring.outflows["llm"] == [m.Outflow("llm.other", second.epoch, 0)]
        assert all(len(worker.claims) == len(good[0].claims) for worker in good), "the others keep theirs"

    play(script)


@pytest.mark.parametrize("beaten", [False, True], ids=["no heartbeat", "a heartbeat meanwhile"])
def test_a_place_that_was_not_given_is_not_freed(beaten: bool) -> None:
    """Until the next heartbeat the worker that had refused seemed to have one place more than it said."""

    async def script(bench: Bench) -> None:
        await bench.others("llm")
        full = await bench.worker("llm.full", m.FULL)
        full.delay_s = 0.002
        bench.beating.cancel()
        opening = bench.opening()
        if beaten:
            asyncio.get_running_loop().call_later(0.001, bench.beat, full.address)
        await bench.refused(opening)
        [candidate] = bench.roster.candidates("llm", "parrot")
        assert (candidate.free, candidate.sessions) == (9, 0)

    play(script)


def test_refused_by_all_workers_of_a_stage_it_can_not_start() -> None:
    async def script(bench: Bench) -> None:
        good = await bench.others("talker")
        full = [await bench.worker(f"talker.{n}", m.FULL) for n in range(3)]
        opening = bench.opening()
        began = bench.clock()
        code, message = await bench.refused(opening)
        assert bench.clock() - began < 0.1
        assert code == "session_limit_reached"
        assert "talker" in message
        for worker in (*good, *full):
            assert worker.closed == [claim.epoch for claim in worker.claims]
            assert len(worker.claims) == 1

    play(script)


def test_a_refusal_does_not_wait_for_other_stages_to_open() -> None:
    """The client was told after the slowest stage's opening, not within 100 ms."""

    async def script(bench: Bench) -> None:
        await bench.others("talker", "llm")
        await bench.worker("talker.full", m.FULL)
        slow = await bench.worker("llm.slow", m.OPENING)
        slow.delay_s = 0.4
        began = bench.clock()
        code, _ = await bench.refused(bench.opening())
        assert code == "session_limit_reached"
        assert bench.clock() - began < 0.1
        assert slow.closed == [slow.claims[0].epoch]

    play(script)


def test_without_free_places_nobody_is_asked() -> None:
    async def script(bench: Bench) -> None:
        good = await bench.others("codec")
        full = await bench.worker("codec.full")
        bench.beat(full.address, free=0)
        code, message = await bench.refused(bench.opening())
        assert (code, "codec" in message) == ("session_limit_reached", True)
        assert all(not worker.claims for worker in (*good, full))

    play(script)


def test_without_workers_the_model_is_unavailable() -> None:
    async def script(bench: Bench) -> None:
        await bench.others("encoder")
        code, message = await bench.refused(bench.opening())
        assert (code, "encoder" in message) == ("model_unavailable", True)

    play(script)


def test_a_lost_claim_is_asked_again_under_the_same_epoch() -> None:
    async def script(bench: Bench) -> None:
        await bench.others("llm")
        llm = await bench.worker("llm.only", None, m.OPEN)
        places = await bench.opening().run()
        assert bench.clock() == pytest.approx(ATTEMPT_S, abs=0.1)
        assert [claim.epoch for claim in llm.claims] == [places["llm"].epoch] * 2
        assert llm.closed == []

    play(script)


def test_an_opening_that_takes_long_is_waited_for() -> None:
    async def script(bench: Bench) -> None:
        await bench.others("llm")
        llm = await bench.worker("llm.slow", *[m.OPENING] * 20, m.OPEN)
        llm.delay_s = 0.4
        places = await bench.opening().run()
        assert bench.clock() == pytest.approx(21 * 0.4, abs=0.1)
        assert {claim.epoch for claim in llm.claims} == {places["llm"].epoch}

    play(script)


def test_but_not_for_ever() -> None:
    async def script(bench: Bench) -> None:
        good = await bench.others("llm")
        llm = await bench.worker("llm.slow", m.OPENING)
        llm.delay_s = 0.4
        code, _ = await bench.refused(bench.opening())
        assert code == "model_unavailable"
        assert bench.clock() == pytest.approx(START_S, abs=0.5)
        assert all(worker.closed for worker in (*good, llm))

    play(script)


def test_what_the_model_can_not_open_is_not_tried_elsewhere() -> None:
    async def script(bench: Bench) -> None:
        good = await bench.others("llm")
        both = [await bench.worker(f"llm.{n}", m.FAILED) for n in range(2)]
        code, message = await bench.refused(bench.opening())
        assert (code, message) == ("session_failed", "told failed")
        assert sum(len(worker.claims) for worker in both) == 1
        assert all(worker.closed for worker in good)

    play(script)


@pytest.mark.parametrize("alone", [True, False])
def test_a_worker_that_dies_while_it_opens_is_passed_over(alone: bool) -> None:
    async def script(bench: Bench) -> None:
        await bench.others("llm")
        dying = await bench.worker("llm.dying", m.OPENING)
        dying.delay_s = 0.4
        running = asyncio.create_task(bench.opening().run())
        await asyncio.sleep(2.5)
        assert len(dying.claims) > 3
        if not alone:
            await bench.worker("llm.other")
        dying.transport.blink(float("inf"))
        if alone:
            with pytest.raises(Refused) as caught:
                await running
            assert caught.value.code == "model_unavailable", "it is not full but gone"
        else:
            assert (await running)["llm"].address == "llm.other"
        assert bench.clock() < 2.5 + 2 * ATTEMPT_S

    play(script)


def test_a_worker_that_has_just_died_is_not_full() -> None:
    """Its last heartbeat is fresh, but nobody listens there."""

    async def script(bench: Bench) -> None:
        await bench.others("llm")
        dead = await bench.worker("llm.dead")
        dead.transport.blink(float("inf"))
        code, _ = await bench.refused(bench.opening())
        assert code == "model_unavailable"
        assert bench.clock() < 0.1

    play(script)


def test_a_worker_that_falls_silent_while_it_opens_is_passed_over() -> None:
    """Its subscriptions are there, but nothing that it says arrives."""

    async def script(bench: Bench) -> None:
        await bench.others("llm")
        silent = await bench.worker("llm.silent", m.OPENING)
        silent.delay_s = 0.4
        await asyncio.sleep(1.1)
        running = asyncio.create_task(bench.opening().run())
        await asyncio.sleep(0.6)
        del bench.workers["llm.silent"]
        bench.bus.fate = lambda passage: DROP if passage.sender == "llm.silent" else DELIVER
        await bench.worker("llm.other")
        assert (await running)["llm"].address == "llm.other"
        assert silent.closed == [silent.claims[0].epoch]

    play(script)


def test_an_owner_that_lost_the_session_meanwhile_is_replaced() -> None:
    async def script(bench: Bench) -> None:
        await bench.others("llm", "encoder")
        encoders = [await bench.worker(f"encoder.{n}") for n in range(2)]
        for worker in encoders:
            worker.knows = False
        full = await bench.worker("llm.full", m.FULL)
        await bench.worker("llm.fine")
        bench.beat("llm.full", free=99)
        for _ in range(8):
            places = await bench.opening().run()
            if full.claims:
                break
            for worker in encoders:
                worker.claims.clear()
        first, second = sorted((worker.claims[0].epoch, worker) for worker in encoders if worker.claims)
        assert first[1].closed == [first[0]]
        assert places["encoder"] == Place(second[1].address, second[0])

    play(script)


def test_who_gives_up_half_way_gives_back_every_place() -> None:
    async def script(bench: Bench) -> None:
        good = await bench.others("llm")
        slow = await bench.worker("llm.slow", m.OPENING)
        opening = bench.opening()
        running = asyncio.create_task(opening.run())
        await asyncio.sleep(0.2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        opening.close()
        await asyncio.sleep(0.01)
        for worker in (*good, slow):
            assert worker.closed == sorted({claim.epoch for claim in worker.claims})

    play(script)


def test_a_place_is_taken_until_the_next_heartbeat_and_given_back() -> None:
    async def script(bench: Bench) -> None:
        bench.beating.cancel()
        await bench.others()
        for stage in STAGES:
            bench.beat(f"{stage}.good", free=1)
        first = bench.opening()
        await first.run()
        code, _ = await bench.refused(bench.opening())
        assert code == "session_limit_reached"
        first.close()
        second: Any = await bench.opening().run()
        assert second["llm"].address == "llm.good"

    play(script)
