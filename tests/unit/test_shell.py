"""A stage worker as the bus sees it: claims, routes, heartbeats, drain, failures."""

import asyncio

import pytest

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.memory import DELIVER, DROP, Fate
from duologue.bus.transport import NoResponders, RequestTimeout
from duologue.stage.model import Footprint, SessionError
from duologue.stage.shell import CLAIM_POLL_S, CLOSED_S, FAILED_S, HEARTBEAT_S
from scripted import Scripted
from worker import POD, Worker, play

pytestmark = pytest.mark.unit


def now() -> float:
    return asyncio.get_running_loop().time()


# ---------------------------------------------------------------- claims


def test_a_claim_makes_an_owner() -> None:
    async def script(worker: Worker) -> None:
        assert (await worker.claim()) == m.Claimed(m.WIRE, "live_a", (1, 1), m.OPEN)
        assert worker.owners == [("live_a", (1, 1))]
        assert worker.shell.places == 63
        assert not worker.shell.empty.is_set()

    assert len(play(script).model.states) == 1


def test_asking_again_opens_nothing_more() -> None:
    async def script(worker: Worker) -> None:
        for _ in range(3):
            assert (await worker.claim()).state == m.OPEN
        assert len(worker.owners) == 1

    assert len(play(script).model.states) == 1


def test_a_claim_that_arrives_twice_is_one() -> None:
    async def script(worker: Worker) -> None:
        worker.bus.fate = lambda passage: Fate((0.001, 0.002, 0.3)) if "claim" in passage.subject else DELIVER
        assert (await worker.claim()).state == m.OPEN
        await asyncio.sleep(1)
        assert worker.owners == [("live_a", (1, 1))]

    assert len(play(script).model.states) == 1


def test_a_claim_is_answered_once() -> None:
    async def script(worker: Worker) -> None:
        inboxes: list[str] = []
        worker.bus.observe(
            lambda message: inboxes.append(message.subject) if "INBOX" in message.subject else None
        )
        await worker.claim("live_a")
        await worker.claim("live_a")
        await asyncio.sleep(2 * CLAIM_POLL_S)
        assert len(inboxes) == len(set(inboxes)) == 2

    play(script, Scripted("encoder", quanta=1, open_s=0.1))


def test_a_long_opening_is_asked_for_until_it_is_done() -> None:
    async def script(worker: Worker) -> None:
        answers: list[tuple[float, str]] = []
        while not answers or answers[-1][1] == m.OPENING:
            asked = now()
            state = (await worker.claim()).state
            answers.append((now() - asked, state))
        assert [state for _, state in answers] == [m.OPENING, m.OPENING, m.OPEN]
        assert [took for took, _ in answers[:2]] == pytest.approx([CLAIM_POLL_S] * 2, abs=0.01)
        assert now() == pytest.approx(1.0, abs=0.01), "told as soon as it is open"

    worker = play(script, Scripted("encoder", quanta=9, open_s=0.1))
    assert len(worker.model.states) == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"v": m.WIRE + 1}, "wire"),
        ({"ledger": m.LEDGER + 1}, "ledger"),
        ({"model": "moshi"}, "encoder of parrot"),
        ({"stage": "llm"}, "encoder of parrot"),
        ({"options": {"from_the_future": 1}}, "from_the_future"),
    ],
)
def test_a_claim_that_fits_nothing_here_is_refused(fields: dict[str, object], why: str) -> None:
    """Options that the worker does not know raised, and the root asked in vain for a minute."""

    async def script(worker: Worker) -> None:
        answer = await worker.claim(**fields)
        assert answer.state == m.REFUSED
        assert why in answer.message
        assert (worker.owners, worker.model.log) == ([], [])
        assert (await worker.claim()).state == m.OPEN

    play(script)


def test_a_full_worker_says_so() -> None:
    async def script(worker: Worker) -> None:
        assert (await worker.claim("live_a")).state == m.OPEN
        assert (await worker.claim("live_b")).state == m.OPEN
        assert (await worker.claim("live_c")).state == m.FULL
        assert (await worker.claim("live_a")).state == m.OPEN, "it has its place already"
        worker.close(sid="live_b")
        assert (await worker.claim("live_c")).state == m.OPEN

    play(script, places=2)


def test_an_opening_session_takes_a_place() -> None:
    async def script(worker: Worker) -> None:
        assert (await worker.claim("live_a")).state == m.OPENING
        assert (await worker.claim("live_b")).state == m.FULL

    play(script, Scripted("encoder", quanta=50, open_s=0.1), places=1)


