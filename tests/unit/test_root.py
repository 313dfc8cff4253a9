"""A session from its start to its end, whatever happens: the real pod, root, shells and parrot in virtual time."""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.memory import DELIVER, DROP, Fate, Passage
from duologue.inprocess import InProcess
from duologue.models import STAGES
from duologue.session.record import ACTIVE, BUCKET, CLOSED, SessionRecord
from duologue.stage.headroom import Headroom
from duologue.stage.model import SessionError
from duologue.testing.parrot_reference import reference
from duologue.testing.signals import bursts
from duologue.virtual import run_virtual
from duologue_api.live import events
from duologue_api.root import DRAIN_S, USAGE_S
from duologue_api.table import State
from duologue_api.takeover import PLACELESS_S
from recorder import Recorder, config

pytestmark = pytest.mark.unit

UNIT = 3840
"""Bytes of a unit."""
SEED = 11
SAID = bursts([(0.5, True), (0.9, False), (0.6, False)], 5)[: 24 * 1920]
"""Half a second of speech, which the parrot answers in the second that follows."""


class Call:
    """One client's session in a deployment."""

    def __init__(self, deployment: InProcess) -> None:
        self.deployment, self.pod = deployment, deployment.pod
        self.client = Recorder()
        self.root = self.pod.connect(self.client)

    def start(self) -> None:
        self.root.start(config(self.pod), "start_1")

    async def started(self) -> None:
        self.start()
        await self.client.until(lambda: self.client.started or self.client.ended is not None)
        assert self.client.started, self.client.errors

    async def say(self, pcm: np.ndarray = SAID, pace: float = 1.0) -> None:
        data = pcm.tobytes()
        for at in range(0, len(data), UNIT):
            self.root.append(data[at : at + UNIT], None)
            await asyncio.sleep(0.08 / pace)

    async def units(self, count: int) -> None:
        await self.client.until(lambda: len(self.client.units) >= count or self.client.ended is not None)

    async def ended(self) -> tuple[int, str]:
        await self.client.until(lambda: self.client.ended is not None)
        self.root.disconnected()
        assert self.client.ended is not None
        return self.client.ended

    def got(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.client.events if isinstance(event, kind)]

    def codes(self) -> list[str]:
        return [error.code for error in self.client.errors]

    @property
    def closed(self) -> events.SessionClosed:
        (event,) = self.got(events.SessionClosed)
        assert self.client.events[-1] is event, "the last event"
        return event  # type: ignore[no-any-return]


def play(script: Callable[[Call], Awaitable[None]], *, limit_s: float = 600.0, **options: Any) -> Call:
    """Runs the script with one call, and checks that nothing is left of it."""

    async def main() -> Call:
        async with InProcess("parrot", seed=SEED, **options) as deployment:
            await asyncio.sleep(1.1)
            call = Call(deployment)
            await script(call)
            await asyncio.sleep(0.1)
            assert call.pod.roots == {}, "forgotten"
            assert call.pod.exchange._endpoints == {}
            assert call.pod.empty.is_set()
            for shell in deployment.shells:
                assert shell.owners == {} or not shell._transport.connected, shell.stage
            assert not deployment.fatal
            return call

    return run_virtual(main(), limit_s=limit_s)


def cut(*stages: str) -> Callable[[Passage], Fate]:
    """The workers of these stages are heard no more, and hear nothing, though they are connected."""

    def fate(passage: Passage) -> Fate:
        ends = passage.sender.rstrip("0123456789"), passage.receiver.rstrip("0123456789")
        return DROP if set(stages) & set(ends) else DELIVER

    return fate


def transport_of(call: Call, stage: str) -> Any:
    return next(it for it in call.deployment.transports if it.name.rstrip("0123456789") == stage)


def fail_at(call: Call, stage: str, unit: int, code: str = "session_failed") -> None:
    """The model half of `stage` loses the session at that unit."""
    model = call.deployment.shell(stage).model
    step = model.step

    def failing(batch: Any) -> Any:
        return [
            SessionError("told to", code) if row.number == unit else result
            for (_, row), result in zip(batch, step(batch), strict=True)
        ]

    model.step = failing  # type: ignore[method-assign]


