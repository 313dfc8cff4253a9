"""Whether the sessions of a worker are still wanted."""

import asyncio

import pytest

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.memory import DELIVER, DROP
from duologue.stage.tenancy import AGAIN_S, ANSWER_S, GONE_S, ORPHAN_S, SILENCE_S
from worker import POD, Worker, play

pytestmark = pytest.mark.unit

SLACK_S = 0.2


async def owned(worker: Worker, *sids: str, **fields: object) -> None:
    for sid in sids:
        assert (await worker.claim(sid, **fields)).state == m.OPEN


def sids(worker: Worker) -> list[str]:
    return [sid for sid, _ in worker.owners]


def test_a_silent_pod_is_asked_once_for_all_its_sessions() -> None:
    async def script(worker: Worker) -> None:
        await owned(worker, "live_a", "live_b")
        await asyncio.sleep(SILENCE_S - 0.1)
        assert worker.told == []
        await asyncio.sleep(SLACK_S)
        (asked,) = worker.heard(m.Mine)
        assert asked.sender == worker.shell.address
        assert sorted(asked.owners) == [("live_a", (1, 1)), ("live_b", (1, 1))]
        await asyncio.sleep(10 * SILENCE_S)
        assert sids(worker) == ["live_a", "live_b"], "they are its own"
        assert 9 <= len(worker.heard(m.Mine)) <= 11, "asked again after each silence"
        assert worker.heard(m.Failed) == []

    play(script)


def test_each_pod_is_asked_for_its_own() -> None:
    async def script(worker: Worker) -> None:
        await owned(worker, "live_a")
        await owned(worker, "live_b", root="api.pod-2")
        await asyncio.sleep(SILENCE_S + SLACK_S)
        assert [asked.owners for asked in worker.heard(m.Mine)] == [[("live_a", (1, 1))]]

    play(script)


def test_what_its_root_disowns_is_closed() -> None:
    """Zombies, and claims that no route followed, free their places."""

    async def script(worker: Worker) -> None:
        worker.answer = lambda asked: m.Yours(m.WIRE, [("live_b", (1, 1)), ("live_x", (1, 1))])
        await owned(worker, "live_a", "live_b", "live_c")
        await asyncio.sleep(SILENCE_S + SLACK_S)
        assert sids(worker) == ["live_a", "live_c"]
        assert (await worker.claim("live_b")).state == m.GONE
        assert worker.heard(m.Failed) == [], "its root knows"

    worker = play(script)
    assert [state.closed for state in worker.model.states] == [1, 1, 1]


@pytest.mark.parametrize("sign", ["units", "routes"])
def test_who_hears_of_its_root_does_not_ask(sign: str) -> None:
    async def script(worker: Worker) -> None:
        await owned(worker, "live_a")
        for n in range(20):
            if sign == "units":
                worker.send(n)
            else:
                await worker.route(worker.wiring(n + 2))
            await asyncio.sleep(0.5)
        assert worker.heard(m.Mine) == []
        assert sids(worker) == ["live_a"]

    play(script)


@pytest.mark.parametrize("answer", [None, b"\x01", m.encode(m.Done(m.WIRE))])
def test_without_an_answer_it_is_an_orphan_for_half_a_minute(answer: bytes | None) -> None:
    async def script(worker: Worker) -> None:
        worker.answer = lambda asked: answer
        await owned(worker, "live_a")
        await asyncio.sleep(SILENCE_S + ORPHAN_S)
        assert sids(worker) == ["live_a"]
        asked = len(worker.heard(m.Mine))
        assert asked >= ORPHAN_S / (AGAIN_S + ANSWER_S) - 1
        await asyncio.sleep(ANSWER_S + SLACK_S)
        assert sids(worker) == []
        assert (await worker.claim("live_a")).state == m.GONE
        assert worker.heard(m.Failed) != [], "should its root live, it must know"

    play(script)


def test_an_answer_ends_the_orphanage() -> None:
    async def script(worker: Worker) -> None:
        worker.answer = lambda asked: None
        await owned(worker, "live_a")
        await asyncio.sleep(20)
        worker.answer = lambda asked: m.Yours(m.WIRE, [])
        await asyncio.sleep(5)
        worker.answer = lambda asked: None
        await asyncio.sleep(20)
        assert sids(worker) == ["live_a"]
        await asyncio.sleep(20)
        assert sids(worker) == []

    play(script)