@pytest.mark.parametrize(
    ("memory", "fixed", "each", "places"),
    [
        (1000, 100, 300, 3),
        (999, 100, 300, 2),
        (50, 100, 300, 0),
        (1000, 100, 0, 5),
        (10_000, 0, 1, 5),
        (None, 100, 300, 5),
    ],
)
def test_memory_limits_the_places(memory: int | None, fixed: int, each: int, places: int) -> None:
    model = Scripted("encoder")
    model.bytes = Footprint(fixed, each)

    async def script(worker: Worker) -> None:
        assert worker.shell.places == places

    play(script, model, places=5, memory_bytes=memory)


@pytest.mark.parametrize(("share", "places"), [(0.0, 5), (0.04, 5), (0.2, 4), (0.3, 2), (1.0, 0)])
def test_a_thread_beside_the_steps_limits_the_places(share: float, places: int) -> None:
    """To a utilisation of 0.85; the steps tell nothing of it."""
    model = Scripted("encoder")
    model.bytes = Footprint(thread_share=share)

    async def script(worker: Worker) -> None:
        assert worker.shell.places == places

    play(script, model, places=5)


def test_an_epoch_that_was_closed_opens_nothing() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim()
        worker.close()
        assert (await worker.claim()).state == m.GONE
        assert (await worker.claim(epoch=(1, 2))).state == m.OPEN
        worker.close((1, 7), (1, 8), sid="live_b")
        assert (await worker.claim("live_b", (1, 7))).state == m.GONE, "the close came first"
        assert (await worker.claim("live_b", (1, 8))).state == m.GONE
        assert (await worker.claim("live_c", (1, 8))).state == m.OPEN
        await asyncio.sleep(CLOSED_S - 1)
        assert (await worker.claim("live_b", (1, 7))).state == m.GONE
        await asyncio.sleep(2)
        assert (await worker.claim("live_b", (1, 7))).state == m.OPEN, "kept no longer than it could matter"

    worker = play(script)
    assert [state.closed for state in worker.model.states] == [1] * len(worker.model.states)


def test_an_opening_that_fails_is_answered_and_frees_its_place() -> None:
    model = Scripted("encoder")
    model.raises["open"] = SessionError("no such voice", "invalid_value")

    async def script(worker: Worker) -> None:
        answer = await worker.claim()
        assert (answer.state, answer.message) == (m.FAILED, "no such voice")
        assert worker.owners == []
        assert worker.shell.empty.is_set()
        assert (await worker.claim()).state == m.GONE

    worker = play(script, model)
    assert worker.heard(m.Failed)[0] == m.Failed(
        m.WIRE, "live_a", (1, 1), "invalid_value", "no such voice", 0
    )


@pytest.mark.parametrize("kind", ["claim", "control"])
def test_garbage_is_counted_and_dropped(kind: str) -> None:
    counter = telemetry.DROPPED.labels("encoder", "malformed")

    async def script(worker: Worker) -> None:
        at = {"claim": subjects.claims, "control": subjects.control}[kind](worker.shell.address)
        before = counter._value.get()  # type: ignore[attr-defined]
        with pytest.raises(RequestTimeout):
            await worker.pod.request(at, b"\x01", 0.5)
        assert counter._value.get() == before + 1  # type: ignore[attr-defined]
        assert (await worker.claim()).state == m.OPEN

    play(script)


# ---------------------------------------------------------------- routes


def test_a_route_is_taken_if_it_is_newer_and_answered_always() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim()
        worker.send(0, 1)
        await asyncio.sleep(0.1)
        assert await worker.route(worker.wiring(3)) == m.Routed(m.WIRE, "live_a", (1, 1), (1, 3), 2)
        assert (await worker.route(worker.wiring(2, go=False))).version == (1, 3)
        worker.send(2)
        await asyncio.sleep(0.1)
        assert (await worker.route(worker.wiring(3))).unit == 3

    play(script)


def test_an_owner_that_is_not_here_is_not_known() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim()
        for sid, epoch in (("live_a", (1, 2)), ("live_b", (1, 1))):
            routed = await worker.route(worker.wiring(3), sid, epoch)
            assert (routed.known, routed.sid, routed.epoch) == (False, sid, epoch)

    play(script)


def test_nothing_is_stepped_before_the_route_says_go() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim(go=False)
        worker.send(0, 1)
        await asyncio.sleep(0.5)
        assert worker.model.did("step") == []
        await worker.route(worker.wiring(2, go=True))
        await asyncio.sleep(0.01)
        assert len(worker.model.did("step")) == 2
        await worker.route(worker.wiring(3, go=False))
        worker.send(2)
        await asyncio.sleep(0.5)
        assert len(worker.model.did("step")) == 2

    play(script)


