"""Owners are replaced while their session goes on: one test for each interleaving that CONTINUITY §3 speaks of."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.delivery import Verdict
from duologue.models import STAGES
from duologue.session.record import BUCKET, SessionRecord
from duologue.stage.model import SessionError
from duologue.testing.signals import bursts
from duologue.virtual import run_virtual
from duologue_api.table import State
from duologue_api.wiring import told
from struck import Session, Struck, speech, struck

pytestmark = pytest.mark.unit

UNITS = 60


def play(
    script: Callable[[Struck, Session], Awaitable[None]],
    exact: bool = True,
    said: Any = None,
    **how: Any,
) -> None:
    """Runs `script` two seconds into a session, which has to end exact."""

    async def main() -> None:
        async with struck(**how) as it:
            session = await it.session(speech(3, UNITS) if said is None else said)
            talking = asyncio.create_task(it.talk(session))
            await asyncio.sleep(2.0)
            await script(it, session)
            await talking
            if exact:
                await it.finish()

    run_virtual(main(), limit_s=200.0)


def takeovers(stage: str, reason: str) -> float:
    return float(telemetry.TAKEOVERS.labels(stage, reason)._value.get())


# ---------------------------------------------------------------- who dies


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_owner_is_replaced(stage: str, loop: bool) -> None:
    before = takeovers(stage, "gone") + takeovers(stage, "silent")

    async def script(it: Struck, session: Session) -> None:
        [owner] = it.owning(stage)
        it.kill(owner)
        await asyncio.sleep(0.05)
        assert session.root.places[stage].address == owner.address
        await asyncio.sleep(1.5)
        assert session.root.places[stage].address != owner.address
        assert session.root.state is State.ACTIVE

    play(script, loop=loop)
    assert takeovers(stage, "gone") + takeovers(stage, "silent") == before + 1


def test_a_move_is_told_and_written() -> None:
    async def script(it: Struck, session: Session) -> None:
        events: list[m.Event] = []
        moved = subjects.event("moved", session.root.sid)
        it.deployment.bus.observe(
            lambda message: message.subject == moved and events.append(m.decode(message.data, m.Event))
        )
        it.kill(*it.owning("llm"))
        await asyncio.sleep(1.5)
        assert [event.detail for event in events] == [{"model": "parrot", "stages": ["llm"]}]
        bucket = await it.deployment.pod.transport.bucket(BUCKET)
        entry = await bucket.get(session.root.sid)
        assert entry is not None
        assert m.decode(entry.value, SessionRecord).route == told(session.root.places)
        assert session.root.places["llm"].epoch == (1, 5)

    play(script)


@pytest.mark.parametrize("apart_s", [0.0, 0.37, 0.9])
@pytest.mark.parametrize(
    "stages",
    [("encoder", "llm"), ("llm", "talker"), ("talker", "codec"), ("encoder", "codec"), STAGES],
    ids="+".join,
)
def test_owners_of_several_stages_die(stages: tuple[str, ...], apart_s: float) -> None:
    async def script(it: Struck, session: Session) -> None:
        victims = [owner for stage in stages for owner in it.owning(stage)]
        for victim in victims:
            it.kill(victim)
            await asyncio.sleep(apart_s)

    play(script, loop=True, worker_options={"open_ms": 200.0})


@pytest.mark.parametrize("stage", STAGES)
def test_an_heir_dies_while_it_opens(stage: str) -> None:
    """Unfinished heirs are closed and claimed again, elsewhere, under new epochs."""

    async def script(it: Struck, session: Session) -> None:
        it.kill(*it.owning(stage))
        await asyncio.sleep(0.8)
        [heir] = it.owning(stage)
        assert session.root.state is State.SUSPENDED
        it.kill(heir)

    play(script, loop=True, worker_options={"open_ms": 900.0}, workers=3)


@pytest.mark.parametrize("stage", STAGES)
def test_a_hung_step_is_a_death(stage: str) -> None:
    async def script(it: Struck, session: Session) -> None:
        [owner] = it.owning(stage)
        it.hang(owner)
        await asyncio.sleep(3.0)
        assert session.root.places[stage].address != owner.address

    play(script, loop=True)


def test_what_only_a_receiver_knows_is_not_decided_again() -> None:
    """The codec lies behind: it has accepted units of which the root knows nothing yet, and of those who decided them none
    is left.  What the talker draws in them decides what the llm repeats, and so all that is said after them."""

    async def script(it: Struck, session: Session) -> None:
        [codec] = it.owning("codec")
        [owner] = codec.owners.values()
        it.slow_down(codec, 0.3, steps=25)
        decided: dict[int, dict[str, Any]] = {}
        while sum("talker" in records for records in decided.values()) < 6:
            await asyncio.sleep(0.05)
            decided = owner.known.records(session.root.units_out, frozenset({"llm", "talker"}))
        for stage in ("llm", "talker"):
            it.kill(*it.owning(stage))
        await session.client.until(lambda: session.root.units_out > max(decided))
        for unit, records in decided.items():
            assert {stage: session.seen[unit].get(stage) for stage in records} == records

    play(script, loop=True, said=bursts([(2.0, True), (4.4, False)], 5))


# ---------------------------------------------------------------- who is not dead


@pytest.mark.parametrize("stage", STAGES)
def test_a_frozen_owner_that_wakes_is_not_heard_and_gives_its_place_back(stage: str) -> None:
    async def script(it: Struck, session: Session) -> None:
        [owner] = it.owning(stage)
        it.freeze(owner, 2.5)
        await asyncio.sleep(3.0)
        assert session.root.places[stage].address != owner.address
        assert owner.owners == {}

    play(script, loop=True)


@pytest.mark.parametrize("stage", ["encoder", "llm", "talker"])
def test_who_is_cut_off_from_the_pod_alone_is_fenced(stage: str) -> None:
    """It goes on stepping, and the workers after it hear it: they must drop what it says from the moment on at which
    they told what they know, or two owners would have decided the same unit."""
    after = {"encoder": "llm", "llm": "talker", "talker": "codec"}[stage]

    async def script(it: Struck, session: Session) -> None:
        [owner], [receiver] = it.owning(stage), it.owning(after)
        it.slow_down(owner, 0.3)
        await asyncio.sleep(1.0)
        it.partition(owner, 4.0)
        [endpoint] = [each.endpoint for each in receiver.owners.values()]
        while session.root.state is not State.SUSPENDED:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.7)
        assert session.root.state is State.SUSPENDED, "nobody has a new route yet"
        assert endpoint.counts[Verdict.FENCED] > 0
        assert owner.owners, "it can't know yet"

    play(script, loop=stage == "talker", worker_options={"open_ms": 800.0})


def test_a_broker_that_was_away_moves_nobody() -> None:
    """After it everyone looks dead to everyone."""

    async def script(it: Struck, session: Session) -> None:
        before = dict(session.root.places)
        for transport in it.deployment.transports:
            transport.blink(0.6)
        await asyncio.sleep(2.0)
        assert session.root.places == before

    play(script, loop=True)


# ---------------------------------------------------------------- holes


@pytest.mark.parametrize("stage", ["llm", "talker", "codec"])
def test_what_no_ring_holds_is_made_again(stage: str) -> None:
    """The stage before the dead one can't send again what the heir needs: it is taken over itself, from the ledger."""
    upstream = {"llm": "encoder", "talker": "llm", "codec": "talker"}[stage]
    before = takeovers(upstream, "hole")

    async def script(it: Struck, session: Session) -> None:
        for shell in it.owning():
            it.empty_rings(shell)
        [owner] = it.owning(stage)
        it.kill(owner)

    play(script, loop=True)
    assert takeovers(upstream, "hole") == before + 1