# ---------------------------------------------------------------- a session


def test_any_seed_will_do() -> None:
    """With a seed of more than 64 bits no session could be opened: no message holds such a number."""

    async def pcm(seed: int) -> bytes:
        async with InProcess("parrot", seed=seed) as deployment:
            call = Call(deployment)
            await call.started()
            await call.say()
            await call.units(24)
            call.root.request_close(None)
            return b"".join(call.client.units)

    assert run_virtual(pcm(2**64 + SEED)) == run_virtual(pcm(SEED)) != run_virtual(pcm(SEED + 1))


def test_a_session_is_answered_unit_by_unit_and_closed() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say()
        await call.units(24)
        call.root.request_close("close_1")
        assert await call.ended() == (1000, "close_requested")

    call = play(script)
    expected = reference(SAID, SEED)
    assert b"".join(call.client.units) == expected.pcm16.tobytes()
    assert call.client.text == "".join(expected.texts) != ""
    (started,) = call.got(events.SessionStarted)
    assert call.client.events[0] is started
    assert (started.client_event_id, started.session.id) == ("start_1", call.root.sid)
    assert (call.closed.reason, call.closed.client_event_id) == ("close_requested", "close_1")
    assert call.closed.usage.seconds == 1.0
    assert call.root.state is State.CLOSED
    assert call.codes() == []


def test_a_session_that_is_over_is_held_by_no_timer() -> None:
    async def script(call: Call) -> None:
        await call.started()
        call.root.append(bytes(UNIT), None)
        call.root.request_close(None)
        await call.ended()
        assert call.root._timers != []
        assert all(timer.cancelled() for timer in call.root._timers)

    play(script)


def test_rings_keep_only_what_may_be_asked_for() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say()
        await call.units(24)
        await asyncio.sleep(0.1)
        starts = {}
        for shell in call.deployment.shells:
            (owner,) = shell.owners.values()
            starts |= {dst: ring.start for dst, ring in owner.endpoint.rings.items()}
        assert starts["root"] == 24
        assert starts["codec"] == 22, (
            "the codec's state reaches one unit back, and the root had not all when it stepped"
        )
        call.root.request_close(None)
        await call.ended()

    play(script)


def test_transcripts_carry_the_times_of_their_units() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say()
        await call.units(24)
        call.root.request_close(None)
        await call.ended()

    texts = reference(SAID, SEED).texts
    spans = [(e.delta, e.start_ms, e.end_ms) for e in play(script).got(events.OutputTranscriptDelta)]
    assert spans == [(text, 80 * unit, 80 * unit + 80) for unit, text in enumerate(texts) if text]
    assert spans != []


def test_a_transcript_comes_before_the_audio_of_its_unit() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say()
        await call.units(24)
        call.root.request_close(None)
        await call.ended()

    heard = 0
    for event in play(script).client.events:
        if isinstance(event, events.OutputAudioDelta):
            heard += 1
        elif isinstance(event, events.OutputTranscriptDelta):
            assert event.start_ms == 80 * heard


def test_usage_is_told_every_15_s_of_input() -> None:
    async def script(call: Call) -> None:
        await call.started()
        for _ in range(int(32 / 0.08)):
            call.root.append(bytes(UNIT), None)
            await asyncio.sleep(0.02)
        await call.units(400)
        call.root.request_close(None)
        await call.ended()

    usage = [(event.usage.seconds, event.context_window) for event in play(script).got(events.UsageUpdated)]
    assert [seconds for seconds, _ in usage] == [USAGE_S, 2 * USAGE_S, 32.0]
    ratios = [window.usage_ratio for _, window in usage]
    assert ratios == sorted(ratios)
    assert ratios[-1] == pytest.approx(400 / 4096)


def test_the_last_unit_is_filled_up_and_answered() -> None:
    async def script(call: Call) -> None:
        await call.started()
        call.root.append(bytes(3 * UNIT + 100), None)
        call.root.request_close(None)
        assert await call.ended() == (1000, "close_requested")

    call = play(script)
    assert len(call.client.units) == 4


