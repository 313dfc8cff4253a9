"""Both bounds of a session with a whole deployment behind it, in virtual time: input that runs ahead of the model, and a
reader that does not keep up."""

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from duologue import telemetry
from duologue.audio.formats import PCM_24K, PCMU, Format
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import Message
from duologue.inprocess import InProcess
from duologue.testing.signals import bursts
from duologue.virtual import run_virtual
from duologue_api.house import CLOSE
from duologue_api.live.outbound import Outbound
from duologue_api.live.settings import EdgeSettings
from edge_audio import SEED, UNIT_S
from recorder import Recorder, config

pytestmark = pytest.mark.unit

BACKLOG_S = 1.0
STEP_MS = 40.0
"""Of every stage: the model is twice as fast as real time."""


def deployment(**options: Any) -> InProcess:
    limits = {"input_backlog_s": BACKLOG_S, **options}
    worker = {"batch_ms": STEP_MS, "open_ms": limits.pop("open_ms", 0.0)}
    return InProcess("parrot", seed=SEED, worker_options=worker, limits=limits)


def speech(form: Format, seconds: float) -> bytes:
    return form.encode(bursts([(seconds, True)], 5, form.rate))


# ---------------------------------------------------------------- input


def flags_of(running: InProcess) -> dict[int, int]:
    """Flags of the units that reached the encoder, as they come."""
    found: dict[int, int] = {}

    def watch(message: Message) -> None:
        if subjects.is_inbox(message.subject):
            for envelope in m.decode(message.data, m.Bundle).units:
                if envelope.dst == "encoder":
                    found[envelope.unit] = envelope.flags

    running.bus.observe(watch)
    return found


def errors_of(client: Recorder) -> list[str]:
    return [error.code for error in client.errors]


@pytest.mark.parametrize("form", [PCM_24K, PCMU], ids=lambda form: form.name)
def test_the_oldest_input_is_dropped_and_told_once_an_episode(form: Format) -> None:
    async def session() -> None:
        async with deployment() as running:
            flags = flags_of(running)
            client = Recorder()
            root = running.pod.connect(client)
            root.start(config(running.pod, audio={"format": {"type": form.type, "rate": form.rate}}), None)
            await client.until(lambda: client.started)
            for episode in (1, 2):
                for _ in range(6):
                    root.append(speech(form, 1.0), None)
                await asyncio.sleep(30)
                assert errors_of(client) == ["input_backlog"] * episode
            assert f"{BACKLOG_S:g} s ahead" in client.errors[0].message
            root.append(speech(form, 1.0), None)
            await asyncio.sleep(3)
            root.request_close(None)
            await client.until(lambda: client.ended)
            root.disconnected()
        shed = [unit for unit, flag in flags.items() if flag == m.SHED]
        assert errors_of(client) == ["input_backlog"] * 2
        assert client.ended == (1000, "close_requested")
        # Of each 6 s up to 2 s go under way at once and 1 s waits; the rest is shed.
        assert 2 * 3 / UNIT_S - 2 <= len(shed) <= 2 * 5 / UNIT_S
        assert len(b"".join(client.units)) == 13 * form.bytes_per_s + 40 * form.bytes_per_s // 1000, (
            "n units in, n units out, the last one filled up"
        )
        assert sorted(flags) == list(range(163))

    run_virtual(session())


def test_or_the_session_is_closed() -> None:
    async def session() -> Recorder:
        async with deployment(input_backlog_policy=CLOSE) as running:
            client = Recorder()
            root = running.pod.connect(client)
            root.start(config(running.pod), None)
            await client.until(lambda: client.started)
            for _ in range(30):
                root.append(speech(PCM_24K, 0.1), None)
            await asyncio.sleep(3)
            assert client.ended is None, "so much may wait"
            root.append(speech(PCM_24K, 60.0), None)
            assert client.ended == (1000, "input_backlog")
            root.append(speech(PCM_24K, 1.0), None)
            root.request_close(None)
            root.disconnected()
            await running.pod.empty.wait()
            return client

    client = run_virtual(session())
    *_, error, closed = client.events
    assert (error.error.code, errors_of(client)) == ("input_backlog", ["input_backlog"])
    assert f"{BACKLOG_S:g} s ahead" in error.error.message
    assert (closed.reason, closed.usage.seconds) == ("connection_lost", 63.0)


def test_before_the_start_it_is_a_refusal_to_be_tried_again() -> None:
    async def session() -> Recorder:
        async with deployment(input_backlog_policy=CLOSE, open_ms=5000.0) as running:
            client = Recorder()
            root = running.pod.connect(client)
            root.start(config(running.pod), "start_1")
            root.append(speech(PCM_24K, 2.0), None)
            root.disconnected()
            await running.pod.empty.wait()
            return client

    refused = telemetry.REFUSED.labels("input_backlog")._value
    before = refused.get()
    client = run_virtual(session())
    assert [type(event).__name__ for event in client.events] == ["ErrorEvent"]
    assert errors_of(client) == ["input_backlog"]
    assert client.events[0].error.client_event_id == "start_1"
    assert client.ended == (1013, "input_backlog")
    assert refused.get() == before + 1