# ---------------------------------------------------------------- heartbeats


def test_heartbeats_say_who_is_here_and_how_full() -> None:
    async def script(worker: Worker) -> None:
        await asyncio.sleep(0.3)
        await worker.claim()
        await asyncio.sleep(1.0)

    worker = play(script, places=3)
    regular = [at for at, _ in worker.beats[:4]]
    assert regular == pytest.approx([n * HEARTBEAT_S for n in range(4)], abs=0.001)
    first, last = worker.beats[0][1], worker.beats[4][1]
    assert (first.v, first.ledger, first.state) == (m.WIRE, m.LEDGER, m.READY)
    assert first.address == worker.shell.address
    assert subjects.role_of(first.address) == "encoder"
    assert first.models == {"parrot": m.Places(3, 0)}
    assert last.models == {"parrot": m.Places(2, 1, fresh=1)}
    assert (last.due_age, last.step_age) == (0.0, 0.0)


def test_heartbeats_tell_the_ages_of_the_step_and_of_what_waits() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim("live_a")
        await worker.claim("live_b")
        await asyncio.sleep(1 - now())
        worker.send(0, sid="live_a")
        await asyncio.sleep(0.3)
        worker.send(0, sid="live_b")
        await asyncio.sleep(0.5)

    worker = play(script, Scripted("encoder", step_s=0.9))
    beat = next(beat for at, beat in worker.beats if at > 1.7)
    assert beat.step_age == pytest.approx(0.7, abs=0.05)
    assert beat.due_age == pytest.approx(0.45, abs=0.05)
    assert worker.fatal == []


def test_a_closed_session_shows_at_once() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim()
        await asyncio.sleep(0.26)
        beats = len(worker.beats)
        worker.close()
        await asyncio.sleep(0.01)
        assert [beat.models["parrot"] for _, beat in worker.beats[beats:]] == [m.Places(64, 0)]

    play(script)


# ---------------------------------------------------------------- drain, stop


@pytest.mark.parametrize("asked", [True, False])
def test_a_draining_worker_takes_no_more_and_ends_with_its_last_session(asked: bool) -> None:
    async def script(worker: Worker) -> None:
        await worker.claim("live_a")
        await worker.claim("live_b")
        beats = len(worker.beats)
        if asked:
            at = subjects.control(worker.shell.address)
            done = m.decode_control(await worker.pod.request(at, m.encode(m.Drain(m.WIRE)), 1.0))
            assert done == m.Done(m.WIRE, "2 sessions left")
        else:
            worker.shell.drain()
            worker.shell.drain()
            await asyncio.sleep(0.001)
        assert [beat.state for _, beat in worker.beats[beats:]] == [m.DRAINING]
        answer = await worker.claim("live_c")
        assert (answer.state, answer.message) == (m.FULL, "draining")
        assert (await worker.claim("live_a")).state == m.OPEN, "what is here goes on"
        worker.send(0)
        await asyncio.sleep(0.1)
        assert len(worker.model.did("step")) == 1
        worker.close(sid="live_a")
        await asyncio.sleep(0.1)
        assert not worker.shell.empty.is_set()
        worker.close(sid="live_b")
        await asyncio.wait_for(worker.shell.empty.wait(), 0.1)

    play(script)


def test_an_empty_worker_has_nothing_to_drain() -> None:
    async def script(worker: Worker) -> None:
        worker.shell.drain()
        assert worker.shell.empty.is_set()

    play(script)


def test_a_worker_that_stops_frees_everything_and_is_heard_no_more() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim("live_a")
        await worker.claim("live_b")
        await worker.shell.stop()
        beats = len(worker.beats)
        await asyncio.sleep(0.1)
        told = {(failed.sid, failed.message) for failed in worker.heard(m.Failed)}
        assert told == {(sid, "its worker ended") for sid in ("live_a", "live_b")}
        await asyncio.sleep(5)
        assert len(worker.beats) <= beats + 1
        assert worker.owners == []
        with pytest.raises(NoResponders):
            await worker.claim("live_c")

    assert [state.closed for state in play(script).model.states] == [1, 1]


# ---------------------------------------------------------------- failures


