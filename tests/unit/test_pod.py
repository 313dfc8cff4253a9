"""A pod as the bus and the edge see it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import RequestTimeout
from duologue.inprocess import InProcess
from duologue.session.record import ACTIVE, BUCKET, CLOSED, SessionRecord
from duologue.virtual import run_virtual
from duologue_api.placement import Life
from duologue_api.pod import HEARTBEAT_S, MAX_WAITING, RECORDS_S, new_sid
from duologue_api.port import Crowded, Draining
from recorder import Recorder, config

pytestmark = pytest.mark.unit


def play(script: Callable[[InProcess], Awaitable[None]]) -> None:
    async def main() -> None:
        async with InProcess("parrot") as deployment:
            await asyncio.sleep(1.1)
            await script(deployment)

    run_virtual(main())


async def ask(deployment: InProcess, control: m.Control) -> m.AnyControl:
    at = subjects.control(deployment.pod.address)
    return m.decode_control(await deployment.transports[0].request(at, m.encode(control), 1.0))


async def session(deployment: InProcess) -> tuple[Recorder, "object"]:
    client = Recorder()
    root = deployment.pod.connect(client)
    root.start(config(deployment.pod), None)
    await client.until(lambda: client.started)
    return client, root


def test_session_ids_are_random_and_have_one_form() -> None:
    ids = {new_sid() for _ in range(100)}
    assert len(ids) == 100
    for sid in ids:
        assert sid.startswith("live_")
        assert len(sid) == len("live_") + 26
        assert subjects.token(sid) == sid


def test_a_pod_says_what_it_serves_and_whether_it_can() -> None:
    async def script(deployment: InProcess) -> None:
        pod = deployment.pod
        (model,) = pod.models()
        assert (model.id, model.ready, model.unit_s, model.voices) == ("parrot", True, 0.08, ("parrot",))
        assert "instructions" in model.unsupported
        assert pod.ready() == (True, "")
        await deployment.shell("llm").stop()
        await asyncio.sleep(1.0)
        assert [model.ready for model in pod.models()] == [False]
        assert pod.ready() == (False, "parrot has no llm worker")
        await deployment.add_worker("llm")
        await asyncio.sleep(0.1)
        assert pod.ready() == (True, "")
        deployment.transports[4].blink(1.0)
        assert pod.ready() == (False, "no connection to NATS")

    play(script)


@pytest.mark.parametrize("asked", [True, False])
def test_a_draining_pod_takes_no_more_sessions_and_ends_with_its_last(asked: bool) -> None:
    async def script(deployment: InProcess) -> None:
        pod = deployment.pod
        client, root = await session(deployment)
        if asked:
            assert await ask(deployment, m.Drain(m.WIRE)) == m.Done(m.WIRE, "1 sessions left")
        else:
            pod.drain()
        assert pod.ready() == (False, m.DRAINING)
        with pytest.raises(Draining):
            pod.connect(Recorder())
        assert not pod.empty.is_set()
        root.append(bytes(3840), None)  # type: ignore[attr-defined]
        await client.until(lambda: len(client.units) == 1)
        root.request_close(None)  # type: ignore[attr-defined]
        await asyncio.wait_for(pod.empty.wait(), 1.0)

    play(script)


def test_only_so_many_may_wait_without_a_session() -> None:
    async def script(deployment: InProcess) -> None:
        pod = deployment.pod
        waiting = [pod.connect(Recorder()) for _ in range(MAX_WAITING - 1)]
        await session(deployment)  # the last one starts, and waits no more
        waiting.append(pod.connect(Recorder()))
        with pytest.raises(Crowded):
            pod.connect(Recorder())
        waiting.pop().disconnected()
        assert (await session(deployment))[0].started

    play(script)


def test_an_order_to_drain_needs_no_answer() -> None:
    async def script(deployment: InProcess) -> None:
        deployment.transports[0].publish(subjects.control(deployment.pod.address), m.encode(m.Drain(m.WIRE)))
        await asyncio.sleep(0.1)
        assert deployment.pod.state == m.DRAINING

    play(script)


def test_owners_are_told_whether_they_are_wanted() -> None:
    async def script(deployment: InProcess) -> None:
        _, root = await session(deployment)
        sid, places = root.sid, root.places  # type: ignore[attr-defined]
        asked = [(sid, places["llm"].epoch), (sid, (9, 9)), ("live_other", places["llm"].epoch)]
        assert await ask(deployment, m.Mine(m.WIRE, "llm.x", asked)) == m.Yours(m.WIRE, asked[1:])
        root.disconnected()  # type: ignore[attr-defined]
        assert await ask(deployment, m.Mine(m.WIRE, "llm.x", asked)) == m.Yours(m.WIRE, asked)

    play(script)


def test_owners_that_are_being_claimed_are_wanted() -> None:
    async def main() -> None:
        async with InProcess("parrot", worker_options={"open_ms": 500.0}) as deployment:
            root = deployment.pod.connect(Recorder())
            assert not root.owns((1, 1))
            root.start(config(deployment.pod), None)
            await asyncio.sleep(0.1)
            assert all(root.owns(place.epoch) for place in root._opening.places.values())
            assert not root.owns((1, 9))

    run_virtual(main())


def test_a_suspect_is_probed_and_a_second_503_is_the_proof() -> None:
    async def script(deployment: InProcess) -> None:
        pod, dead = deployment.pod, deployment.shell("llm").address
        deployment.transports[1].blink(float("inf"))
        await asyncio.sleep(0.4)
        notice = m.encode(m.Suspect(m.WIRE, dead))
        deployment.transports[0].publish(subjects.control(pod.address), notice)
        await asyncio.sleep(0.01)
        assert pod.roster.judge(dead) is Life.ALIVE
        await asyncio.sleep(0.1)
        assert pod.roster.judge(dead) is Life.GONE

    play(script)


def test_a_suspect_that_answers_is_none() -> None:
    async def script(deployment: InProcess) -> None:
        pod, alive = deployment.pod, deployment.shell("llm").address
        notice = m.encode(m.Suspect(m.WIRE, alive))
        deployment.transports[0].publish(subjects.control(pod.address), notice)
        await asyncio.sleep(0.1)
        assert pod.roster.judge(alive) is Life.ALIVE
        await asyncio.sleep(HEARTBEAT_S)
        assert pod.roster.pick("llm", "parrot") == alive

    play(script)


def test_just_reconnected_a_pod_believes_no_suspicion() -> None:
    async def script(deployment: InProcess) -> None:
        pod, alive = deployment.pod, deployment.shell("llm").address
        deployment.transports[4].blink(0.01)
        await asyncio.sleep(0.5)
        deployment.transports[0].publish(subjects.control(pod.address), m.encode(m.Suspect(m.WIRE, alive)))
        await asyncio.sleep(0.01)
        assert pod.roster.pick("llm", "parrot") == alive

    play(script)


def test_a_pod_beats() -> None:
    async def script(deployment: InProcess) -> None:
        beats: list[m.Heartbeat] = []
        await deployment.transports[0].subscribe(
            subjects.heartbeat(deployment.pod.address),
            lambda message: beats.append(m.decode(message.data, m.Heartbeat)),
        )
        await asyncio.sleep(4 * HEARTBEAT_S + 0.01)
        assert len(beats) == 4
        assert {(beat.v, beat.ledger, beat.state) for beat in beats} == {(m.WIRE, m.LEDGER, m.READY)}
        assert set(beats[0].models) == {"parrot"}
        assert deployment.pod.address not in deployment.pod.roster._seen, "pods take no stages"

    play(script)


@pytest.mark.parametrize("subject", ["control", "heartbeat"])
def test_garbage_is_counted_and_dropped(subject: str) -> None:
    async def script(deployment: InProcess) -> None:
        counter = telemetry.DROPPED.labels("api", "malformed")
        before = counter._value.get()
        at = {"control": subjects.control, "heartbeat": subjects.heartbeat}[subject](deployment.pod.address)
        with pytest.raises(RequestTimeout):
            await deployment.transports[0].request(at, b"\x01", 0.5)
        assert counter._value.get() == before + 1
        client, _ = await session(deployment)
        assert client.started

    play(script)


async def states(deployment: InProcess) -> list[str]:
    """What the records say of the sessions, in any order."""
    bucket = await deployment.transports[0].bucket(BUCKET)
    entries = [await bucket.get(sid) for sid in await bucket.keys()]
    return [m.decode(entry.value, SessionRecord).state for entry in entries if entry is not None]


def test_the_records_of_a_pod_that_stops_say_so() -> None:
    """They stayed `active` for ever: the pod left the bus before they were written."""

    async def script(deployment: InProcess) -> None:
        for _ in range(2):
            await session(deployment)
        _, root = await session(deployment)
        await asyncio.sleep(0.1)
        assert await states(deployment) == [ACTIVE] * 3
        root.disconnected()  # type: ignore[attr-defined]
        await deployment.pod.stop()
        await deployment.pod.transport.close()
        assert await states(deployment) == [CLOSED] * 3

    play(script)


def test_a_pod_that_stops_does_not_wait_for_a_store_that_is_away() -> None:
    async def script(deployment: InProcess) -> None:
        await session(deployment)
        deployment.bus.store.up = False
        before = asyncio.get_running_loop().time()
        await deployment.pod.stop()
        assert asyncio.get_running_loop().time() - before <= RECORDS_S + 0.1

    play(script)


def test_a_pod_that_stops_ends_its_sessions_and_their_owners() -> None:
    async def script(deployment: InProcess) -> None:
        clients = [(await session(deployment))[0] for _ in range(2)]
        await deployment.pod.stop()
        assert [client.ended for client in clients] == [(1000, "server_draining")] * 2
        await asyncio.sleep(0.01)
        assert all(not shell.owners for shell in deployment.shells)

    play(script)