def test_what_waits_within_the_bound_is_answered_under_either_policy() -> None:
    async def session(**limits: Any) -> Recorder:
        async with deployment(**limits) as running:
            client = Recorder()
            root = running.pod.connect(client)
            root.start(config(running.pod), None)
            root.append(speech(PCM_24K, 0.95), None)
            await client.until(lambda: client.started)
            root.request_close(None)
            await client.until(lambda: client.ended)
            root.disconnected()
            return client

    for limits in ({}, {"input_backlog_policy": CLOSE}):
        client = run_virtual(session(**limits))
        assert (errors_of(client), len(client.units)) == ([], 12)


# ---------------------------------------------------------------- output

EDGE = EdgeSettings(output_backlog_s=2.0, behind_limit_s=30.0)


class Reader:
    """The other end of an `Outbound`: reads a frame after another while it is `open`, and rests after each."""

    def __init__(self, out: Outbound) -> None:
        self.out = out
        self.frames: list[dict[str, Any]] = []
        self.rest_s = 0.0
        self.open = asyncio.Event()
        self.open.set()
        self.moved = asyncio.Event()

    async def read(self) -> None:
        while (text := await self.out.next()) is not None:
            self.frames.append(json.loads(text))
            self.moved.set()
            if self.rest_s:
                await asyncio.sleep(self.rest_s)
            await self.open.wait()

    def of(self, name: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] == name]

    @property
    def audio(self) -> bytes:
        return b"".join(base64.b64decode(frame["delta"]) for frame in self.of("session.output_audio.delta"))

    @property
    def dropped_ms(self) -> list[int]:
        messages = [frame["error"]["message"] for frame in self.of("error")]
        return [int(found[1]) for message in messages if (found := re.search(r"(\d+) ms", message))]


def reading(
    form: Format, script: Callable[[Reader, Callable[[float], Awaitable[None]]], Awaitable[None]]
) -> Reader:
    """A session whose output goes through the real queue to a `Reader`; the script gets it and a function that speaks
    for so many seconds."""

    async def session() -> Reader:
        loop = asyncio.get_running_loop()
        async with InProcess("parrot", seed=SEED) as running:
            out = Outbound(EDGE, loop.time, form.bytes_per_s)
            reader = Reader(out)
            root = running.pod.connect(out)
            root.start(config(running.pod, audio={"format": {"type": form.type, "rate": form.rate}}), None)
            task = asyncio.create_task(reader.read())
            while not reader.frames:
                reader.moved.clear()
                await reader.moved.wait()

            async def speak(seconds: float) -> None:
                for _ in range(round(seconds * 10)):
                    if out.ending is not None:
                        return
                    root.append(bytes(form.bytes_per_s // 10), None)
                    await asyncio.sleep(0.1)

            await script(reader, speak)
            if out.ending is None:
                root.request_close(None)
            await out.ended()
            root.disconnected()
            reader.rest_s = 0.0
            await task
            return reader

    return run_virtual(session())


@pytest.mark.parametrize("form", [PCM_24K, PCMU], ids=lambda form: form.name)
def test_a_reader_that_pauses_learns_each_time_what_it_missed(form: Format) -> None:
    async def script(reader: Reader, speak: Callable[[float], Awaitable[None]]) -> None:
        for _ in range(2):
            reader.open.clear()
            await speak(8.0)
            reader.open.set()
            await speak(3.0)

    reader = reading(form, script)
    assert reader.out.ending == (1000, "close_requested")
    assert [frame["error"]["code"] for frame in reader.of("error")] == ["output_backlog"] * 2
    assert all(ms == pytest.approx(6000, abs=300) for ms in reader.dropped_ms)
    heard_ms = 1000 * len(reader.audio) / form.bytes_per_s
    assert heard_ms + sum(reader.dropped_ms) == pytest.approx(22_000, abs=2), "all is heard or told of"


def test_a_reader_that_stays_behind_is_closed_with_a_word() -> None:
    times: list[float] = []

    async def script(reader: Reader, speak: Callable[[float], Awaitable[None]]) -> None:
        began = asyncio.get_running_loop().time()
        reader.rest_s = 2 * UNIT_S
        await speak(60.0)
        times.append(asyncio.get_running_loop().time() - began)

    reader = reading(PCM_24K, script)
    assert reader.out.ending == (1013, "output_backlog")
    # At half the pace 2 s have gathered after 4 s; then it has 30 s.
    assert times == [pytest.approx(34, abs=1)]
    last = reader.frames[-1]
    assert (last["type"], last["error"]["code"]) == ("error", "output_backlog")
    assert len(reader.of("error")) == 1
    heard_ms = len(reader.audio) / 48
    assert heard_ms + sum(reader.dropped_ms) == pytest.approx(1000 * times[0], abs=200)