def test_a_context_longer_than_any_ring_is_made_again() -> None:
    async def script(it: Struck, session: Session) -> None:
        it.kill(*it.owning("llm"))

    play(script, loop=True, ring_bytes=1000)


# ---------------------------------------------------------------- places


def test_without_a_place_a_session_waits() -> None:
    async def script(it: Struck, session: Session) -> None:
        it.kill(*it.owning("talker"))
        await asyncio.sleep(20.0)
        assert session.root.state is State.SUSPENDED
        await it.deployment.add_worker("talker")
        await asyncio.sleep(1.0)
        assert session.root.state is State.ACTIVE

    play(script, loop=True, workers=1, respawn=False)


def test_the_sessions_of_a_dead_worker_are_spread() -> None:
    async def main() -> None:
        async with struck(workers=4, respawn=False, settings={"places": 64}) as it:
            sessions = [await it.session(speech(each, 20)) for each in range(24)]
            talking = [asyncio.create_task(it.talk(session)) for session in sessions]
            await asyncio.sleep(0.8)
            victim = max(it.living("llm"), key=lambda shell: len(shell.owners))
            concerned = len(victim.owners)
            assert concerned >= 4
            seals: list[tuple[float, str]] = []
            loop = asyncio.get_running_loop()
            it.deployment.bus.observe(
                lambda message: (
                    b"\xa4seal" in message.data[:8] and seals.append((loop.time(), message.subject))
                )
            )
            it.kill(victim)
            await asyncio.gather(*talking)
            counts = sorted(len(shell.owners) for shell in it.living("llm"))
            assert sum(counts) == 24
            assert counts[-1] - counts[0] <= 6
            assert seals
            assert len(set(seals)) == len(seals), (
                "one message for all sessions that a worker has in common with it"
            )
            await it.finish()

    run_virtual(main(), limit_s=200.0)


