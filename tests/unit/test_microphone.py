"""A conversation by microphone: the device's seam, the conversation, the command."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from duologue.audio.formats import PCM_16K, PCM_24K, PCMU, Format
from duologue.cli import main, microphone, talk
from duologue.client import AudioDelta, Closed, ErrorEvent, Event, Model, TranscriptDelta
from duologue.client.converse import CLOSE_S, converse
from duologue.client.live import BadServer, ConnectionLost
from duologue.client.sound import BACKLOG_S, NoSound, Sound, sounddevice
from duologue.client.talk import Stalled
from duologue.virtual import run_virtual
from sound_device import Device

pytestmark = pytest.mark.unit

BLOCK = 480


def tone(number: int, size: int = BLOCK) -> Any:
    return np.full(size, number, np.int16)


# ---------------------------------------------------------------- the device


async def _take(sound: Sound, count: int) -> list[int]:
    blocks = sound.heard()
    return [int((await anext(blocks))[0]) for _ in range(count)]


def with_sound(scenario: Callable[[Device, Sound], Any], device: Device | None = None) -> Device:
    device = device or Device()

    async def run() -> None:
        with Sound(24_000, BLOCK, device) as sound:
            await scenario(device, sound)

    asyncio.run(run())
    return device


def test_what_is_heard_comes_in_order_and_what_is_played_too() -> None:
    async def scenario(device: Device, sound: Sound) -> None:
        assert not device.hear(tone(1)).any(), "nothing to play is silence"
        sound.play(tone(7, 700))
        sound.play(tone(8, 300))
        assert device.hear(tone(2)).tolist() == [7] * 480
        assert device.hear(tone(3)).tolist() == [7] * 220 + [8] * 260
        assert device.hear(tone(4)).tolist() == [8] * 40 + [0] * 440
        assert await _take(sound, 4) == [1, 2, 3, 4]

    device = with_sound(scenario)
    assert device.opened == {"samplerate": 24_000, "blocksize": BLOCK, "channels": 1, "dtype": "int16"}
    assert device.state == "stopped, closed"


def test_a_second_that_nobody_took_is_all_that_is_kept() -> None:
    async def scenario(device: Device, sound: Sound) -> None:
        for number in range(60):
            device.hear(tone(number))
        await asyncio.sleep(0)
        assert await _take(sound, 50) == list(range(10, 60))

    with_sound(scenario)


def test_a_delay_is_made_good_in_silence() -> None:
    async def scenario(device: Device, sound: Sound) -> None:
        for _ in range(4):
            sound.play(tone(5, 1920))
        sound.play(np.zeros(1920, np.int16))
        sound.play(tone(6, 1920))
        played = np.concatenate([device.hear(tone(0)) for _ in range(21)])
        assert played.tolist() == [5] * 4 * 1920 + [6] * 1920 + [0] * 480
        sound.play(np.zeros(480, np.int16))
        sound.play(tone(7))
        assert not device.hear(tone(0)).any(), "a short wait is left as it is"
        assert device.hear(tone(0)).all()

    with_sound(scenario)


def test_what_waits_to_be_played_is_bounded() -> None:
    async def scenario(device: Device, sound: Sound) -> None:
        for number in range(1, 11):
            sound.play(tone(number, 12_000))
        first = device.hear(tone(0))
        assert first.tolist() == [7] * BLOCK, f"the last {BACKLOG_S} s"

    with_sound(scenario)


def test_no_device() -> None:
    with pytest.raises(NoSound, match="24000 Hz: Error querying device -1"):
        with_sound(lambda device, sound: None, Device(refuses="Error querying device -1"))


def test_no_package_and_no_library() -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    def without_library(name: str) -> Any:
        raise OSError("PortAudio library not found")

    with pytest.raises(NoSound, match=r"pip install 'duologue\[mic\]'"):
        sounddevice(missing)
    with pytest.raises(NoSound, match=r"PortAudio library not found .*libportaudio2"):
        sounddevice(without_library)


# ---------------------------------------------------------------- the conversation


class Ears:
    def __init__(self, blocks: int = 10_000) -> None:
        self.played: list[int] = []
        self._blocks = blocks

    async def heard(self) -> AsyncIterator[Any]:
        for number in range(self._blocks):
            await asyncio.sleep(0.02)
            yield tone(number)
        await asyncio.Event().wait()

    def play(self, pcm16: Any) -> None:
        self.played.append(int(pcm16[0]))


class Server:
    """A session that sends each append back, and ends when it is asked to."""

    session_id, model = "live_1", "echo"

    def __init__(self, form: Format = PCM_24K, ends: bool = True, lost_at: int = -1) -> None:
        self.format = form
        self.appended: list[bytes] = []
        self._ends, self._lost_at = ends, lost_at
        self._events: asyncio.Queue[Event | Exception] = asyncio.Queue(10_000)

    async def append(self, audio: bytes) -> None:
        self.appended.append(audio)
        if len(self.appended) == self._lost_at:
            self.emit(ConnectionLost(1011, "gone"))
            raise ConnectionLost(None, "")
        self.emit(AudioDelta({"type": "a"}, audio))

    def emit(self, event: Event | Exception) -> None:
        self._events.put_nowait(event)

    async def finish(self) -> None:
        if self._ends:
            self.emit(Closed({"type": "c"}, "close_requested", 1.0))

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            yield event


def held(server: Server, ears: Ears, stop_s: float | None, before: Callable[[], None] | None = None) -> Any:
    seen: list[Event] = []

    async def run() -> Closed:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        if stop_s is not None:
            loop.call_later(stop_s, stop.set)
        if before is not None:
            loop.call_later(0.5, before)
        return await converse(server, ears, stop, seen.append)

    return run_virtual(run()), seen


@pytest.mark.parametrize("form", [PCM_24K, PCM_16K, PCMU])
def test_it_goes_on_until_it_is_stopped(form: Format) -> None:
    server, ears = Server(form), Ears()
    closed, seen = held(server, ears, 2.01)
    assert closed.reason == "close_requested"
    assert len(server.appended) == len(ears.played) == 100
    assert server.appended[7] == form.encode(tone(7))
    assert len(seen) == 101


def test_the_server_may_end_it() -> None:
    server = Server()
    closed, _ = held(server, Ears(), None, lambda: server.emit(Closed({"type": "c"}, "expired", 1.0)))
    assert closed.reason == "expired"


def test_a_lost_connection_is_told_as_the_receiver_knows_it() -> None:
    with pytest.raises(ConnectionLost, match="gone"):
        held(Server(lost_at=5), Ears(), None)


def test_a_server_that_does_not_end_it() -> None:
    with pytest.raises(Stalled, match=f"within {CLOSE_S:g} s"):
        held(Server(ends=False), Ears(), 1.0)


def test_audio_that_is_none() -> None:
    server = Server()
    with pytest.raises(BadServer, match="3 bytes"):
        held(server, Ears(blocks=0), None, lambda: server.emit(AudioDelta({"type": "a"}, b"abc")))


# ---------------------------------------------------------------- the command


def part(text: str, start_ms: int, heard: bool = False) -> TranscriptDelta:
    return TranscriptDelta({"type": "t"}, text, start_ms, start_ms + 80, heard)


def test_both_transcripts_as_a_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    show = microphone.Transcript(Console())
    for event in (
        part("what is seven plus five", 1000, heard=True),
        part(" Seven", 3000),
        part(" plus", 3300),
        part(" wait", 3350, heard=True),
        ErrorEvent({"type": "error"}, "input_backlog", "dropped"),
        part(" [all]", 9000),
        part(" right", 12_000),
    ):
        show.event(event)
    show.end()
    show.end()
    assert capsys.readouterr().out.splitlines() == [
        "  you: what is seven plus five",
        "model: Seven plus",
        "  you: wait",
        "error: dropped (input_backlog)",
        "model: [all]",
        "model: right",
    ]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Talks to an echo that ends once Ctrl-C is pressed, which it is after the third block."""
    found, server = Device(), Server()

    @asynccontextmanager
    async def connect(url: str, **options: Any) -> AsyncIterator[Server]:
        found.opened["session"] = options
        speaking = asyncio.create_task(speak())
        yield server
        speaking.cancel()

    async def speak() -> None:
        for number in range(3):
            found.hear(tone(number + 1))
            await asyncio.sleep(0.01)
        server.emit(part("hello", 0))
        await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(talk, "models", lambda url, api_key: (Model("echo", 0.08),))
    monkeypatch.setattr(microphone, "sounddevice", lambda: found)
    monkeypatch.setattr(microphone, "LiveClient", SimpleNamespace(connect=connect))
    return found