def test_a_session_without_input_closes_at_once() -> None:
    async def script(call: Call) -> None:
        await call.started()
        call.root.request_close(None)
        assert call.client.ended == (1000, "close_requested")
        call.root.append(bytes(UNIT), None)
        call.root.request_close(None)
        await call.ended()

    assert play(script).closed.usage.seconds == 0.0


def test_a_second_close_changes_nothing() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say(pace=100)
        call.root.request_close("close_1")
        call.root.request_close("close_2")
        await call.ended()

    call = play(script)
    assert call.closed.client_event_id == "close_1"
    assert len(call.client.units) == 24


def test_a_session_expires() -> None:
    async def script(call: Call) -> None:
        await call.started()
        began = asyncio.get_running_loop().time()
        call.deployment.bus.fate = cut("codec")
        await call.say(SAID[: 5 * 1920])
        await asyncio.sleep(1.55)
        call.deployment.bus.fate = lambda _: DELIVER
        assert await call.ended() == (1000, "expired")
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.5, abs=0.6)

    call = play(script, limits={"lifetime_s": 2.0})
    assert call.closed.reason == "expired"
    assert len(call.client.units) == 5, "what was under way is answered"


# ---------------------------------------------------------------- starting


def slow_opening(seconds: float) -> dict[str, Any]:
    return {"worker_options": {"open_ms": 1000 * seconds}}


def test_what_is_said_while_it_starts_is_answered() -> None:
    async def script(call: Call) -> None:
        call.start()
        await call.say(pace=3)
        assert not call.client.started
        await call.units(24)
        call.root.request_close(None)
        await call.ended()

    call = play(script, **slow_opening(0.9))
    assert b"".join(call.client.units) == reference(SAID, SEED).pcm16.tobytes()


def test_a_close_while_it_starts_is_kept_until_then() -> None:
    async def script(call: Call) -> None:
        call.start()
        call.root.append(SAID.tobytes(), None)
        call.root.request_close("close_1")
        assert await call.ended() == (1000, "close_requested")

    call = play(script, **slow_opening(0.6))
    assert len(call.client.units) == 24
    assert call.client.started
    assert call.closed.client_event_id == "close_1"


@pytest.mark.parametrize("workers", [{"talker": 0}, {}])
def test_a_session_that_finds_no_place_is_told_why(workers: dict[str, int]) -> None:
    code = "model_unavailable" if workers else "session_limit_reached"
    before = telemetry.REFUSED.labels(code)._value.get()

    async def main() -> Recorder:
        async with InProcess("parrot") as deployment:
            shell = deployment.shell("talker")
            shell.capacity.headroom = Headroom(0.08, clock=asyncio.get_running_loop().time, places=0)
            if workers:
                await shell.stop()
            await asyncio.sleep(1.1)
            call = Call(deployment)
            call.start()
            began = asyncio.get_running_loop().time()
            await call.ended()
            assert asyncio.get_running_loop().time() - began < 0.1
            return call.client

    client = run_virtual(main())
    assert client.ended == (1013, code)
    (error,) = client.errors
    assert (error.code, error.client_event_id) == (code, "start_1")
    assert not client.started
    assert telemetry.REFUSED.labels(code)._value.get() == before + 1


def test_an_opening_that_fails_is_an_error_of_the_session() -> None:
    async def script(call: Call) -> None:
        def open_(*_: object) -> Any:
            raise SessionError("told to")

        call.deployment.shell("llm").model.open = open_  # type: ignore[method-assign]
        call.start()
        assert await call.ended() == (1011, "session_failed")

    call = play(script)
    assert call.codes() == ["session_failed"]
    assert call.got(events.SessionClosed) == []


def test_a_bug_in_the_opening_is_an_error_of_the_session() -> None:
    """It was reported to nobody, and the client waited for ever."""

    async def script(call: Call) -> None:
        call.start()
        call.root._opening.run = lambda: 1 / 0
        assert await call.ended() == (1011, "internal_error")

    assert play(script).codes() == ["internal_error"]


def bug(*_: Any) -> Any:
    raise RuntimeError("what the client said")