def test_a_unit_of_the_root_ends_the_orphanage() -> None:
    """After a short partition the root's units came again, nobody asked any more, and 30 s later a live session was
    closed for an orphan."""

    async def script(worker: Worker) -> None:
        worker.answer = lambda asked: None
        await owned(worker, "live_a")
        await asyncio.sleep(5)
        for n in range(80):
            worker.send(n)
            await asyncio.sleep(0.5)
        assert sids(worker) == ["live_a"]

    play(script)


def test_a_pod_whose_process_has_ended_frees_its_places_soon() -> None:
    async def script(worker: Worker) -> None:
        await owned(worker, "live_a", "live_b")
        await owned(worker, "live_c", resumable=True)
        worker.pod.blink(float("inf"))
        await asyncio.sleep(SILENCE_S + GONE_S - 0.1)
        assert len(worker.owners) == 3
        await asyncio.sleep(AGAIN_S + 3 * SLACK_S)
        assert sids(worker) == ["live_c"], "a client may resume it"
        await asyncio.sleep(ORPHAN_S - GONE_S - 1)
        assert sids(worker) == ["live_c"]
        await asyncio.sleep(2)
        assert sids(worker) == []

    play(script)


def test_a_pod_that_reconnects_keeps_its_sessions() -> None:
    """Two 503s within 50 ms of each other had its sessions closed, and their callers heard nothing any more."""

    async def script(worker: Worker) -> None:
        await owned(worker, "live_a")
        await asyncio.sleep(SILENCE_S - 0.1)
        for _ in range(20):
            worker.pod.blink(GONE_S - 1)
            await asyncio.sleep(GONE_S + SILENCE_S)
            assert sids(worker) == ["live_a"]

    play(script)


def test_one_503_after_a_long_silence_is_no_death() -> None:
    """The answers of three seconds were lost, then the pod had no connection for a moment."""

    async def script(worker: Worker) -> None:
        await owned(worker, "live_a")
        worker.bus.fate = lambda passage: DROP if passage.subject == subjects.control(POD) else DELIVER
        await asyncio.sleep(SILENCE_S + 2 * GONE_S)
        worker.bus.fate = lambda _: DELIVER
        worker.pod.blink(GONE_S - 1)
        await asyncio.sleep(GONE_S)
        assert sids(worker) == ["live_a"]

    play(script)


def test_a_pod_that_comes_and_goes_is_not_dead() -> None:
    """It must be away for as long as death takes without a break."""

    async def script(worker: Worker) -> None:
        await owned(worker, "live_a")
        worker.answer = lambda asked: None
        await asyncio.sleep(SILENCE_S - 0.1)
        for _ in range(4):
            worker.pod.blink(GONE_S / 2)
            await asyncio.sleep(GONE_S)
        assert sids(worker) == ["live_a"]

    play(script)


def test_just_reconnected_nobody_is_dead() -> None:
    async def script(worker: Worker) -> None:
        await owned(worker, "live_a")
        worker.pod.blink(float("inf"))
        for _ in range(16):
            await asyncio.sleep(0.9)
            worker.transport.blink(0.01)
        assert sids(worker) == ["live_a"]
        await asyncio.sleep(1 + GONE_S + 2 * AGAIN_S + SLACK_S)
        assert sids(worker) == []

    play(script)


def test_who_left_while_its_pod_was_asked_is_left_alone() -> None:
    async def script(worker: Worker) -> None:
        await owned(worker, "live_a", "live_b")
        worker.answer = lambda asked: None
        await asyncio.sleep(SILENCE_S + ORPHAN_S - 1)
        worker.close(sid="live_a")
        await asyncio.sleep(5)
        assert {failed.sid for failed in worker.heard(m.Failed)} == {"live_b"}

    play(script)


def test_a_worker_that_stops_asks_no_more() -> None:
    async def script(worker: Worker) -> None:
        worker.answer = lambda asked: None
        await owned(worker, "live_a")
        await asyncio.sleep(SILENCE_S + SLACK_S)
        await worker.shell.stop()
        asked = len(worker.heard(m.Mine))
        await asyncio.sleep(10)
        assert len(worker.heard(m.Mine)) == asked == 1

    play(script)


def test_the_root_of_a_session_is_who_claimed_it() -> None:
    """A unit that another stage sent is no sign of the root."""

    async def script(worker: Worker) -> None:
        await owned(worker, "live_a")
        for n in range(6):
            worker.send(n, src="llm")
            await asyncio.sleep(0.5)
        assert worker.heard(m.Mine) != []

    play(script)