def test_talking_until_it_is_interrupted(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["talk", "--mic", "--rate", "16000", "--instructions", "be brief"]) == 0
    out = capsys.readouterr().out
    assert "Talk to echo" in out
    assert "model: hello\n" in out
    assert device.state == "stopped, closed"
    assert device.opened["blocksize"] == 320
    assert device.opened["session"]["form"] == PCM_16K
    assert device.opened["session"]["instructions"] == "be brief"
    assert [block.any() for block in device.played] == [False, True, True], "it hears what it said"


@pytest.mark.parametrize("more", [["a.wav"], ["--out", "b.wav"], ["--json"]])
def test_what_a_microphone_does_not_go_with(
    device: Device, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["talk", "--mic", *more]) == 2
    assert "--mic goes with" in capsys.readouterr().err
    assert device.state == "closed"


def test_neither_a_recording_nor_a_microphone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["talk"]) == 2
    assert "Missing argument 'FILE.wav', or --mic" in capsys.readouterr().err


def test_a_machine_without_sound(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none() -> Any:
        raise NoSound("PortAudio library not found")

    monkeypatch.setattr(microphone, "sounddevice", none)
    assert main(["talk", "--mic"]) == 1
    assert capsys.readouterr().err == "duologue: PortAudio library not found\n"
    with contextlib.suppress(NotImplementedError):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_device_that_can_not_be_opened(
    device: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(microphone, "sounddevice", lambda: Device(refuses="Invalid sample rate"))
    assert main(["talk", "--mic"]) == 1
    assert "no microphone and loudspeaker for 24000 Hz: Invalid sample rate" in capsys.readouterr().err