BUGS: dict[str, Callable[[Call], tuple[Any, str]]] = {
    "a unit": lambda call: (call.root._teller, "unit"),
    "a look at the owners": lambda call: (call.root._takeover, "look"),
    "what is measured each second": lambda call: (call.root._meter, "sample"),
    "the end of the lifetime": lambda call: (call.root._teller, "expiring"),
    "an append": lambda call: (call.root._intake, "append"),
}


@pytest.mark.parametrize("where", BUGS)
def test_a_bug_ends_its_session_and_hurts_no_other(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It was logged, and its session went on without that unit or for ever without its owners being looked after;
    and so did all sessions that came after it in the same tick."""

    async def script(call: Call) -> None:
        other = Call(call.deployment)
        await call.started()
        await other.started()
        setattr(*BUGS[where](call), bug)
        saying = asyncio.create_task(other.say())
        for _ in range(40):
            if call.client.ended is None:
                try:
                    call.root.append(bytes(UNIT), None)
                except RuntimeError as error:  # as the edge does
                    call.root.broke(error)
            await asyncio.sleep(0.08)
        assert await call.ended() == (1000, "internal_error")
        await saying
        await other.units(24)
        other.root.request_close(None)
        await other.ended()
        assert b"".join(other.client.units) == reference(SAID, SEED).pcm16.tobytes()

    call = play(script, limits={"lifetime_s": 5.0})
    assert call.codes() == ["internal_error"]
    assert call.closed.reason == "connection_lost"
    logged = "".join(capsys.readouterr())
    assert "RuntimeError" in logged
    assert "client said" not in logged


@pytest.mark.parametrize("stage", STAGES)
def test_a_result_that_fits_no_message_ends_its_session_alone(stage: str) -> None:
    async def script(call: Call) -> None:
        other = Call(call.deployment)
        await call.started()
        await other.started()
        model = call.deployment.shell(stage).model
        step, mine = model.step, call.deployment.shell(stage).owners

        def huge(batch: Any) -> Any:
            states = {id(owner.state) for (sid, _), owner in mine.items() if sid == call.root.sid}
            return [
                dataclasses.replace(result, record=1 << 64) if id(state) in states else result
                for (state, _), result in zip(batch, step(batch), strict=True)
            ]

        model.step = huge  # type: ignore[method-assign]
        call.root.append(bytes(UNIT), None)
        await other.say()
        assert await call.ended() == (1000, "internal_error")
        await other.units(24)
        other.root.request_close(None)
        await other.ended()
        assert b"".join(other.client.units) == reference(SAID, SEED).pcm16.tobytes()

    assert play(script).codes() == ["internal_error"]


def test_what_cannot_even_be_told_ends_the_session() -> None:
    """Nor can `session.closed` be, which has the same in it."""

    async def script(call: Call) -> None:
        call.start()
        call.root._teller._session = bug
        assert await call.ended() == (1011, "internal_error")

    assert play(script).codes() == ["internal_error"]


def test_who_never_started_is_told_that_the_pod_leaves() -> None:
    async def script(call: Call) -> None:
        await call.pod.stop()
        assert await call.ended() == (1013, "server_draining")

    assert play(script).codes() == ["server_draining"]


def test_a_worker_dies_while_it_opens_and_another_takes_over() -> None:
    async def script(call: Call) -> None:
        call.start()
        await asyncio.sleep(0.1)
        chosen = call.root._opening.places["llm"].address
        shell = next(it for it in call.deployment.shells if it.address == chosen)
        shell._transport.blink(float("inf"))
        await call.client.until(lambda: call.client.started)
        assert call.root.places["llm"].address != chosen
        await call.say()
        await call.units(24)
        call.root.request_close(None)
        await call.ended()

    call = play(script, workers={"llm": 2}, **slow_opening(0.9))
    assert b"".join(call.client.units) == reference(SAID, SEED).pcm16.tobytes()


@pytest.mark.parametrize("after_s", [0.0, 0.0003, 0.001, 0.5, 0.89])
def test_a_client_that_leaves_while_it_starts_leaves_no_place_taken(after_s: float) -> None:
    async def script(call: Call) -> None:
        call.start()
        await asyncio.sleep(after_s)
        assert not call.client.started
        call.root.disconnected()
        await asyncio.sleep(2.5)

    call = play(script, **slow_opening(0.9))
    assert call.client.events == []


def test_a_client_that_leaves_before_the_start_leaves_nothing() -> None:
    async def script(call: Call) -> None:
        call.root.disconnected()

    assert play(script).client.events == []


# ---------------------------------------------------------------- suspended


def test_a_worker_that_reconnects_is_waited_for() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say(SAID[: 10 * 1920])
        call.deployment.bus.fate = cut("talker")
        await call.say(SAID[10 * 1920 : 20 * 1920])
        assert call.root.state is State.SUSPENDED
        await asyncio.sleep(PLACELESS_S - 3)
        call.deployment.bus.fate = lambda _: DELIVER
        await call.say(SAID[20 * 1920 :])
        await call.units(24)
        assert call.root.state is State.ACTIVE
        call.root.request_close(None)
        await call.ended()
        await asyncio.sleep(3)

    call = play(script)
    assert call.codes() == []
    assert b"".join(call.client.units) == reference(SAID, SEED).pcm16.tobytes()


def test_a_worker_that_stays_silent_is_given_up() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say()
        call.deployment.bus.fate = cut("talker")
        began = asyncio.get_running_loop().time()
        assert await call.ended() == (1000, "session_failed")
        assert asyncio.get_running_loop().time() - began == pytest.approx(PLACELESS_S + 0.75, abs=0.3)
        call.deployment.bus.fate = lambda _: DELIVER
        await asyncio.sleep(3)

    call = play(script)
    assert (call.codes(), call.closed.reason) == (["session_failed"], "connection_lost")


def test_a_session_waits_for_a_place_for_its_heir() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say(SAID[: 10 * 1920])
        transport_of(call, "llm").blink(float("inf"))
        await call.say(SAID[10 * 1920 :])
        await asyncio.sleep(PLACELESS_S - 5)
        assert call.root.state is State.SUSPENDED
        await call.deployment.add_worker("llm")
        await call.units(24)
        assert call.root.state is State.ACTIVE
        call.root.request_close(None)
        await call.ended()

    call = play(script)
    assert call.codes() == []
    assert b"".join(call.client.units) == reference(SAID, SEED).pcm16.tobytes()


def test_a_close_while_suspended_waits_for_what_is_under_way() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say(SAID[: 10 * 1920])
        call.deployment.bus.fate = cut("talker")
        await call.say(SAID[10 * 1920 :])
        assert call.root.state is State.SUSPENDED
        call.root.request_close("close_1")
        await asyncio.sleep(DRAIN_S - 1)
        assert call.client.ended is None
        call.deployment.bus.fate = lambda _: DELIVER
        assert await call.ended() == (1000, "close_requested")
        await asyncio.sleep(3)

    call = play(script)
    assert b"".join(call.client.units) == reference(SAID, SEED).pcm16.tobytes()


def test_a_drain_ends_in_time_whatever_is_under_way() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say(SAID[: 10 * 1920])
        call.deployment.bus.fate = cut("talker")
        await call.say(SAID[10 * 1920 :])
        began = asyncio.get_running_loop().time()
        call.root.request_close("close_1")
        assert await call.ended() == (1000, "close_requested")
        assert asyncio.get_running_loop().time() - began == pytest.approx(DRAIN_S)
        call.deployment.bus.fate = lambda _: DELIVER
        await asyncio.sleep(3)

    call = play(script)
    assert 10 <= len(call.client.units) < 24
    assert call.closed.client_event_id == "close_1"


def test_a_client_that_leaves_while_suspended_leaves_no_place_taken() -> None:
    async def script(call: Call) -> None:
        await call.started()
        call.deployment.bus.fate = cut("talker")
        await call.say()
        assert call.root.state is State.SUSPENDED
        call.root.disconnected()
        call.deployment.bus.fate = lambda _: DELIVER
        await asyncio.sleep(3)

    play(script)


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("stage", STAGES)
def test_an_owner_that_loses_the_session_ends_it(stage: str) -> None:
    async def script(call: Call) -> None:
        fail_at(call, stage, 5)
        await call.started()
        await call.say()
        assert await call.ended() == (1000, "session_failed")

    call = play(script)
    assert call.codes() == ["session_failed"]
    assert call.closed.reason == "connection_lost"
    assert len(call.client.units) == 5


def test_the_error_of_an_owner_decides_what_the_client_hears() -> None:
    async def script(call: Call) -> None:
        fail_at(call, "llm", 2, "server_draining")
        await call.started()
        await call.say()
        assert await call.ended() == (1000, "server_draining")

    assert play(script).closed.reason == "expired"


def test_a_lost_notice_of_failure_does_not_hang_the_session() -> None:
    async def script(call: Call) -> None:
        fail_at(call, "llm", 5)
        await call.started()
        call.deployment.bus.fate = lambda passage: (
            DROP if passage.subject == subjects.control(call.pod.address) else DELIVER
        )
        await call.say()
        call.deployment.bus.fate = lambda _: DELIVER
        assert await call.ended() == (1000, "session_failed")

    play(script)


def test_a_pod_that_was_cut_off_too_long_takes_its_sessions_over() -> None:
    """Its owners had given the session up; it went on sending to them for ever."""

    async def script(call: Call) -> None:
        await call.started()
        await call.say(SAID[: 10 * 1920])
        transport_of(call, "api").blink(40.0)
        await call.say(SAID[10 * 1920 :])
        await call.units(24)
        call.root.request_close(None)
        await call.ended()

    call = play(script)
    assert call.codes() == []
    assert b"".join(call.client.units) == reference(SAID, SEED).pcm16.tobytes()


def test_notices_of_failure_that_are_not_of_this_route_mean_nothing() -> None:
    async def script(call: Call) -> None:
        call.start()
        await asyncio.sleep(0.1)
        epoch = call.root._opening.places["llm"].epoch
        call.root.on_failed(m.Failed(m.WIRE, call.root.sid, epoch, "session_failed", "late"))
        await call.client.until(lambda: call.client.started)
        call.root.on_failed(m.Failed(m.WIRE, call.root.sid, (9, 9), "session_failed", "foreign"))
        await call.say()
        await call.units(24)
        call.root.request_close(None)
        assert await call.ended() == (1000, "close_requested")
        call.root.on_failed(m.Failed(m.WIRE, call.root.sid, (1, 1), "session_failed", "too late"))

    assert play(script, **slow_opening(0.5)).codes() == []


@pytest.mark.parametrize("state", [State.CONNECTING, State.STARTING, State.ACTIVE, State.CLOSING])
def test_a_pod_that_leaves_says_goodbye(state: State) -> None:
    async def script(call: Call) -> None:
        if state is not State.CONNECTING:
            call.start()
        if state in (State.ACTIVE, State.CLOSING):
            await call.client.until(lambda: call.client.started)
            call.deployment.bus.fate = cut("codec")
            await call.say(SAID[:1920])
        if state is State.CLOSING:
            call.root.request_close(None)
        assert call.root.state is state
        call.root.shut()
        call.root.shut()
        await call.ended()
        call.deployment.bus.fate = lambda _: DELIVER
        await asyncio.sleep(2.5)

    call = play(script, **slow_opening(0.3))
    assert call.codes() == ["server_draining"]
    if state in (State.CONNECTING, State.STARTING):
        assert call.client.ended == (1013, "server_draining")
        assert call.got(events.SessionClosed) == []
    else:
        assert call.client.ended == (1000, "server_draining")
        assert call.closed.reason == "expired"


# ---------------------------------------------------------------- input beyond bounds


def test_input_that_runs_ahead_is_shed_and_said_so_once_an_episode() -> None:
    async def script(call: Call) -> None:
        await call.started()
        call.deployment.bus.fate = cut("encoder")
        for _ in range(60):
            call.root.append(SAID[:1920].tobytes(), None)
        call.deployment.bus.fate = lambda _: DELIVER
        await call.units(60)
        call.root.request_close(None)
        await call.ended()

    call = play(script, limits={"input_backlog_s": 0.8})
    assert call.codes() == ["input_backlog"]
    assert len(call.client.units) == 60, "every unit is answered"


def test_input_that_is_shed_before_the_start_is_told_after_it() -> None:
    """pipecat takes every `error` before `session.started` for the end."""

    async def script(call: Call) -> None:
        call.start()
        for _ in range(60):
            call.root.append(SAID[:1920].tobytes(), None)
        await call.client.until(lambda: call.client.started)
        await call.units(60)
        call.root.request_close(None)
        await call.ended()

    call = play(script, limits={"input_backlog_s": 0.8}, **slow_opening(0.3))
    assert isinstance(call.client.events[0], events.SessionStarted)
    assert call.codes() == ["input_backlog"]


@pytest.mark.parametrize("fmt", ["audio/pcm", "audio/pcmu"])
def test_a_unit_of_another_length_ends_the_session(fmt: str) -> None:
    """It went out as it was, and all that followed was shifted."""

    async def script(call: Call) -> None:
        rate = 24_000 if fmt == "audio/pcm" else 8_000
        audio = {"format": {"type": fmt, "rate": rate}}
        call.root.start(config(call.pod, audio=audio), None)
        await call.client.until(lambda: call.client.started)
        model = call.deployment.shell("codec").model
        step, half = model.step, m.Speech.of({"pcm": np.zeros(960, np.int16)})
        model.step = lambda batch: [  # type: ignore[method-assign]
            dataclasses.replace(result, out={"root": half}) for result in step(batch)
        ]
        call.root.append(bytes(4 * UNIT), None)
        assert await call.ended() == (1000, "internal_error")

    assert play(script).codes() == ["internal_error"]


def test_a_session_that_is_far_ahead_is_not_read() -> None:
    async def script(call: Call) -> None:
        await asyncio.wait_for(call.root.room(), 1)
        await call.started()
        call.deployment.bus.fate = cut("encoder")
        for _ in range(40):
            await asyncio.wait_for(call.root.room(), 1)
            call.root.append(SAID[:1920].tobytes(), None)
        reading = asyncio.create_task(call.root.room())
        await asyncio.sleep(2)
        assert not reading.done()
        call.root.disconnected()
        await asyncio.wait_for(reading, 0.001)
        await asyncio.wait_for(call.root.room(), 0.001)
        call.deployment.bus.fate = lambda _: DELIVER
        await asyncio.sleep(3)

    play(script, limits={"input_backlog_s": 0.8})


# ---------------------------------------------------------------- the record


async def record_of(call: Call) -> SessionRecord:
    bucket = await transport_of(call, "encoder").bucket(BUCKET)
    entry = await bucket.get(call.root.sid)
    assert entry is not None
    return m.decode(entry.value, SessionRecord)


def test_the_record_is_written_at_the_start_and_at_the_end() -> None:
    async def script(call: Call) -> None:
        heard: list[str] = []
        watching = transport_of(call, "encoder")
        await watching.subscribe(subjects.everything(), lambda it: heard.append(it.subject))
        await call.started()
        await call.say(SAID[:1920])
        record = await record_of(call)
        assert (record.sid, record.model, record.state, record.seed) == (
            call.root.sid,
            "parrot",
            ACTIVE,
            SEED,
        )
        assert record.route == {
            s: [(call.root.places[s].address, call.root.places[s].epoch, 0)] for s in STAGES
        }
        assert record.root_epochs == [(1, 0, call.pod.address)]
        assert record.options == {"loop": False, "context_units": 4096}
        await call.units(1)
        call.root.request_close(None)
        await call.ended()
        await asyncio.sleep(0.1)
        record = await record_of(call)
        assert (record.state, record.units, record.options) == (CLOSED, 1, {})
        told = [subjects.event(what, call.root.sid) for what in ("opened", "closed")]
        assert [subject for subject in heard if subject in told] == told

    play(script)


def test_a_session_goes_on_without_a_store() -> None:
    counter = telemetry.STORE_ERRORS.labels(BUCKET)
    before = counter._value.get()

    async def script(call: Call) -> None:
        call.deployment.bus.store.up = False
        await call.started()
        await call.say()
        await call.units(24)
        assert counter._value.get() >= before + 2
        call.root.request_close(None)
        assert await call.ended() == (1000, "close_requested")
        call.deployment.bus.store.up = True
        await asyncio.sleep(2)
        assert (await record_of(call)).state == CLOSED

    call = play(script)
    assert call.codes() == []
    assert b"".join(call.client.units) == reference(SAID, SEED).pcm16.tobytes()


def test_a_root_that_finds_a_higher_root_epoch_ends_and_leaves_the_record_alone() -> None:
    async def script(call: Call) -> None:
        await call.started()
        await call.say(SAID[:1920])
        bucket = await transport_of(call, "encoder").bucket(BUCKET)
        theirs = SessionRecord(sid=call.root.sid, root_epochs=[(2, 1, "api.other")])
        await bucket.put(call.root.sid, m.encode(theirs))
        call.root._archive.wrote("moved", call.root.places)
        await call.ended()
        await asyncio.sleep(5)
        assert await record_of(call) == theirs

    assert play(script).codes() == ["session_failed"]


# ---------------------------------------------------------------- anything


async def anything(rng: random.Random) -> None:
    async with InProcess(
        "parrot",
        seed=SEED,
        workers=dict.fromkeys(STAGES, 2),
        worker_options={"open_ms": rng.choice([0.0, 300.0])},
        limits={"lifetime_s": rng.choice([2.0, 60.0]), "input_backlog_s": rng.choice([0.4, 5.0])},
    ) as deployment:
        await asyncio.sleep(1.1)
        calls = [Call(deployment) for _ in range(4)]
        closed: set[Call] = set()
        gone: set[Call] = set()
        lost = False
        for _ in range(40):
            call = rng.choice(calls)
            act = rng.choice(
                ["start", "say", "say", "say", "close", "leave", "fail", "cut", "mend", "shut", "wait"]
            )
            begun = call.root.state is not State.CONNECTING
            if call in gone:
                continue
            match act:
                case "start" if not begun:
                    call.start()
                case "say" if begun and call not in closed:
                    call.root.append(bytes(UNIT * rng.randrange(1, 8)), None)
                case "close" if begun and call not in closed and rng.random() < 0.5:
                    call.root.request_close(None)
                    closed.add(call)
                case "leave" if rng.random() < 0.3:
                    call.root.disconnected()
                    gone.add(call)
                case "fail" if begun and rng.random() < 0.3:
                    epoch = (1, rng.randrange(6))
                    call.root.on_failed(m.Failed(m.WIRE, call.root.sid, epoch, "session_failed", "told to"))
                case "cut" if rng.random() < 0.4:
                    deployment.bus.fate = cut(rng.choice(STAGES))
                    lost = True
                case "mend":
                    deployment.bus.fate = lambda _: DELIVER
                case "shut" if rng.random() < 0.1:
                    call.root.shut()
                case "wait":
                    await asyncio.sleep(rng.choice([0.5, 2.0]))
            await asyncio.sleep(rng.choice([0.0, 0.0003, 0.08]))
        deployment.bus.fate = lambda _: DELIVER
        for call in calls:
            if call not in gone:
                if rng.random() < 0.5 and call.root.state is not State.CONNECTING and call not in closed:
                    call.root.request_close(None)
                    await call.client.until(lambda call=call: call.client.ended is not None)
                call.root.disconnected()
        # Closes that were lost are made good by `mine?`.
        await asyncio.sleep(4.0 if lost else 0.1)
        assert {shell.address: shell.owners for shell in deployment.shells if shell.owners} == {}
        assert deployment.pod.roots == {}
        assert not deployment.fatal
        for call in calls:
            assert len(call.got(events.SessionClosed)) <= 1
            assert call.root.state is State.CLOSED


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_whatever_happens_nothing_raises_and_nothing_is_left(seed: int) -> None:
    run_virtual(anything(random.Random(seed)), limit_s=300.0)