@pytest.mark.parametrize("after_s", [0.01, 0.5, 0.9])
def test_a_client_that_leaves_meanwhile_leaves_no_place_taken(after_s: float) -> None:
    async def script(it: Struck, session: Session) -> None:
        it.kill(*it.owning("llm"))
        await asyncio.sleep(after_s)
        session.root.disconnected()
        await asyncio.sleep(4.0)
        assert [shell.owners for shell in it.living() if shell.owners] == []

    play(script, exact=False, worker_options={"open_ms": 400.0})


# ---------------------------------------------------------------- what the input says


def test_what_was_muted_stays_muted() -> None:
    """Controls and silence are in the ledger."""

    async def main() -> None:
        async with struck(loop=True) as it:
            session = await it.session(speech(3, UNITS))
            said = session.pcm16
            session.pcm16 = said.copy()
            session.pcm16[20 * 1920 : 30 * 1920] = 0
            for unit in range(UNITS):
                if unit in (20, 30):
                    session.root.mute(unit == 20, None)
                if unit in (15, 24, 31):
                    it.kill(*it.owning({15: "encoder", 24: "llm", 31: "codec"}[unit]))
                session.root.append(said[1920 * unit : 1920 * (unit + 1)].tobytes(), None)
                await asyncio.sleep(0.08)
            await it.finish()
            assert [kind for kind, *_ in session.seen[20]["controls"]] == ["muted"]
            assert [kind for kind, *_ in session.seen[30]["controls"]] == ["unmuted"]

    run_virtual(main(), limit_s=200.0)


def test_what_was_shed_meanwhile_is_silence_to_everybody() -> None:
    async def main() -> None:
        limits = {"input_backlog_s": 0.5}
        async with struck(loop=True, workers=1, respawn=False, limits=limits) as it:
            session = await it.session(speech(3, UNITS))
            talking = asyncio.create_task(it.talk(session))
            await asyncio.sleep(1.0)
            it.kill(*it.owning("encoder"))
            await asyncio.sleep(2.5)
            await it.deployment.add_worker("encoder")
            await talking
            await session.client.until(lambda: len(session.client.units) >= UNITS)
            shed = [unit for unit, seen in session.seen.items() if seen.get("root") == "shed"]
            assert len(shed) > 5
            for unit in shed:
                session.pcm16[1920 * unit : 1920 * (unit + 1)] = 0
            assert [error.code for error in session.client.errors] == ["input_backlog"]
            session.client.errors.clear()
            it.kill(*it.owning("llm"))
            await it.deployment.add_worker("llm")
            await it.finish()

    run_virtual(main(), limit_s=200.0)


# ---------------------------------------------------------------- models that fail


def failing(it: Struck, stage: str, times: int) -> None:
    """The stage's models can't step the next unit, as often as that in all."""
    left = times

    def wrap(shell: Any) -> None:
        step = shell.model.step

        def fails(batch: Any) -> Any:
            nonlocal left
            left -= 1
            return [SessionError("told to")] * len(batch) if left >= 0 else step(batch)

        shell.model.step = fails

    for shell in it.living(stage):
        wrap(shell)


@pytest.mark.parametrize("stage", STAGES)
def test_a_unit_that_fails_once_is_tried_elsewhere(stage: str) -> None:
    async def script(it: Struck, session: Session) -> None:
        failing(it, stage, 1)

    play(script, loop=True)


def test_a_unit_that_fails_again_ends_the_session() -> None:
    async def script(it: Struck, session: Session) -> None:
        failing(it, "llm", 1000)
        await session.client.until(lambda: session.client.ended is not None)
        assert session.client.ended == (1000, "session_failed")

    play(script, exact=False)