def test_a_session_that_fails_is_told_to_its_root() -> None:
    model = Scripted("encoder")
    model.fails = {(7, 1)}

    async def script(worker: Worker) -> None:
        await worker.claim("live_a", name=7)
        await worker.claim("live_b", name=8)
        for sid in ("live_a", "live_b"):
            worker.send(0, 1, 2, sid=sid)
        await asyncio.sleep(0.1)
        assert worker.owners == [("live_b", (1, 1))]
        assert set(worker.heard(m.Failed)) == {
            m.Failed(m.WIRE, "live_a", (1, 1), "session_failed", "told to", 1)
        }
        worker.close(sid="live_a")
        await asyncio.sleep(0.01)
        told = len(worker.heard(m.Failed))
        await asyncio.sleep(FAILED_S)
        assert len(worker.heard(m.Failed)) == told, "the root knows"

    worker = play(script, model)
    assert {state.name: state.units for state in worker.model.states} == {7: [0, 1], 8: [0, 1, 2]}
    assert worker.fatal == []


def test_a_root_is_told_until_it_has_heard() -> None:
    """The one notice could be lost at a reconnect; then the root waited for units for ever."""
    model = Scripted("encoder")
    model.fails = {(0, 0)}

    async def script(worker: Worker) -> None:
        await worker.claim()
        worker.bus.fate = lambda passage: DROP if passage.subject == subjects.control(POD) else DELIVER
        worker.send(0)
        await asyncio.sleep(1)
        assert worker.told == []
        worker.bus.fate = lambda _: DELIVER
        await asyncio.sleep(HEARTBEAT_S)
        assert len(worker.heard(m.Failed)) == 1
        await asyncio.sleep(2 * FAILED_S)
        told = len(worker.heard(m.Failed))
        assert told <= FAILED_S / HEARTBEAT_S
        await asyncio.sleep(FAILED_S)
        assert len(worker.heard(m.Failed)) == told, "nor for ever"

    play(script, model)


def test_who_has_left_does_not_fail_any_more() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim()
        (owner,) = worker.shell.owners.values()
        worker.close()
        await asyncio.sleep(0.01)
        worker.shell._fail(owner, SessionError("too late"))
        await asyncio.sleep(1)
        assert worker.told == []

    play(script)


def test_a_unit_for_an_owner_that_is_not_here_is_told_to_its_root() -> None:
    """A root that had been cut off for longer than its owners waited went on sending to nobody."""

    async def script(worker: Worker) -> None:
        worker.send(0, src="llm")
        await asyncio.sleep(0.01)
        assert worker.told == []
        worker.send(0)
        await asyncio.sleep(0.01)
        (failed,) = worker.heard(m.Failed)
        assert (failed.sid, failed.epoch, failed.code) == ("live_a", (1, 1), "session_failed")

    play(script)


def test_a_step_that_hangs_ends_the_process() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim()
        worker.send(0)
        await asyncio.sleep(0.95)
        assert worker.fatal == []
        await asyncio.sleep(0.2)
        assert "hung" in worker.fatal[0]

    play(script, Scripted("encoder", step_s=60.0))


def test_steps_one_after_the_other_do_not_hang() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim()
        worker.send(*range(20))
        await asyncio.sleep(10)
        assert len(worker.model.did("step")) == 20

    assert play(script, Scripted("encoder", step_s=0.3)).fatal == []


def test_a_process_that_was_stopped_and_continued_has_not_hung() -> None:
    async def script(worker: Worker) -> None:
        await worker.claim()
        worker.send(0)
        await asyncio.sleep(0.1)
        asyncio.get_running_loop()._now += 500.0  # type: ignore[attr-defined]
        await asyncio.sleep(0.1)
        assert 0 < worker.shell.step_age < 0.3

    assert play(script, Scripted("encoder", step_s=1000.0)).fatal == []


def test_a_dead_neighbour_is_told_to_the_pods_concerned() -> None:
    async def script(worker: Worker) -> None:
        await asyncio.sleep(1.1)
        other: list[object] = []
        await worker.pod.subscribe(subjects.control("api.pod-2"), other.append)
        await worker.claim("live_a", to="llm.dead")
        await worker.claim("live_b", to="llm.dead")
        await worker.claim("live_c", to="llm.alive", root="api.pod-2")
        await worker.pod.subscribe(subjects.inbox("llm.alive"), lambda message: None)
        for sid in ("live_a", "live_b", "live_c"):
            worker.send(0, sid=sid)
        await asyncio.sleep(0.05)
        assert worker.heard(m.Suspect) == [m.Suspect(m.WIRE, "llm.dead")]
        assert other == []

    play(script)
