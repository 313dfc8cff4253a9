"""Commands in mid-session and what a session says by itself: muting, `session.update`, usage, its lifetime."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from duologue.audio.formats import PCM_24K, PCMA, PCMU, Format
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import Message
from duologue.inprocess import InProcess
from duologue.testing.signals import bursts
from duologue.virtual import run_virtual
from duologue_api.intake import CONTROLS, MAX_CONTROLS
from duologue_api.live import events
from duologue_api.live.config import update
from duologue_api.live.refused import Refused
from duologue_api.teller import MAX_EARLY
from edge_audio import SEED, answer
from recorder import Recorder, config

pytestmark = pytest.mark.unit

RESPONSES = {"type": "responses", "responses": {"model": "m", "instructions": "i"}}


class Talk:
    """A session in virtual time, and what the bus carried of it."""

    def __init__(
        self, deployment: InProcess, form: Format = PCM_24K, voice: str | None = None, **session: Any
    ) -> None:
        self.form = form
        self.client = Recorder()
        self.controls: dict[int, Any] = {}
        """By unit, as the encoder got them."""
        self.told: list[tuple[str, dict[str, Any]]] = []
        deployment.bus.observe(self._watch)
        self.root: Any = deployment.pod.connect(self.client)
        audio = {"format": {"type": form.type, "rate": form.rate}, "output": {"voice": voice}}
        self.config = config(deployment.pod, audio=audio, **session)
        self.root.start(self.config, "start")

    def _watch(self, message: Message) -> None:
        if subjects.is_inbox(message.subject):
            for envelope in m.decode(message.data, m.Bundle).units:
                if envelope.dst == "encoder" and CONTROLS in envelope.records:
                    self.controls[envelope.unit] = envelope.records[CONTROLS]
        elif message.subject.startswith(subjects.event("x", "y").removesuffix("x.y")):
            event = m.decode(message.data, m.Event)
            self.told.append((event.kind, event.detail))

    async def started(self) -> None:
        await self.client.until(lambda: self.client.started)

    async def say(self, audio: bytes) -> None:
        """At real time."""
        step = self.form.bytes_per_s // 10
        for at in range(0, len(audio), step):
            chunk = audio[at : at + step]
            self.root.append(chunk, None)
            await asyncio.sleep(len(chunk) / self.form.bytes_per_s)

    async def end(self) -> None:
        self.root.request_close("close")
        await self.client.until(lambda: self.client.ended)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.client.events if isinstance(event, kind)]

    @property
    def acks(self) -> list[Any]:
        """Of muting and unmuting."""
        kinds = (events.InputAudioMuted, events.InputAudioUnmuted)
        return [event for event in self.client.events if isinstance(event, kinds)]

    @property
    def names(self) -> list[str]:
        """Of all events but audio and text."""
        noise = (events.OutputAudioDelta, events.OutputTranscriptDelta)
        return [type(event).__name__ for event in self.client.events if not isinstance(event, noise)]


def talk(
    test: Callable[[Talk], Awaitable[None]], form: Format = PCM_24K, session: Any = None, **limits: Any
) -> Talk:
    async def run() -> Talk:
        async with InProcess("parrot", seed=SEED, limits=limits) as deployment:
            session_ = Talk(deployment, form, **(session or {}))
            await test(session_)
            session_.root.disconnected()
            return session_

    return run_virtual(run())


# ---------------------------------------------------------------- muting


@pytest.mark.parametrize("form", [PCM_24K, PCMU, PCMA], ids=lambda form: form.name)
def test_muted_input_is_silence_from_the_very_sample(form: Format) -> None:
    pcm = bursts([(0.2, False), (0.9, True), (0.8, False), (0.7, True), (1.0, False)], 3, form.rate)
    data, width = form.encode(pcm), form.sample_bytes
    unit = form.rate * 8 // 100
    first, last = 6 * unit + 77, 11 * unit + 3

    async def test(session: Talk) -> None:
        await session.say(data[: first * width])
        session.root.mute(True, "m1")
        await session.say(data[first * width : last * width])
        session.root.mute(False, None)
        await session.say(data[last * width :])
        await session.end()

    session = talk(test, form)
    heard = form.decode(data).copy()
    heard[first:last] = 0
    assert b"".join(session.client.units) == answer(form, heard)
    assert answer(form, heard) != answer(form, form.decode(data))
    [muted], [unmuted] = session.of(events.InputAudioMuted), session.of(events.InputAudioUnmuted)
    assert (muted.client_event_id, unmuted.client_event_id) == ("m1", None)
    assert session.controls == {6: [["muted", first, "m1"]], 11: [["unmuted", last, None]]}
    assert [told for told in session.told if "muted" in told[0]] == [
        ("muted", {"sample": first, "unit": 6}),
        ("unmuted", {"sample": last, "unit": 11}),
    ]
    [closed] = session.of(events.SessionClosed)
    assert closed.usage.seconds == len(pcm) // form.rate, "the session clock goes on"


def test_muting_what_is_muted_is_answered_and_changes_nothing() -> None:
    async def test(session: Talk) -> None:
        for number, on in enumerate((False, True, True, False, False)):
            session.root.mute(on, f"e{number}")
        await session.say(bytes(4800))
        await session.end()

    session = talk(test)
    acks = session.acks
    kinds = [events.InputAudioUnmuted, events.InputAudioMuted]
    assert [(type(ack), ack.client_event_id) for ack in acks] == [
        (kinds[on], f"e{number}") for number, on in enumerate((0, 1, 1, 0, 0))
    ]
    assert session.controls == {0: [["muted", 0, "e1"], ["unmuted", 0, "e3"]]}


def test_changes_of_muting_within_a_unit_are_bounded() -> None:
    async def test(session: Talk) -> None:
        for number in range(MAX_CONTROLS):
            session.root.mute(number % 2 == 0, None)
        with pytest.raises(Refused) as refused:
            session.root.mute(True, "one more")
        assert (refused.value.code, refused.value.event_id) == ("invalid_event", "one more")
        await session.say(bytes(3840))
        session.root.mute(True, None)
        await session.say(bytes(3840))
        await session.end()

    session = talk(test)
    assert [len(controls) for controls in session.controls.values()] == [MAX_CONTROLS, 1]


def test_answers_wait_for_the_start_and_are_bounded() -> None:
    async def test(session: Talk) -> None:
        session.root.update(update(session.config, {"triggers": []}), "u")
        for number in range(MAX_EARLY - 1):
            session.root.mute(True, f"m{number}")
        for command in (
            lambda: session.root.mute(False, "late"),
            lambda: session.root.update(session.config, "late"),
        ):
            with pytest.raises(Refused) as refused:
                command()
            assert (refused.value.code, refused.value.event_id) == ("invalid_event", "late")
        assert session.client.events == []
        await session.started()
        session.root.mute(False, "now")
        await session.end()

    session = talk(test)
    assert session.names == [
        "SessionStarted",
        "SessionUpdated",
        *["InputAudioMuted"] * (MAX_EARLY - 1),
        "InputAudioUnmuted",
        "UsageUpdated",
        "SessionClosed",
    ]


def test_nothing_is_said_after_the_end() -> None:
    async def test(session: Talk) -> None:
        await session.started()
        await session.end()
        session.root.mute(True, "late")
        session.root.update(session.config, "late")

    assert talk(test).names == ["SessionStarted", "UsageUpdated", "SessionClosed"]


# ---------------------------------------------------------------- session.update


def test_an_update_is_echoed_from_then_on() -> None:
    async def test(session: Talk) -> None:
        await session.started()
        changed = update(session.config, {"delegation": {"responses": {"tools": [{"type": "web_search"}]}}})
        session.root.update(changed, "u1")
        await session.end()

    session = talk(test, session={"delegation": RESPONSES})
    assert session.names == [
        "SessionStarted",
        "Info",
        "SessionUpdated",
        "Info",
        "UsageUpdated",
        "SessionClosed",
    ]
    [started], [updated], [closed] = (
        session.of(kind) for kind in (events.SessionStarted, events.SessionUpdated, events.SessionClosed)
    )
    assert started.session.delegation == RESPONSES
    assert updated.client_event_id == "u1"
    assert updated.session.delegation["responses"] == {
        **RESPONSES["responses"],  # type: ignore[dict-item]
        "tools": [{"type": "web_search"}],
    }
    assert closed.session == updated.session
    assert [(info.code, info.client_event_id) for info in session.of(events.Info)] == [
        ("unsupported_delegation", None),
        ("unsupported_delegation", "u1"),
    ]


# ---------------------------------------------------------------- by itself


def test_usage_is_told_every_15_s_of_input_and_at_the_close() -> None:
    async def test(session: Talk) -> None:
        await session.started()
        await session.say(bytes(48_000 * 22))
        await asyncio.sleep(20)  # no input: the session clock stands still
        await session.say(bytes(48_000 * 30 + 24_000))
        await session.end()

    session = talk(test)
    usages = session.of(events.UsageUpdated)
    assert [usage.usage.seconds for usage in usages] == [15.0, 30.0, 45.0, 52.0]
    ratios = [usage.context_window.usage_ratio for usage in usages]
    assert ratios == sorted(ratios)
    assert 0 < ratios[0] < 1
    [closed] = session.of(events.SessionClosed)
    assert closed.usage.seconds == 52.0


@pytest.mark.parametrize(("lifetime_s", "told_s"), [(10.0, 5.0), (120.0, 60.0), (130.0, 70.0), (1.0, 0.5)])
def test_a_session_is_told_of_its_end(lifetime_s: float, told_s: float) -> None:
    times: list[float] = []

    async def test(session: Talk) -> None:
        loop = asyncio.get_running_loop()
        await session.started()
        began = loop.time()
        await session.client.until(lambda: session.of(events.Info))
        times.append(loop.time() - began)
        await session.say(bytes(4800))
        await session.client.until(lambda: session.client.ended)
        times.append(loop.time() - began)

    session = talk(test, lifetime_s=lifetime_s)
    assert times == pytest.approx([told_s, lifetime_s], abs=0.5 if lifetime_s == 1.0 else 0.01)
    assert session.names == ["SessionStarted", "Info", "UsageUpdated", "SessionClosed"]
    [info], [closed] = session.of(events.Info), session.of(events.SessionClosed)
    assert info.code == "session_expiring"
    assert f" {lifetime_s - told_s:g} s" in info.message
    assert (closed.reason, session.client.ended) == ("expired", (1000, "expired"))
    assert len(b"".join(session.client.units)) == 2 * 3840, "all input is answered"


@pytest.mark.parametrize(
    ("delegation", "codes"),
    [
        ({"type": "client"}, ["voice_mapped"]),
        (RESPONSES, ["voice_mapped", "unsupported_delegation"]),
        (
            {"type": "decisions", "decisions": {"model": "m", "questions": []}},
            ["voice_mapped", "unsupported_delegation"],
        ),
    ],
    ids=["client", "responses", "decisions"],
)
def test_any_delegation_and_built_in_voice_is_taken_and_said(delegation: Any, codes: list[str]) -> None:
    async def test(session: Talk) -> None:
        await session.started()
        await session.end()

    session = talk(test, session={"delegation": delegation, "voice": "marin"})
    [started] = session.of(events.SessionStarted)
    assert started.session.delegation == delegation
    assert started.session.audio.output.voice == "parrot"
    assert [info.code for info in session.of(events.Info)] == codes
