"""LiveKit's own client at a Live server; runs in the environment `livekit`, and prints one JSON object a line.

    livekit_driver.py talk BASE_URL RECORDING.wav      a session as `AgentSession` holds it, driven by hand
    livekit_driver.py agent BASE_URL RECORDING.wav     a whole `AgentSession` with an agent
    livekit_driver.py refused BASE_URL                 a session that the server has no place for

`talk` says {"started": ID} when the session has started.  `talk` closes it, and `refused` begins, once a line comes on
standard input.  The last line tells what happened.  Recordings: 24 kHz mono int16.
"""

import asyncio
import base64
import json
import sys
import time
import wave
from collections.abc import AsyncIterator, Callable
from typing import Any

from livekit import rtc
from livekit.agents import Agent, AgentSession, llm, utils
from livekit.agents.voice import io
from livekit.plugins.openai.realtime import GPTLiveModel

RATE, FRAME = 24_000, 1_200
GIVE_UP_S = 60.0


class Watch:
    """Everything that the server sends and the session reports."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.sent: list[str] = []
        self.samples = 0
        self.errors: list[bool] = []
        """For each error that the session reports, whether LiveKit takes it for recoverable."""
        self.reconnects = 0
        self._changed = asyncio.Event()

    def attach(self, session: Any) -> None:
        session.on("openai_server_event_received", self._on_server)
        session.on("openai_client_event_queued", lambda event: self.sent.append(event["type"]))
        session.on("error", self._on_error)
        session.on("session_reconnected", self._on_reconnected)

    def _on_server(self, event: dict[str, Any]) -> None:
        if event["type"] == "session.output_audio.delta":
            self.samples += len(base64.b64decode(event["delta"])) // 2
        elif event["type"] != "session.output_transcript.delta":
            self.received.append(event)
        if event["type"] == "session.started":
            say({"started": event["session"]["id"]})
        self._changed.set()

    def _on_error(self, event: Any) -> None:
        self.errors.append(event.recoverable)
        self._changed.set()

    def _on_reconnected(self, _: object) -> None:
        self.reconnects += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(GIVE_UP_S):
            while not condition():
                assert not self.gave_up, self.received
                self._changed.clear()
                await self._changed.wait()

    @property
    def gave_up(self) -> bool:
        """An error ended the session for good."""
        return False in self.errors

    def summary(self) -> dict[str, Any]:
        return {
            "received": self.received,
            "sent": sorted(set(self.sent)),
            "errors": self.errors,
            "reconnects": self.reconnects,
        }


async def frames(path: str) -> AsyncIterator[rtc.AudioFrame]:
    """The recording as a microphone gives it: at real time, 50 ms a frame."""
    with wave.open(path) as recording:
        data = recording.readframes(recording.getnframes())
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number, at in enumerate(range(0, len(data), 2 * FRAME), 1):
        chunk = data[at : at + 2 * FRAME]
        await asyncio.sleep(began + number * FRAME / RATE - loop.time())
        yield rtc.AudioFrame(chunk, RATE, 1, len(chunk) // 2)


def enough(path: str) -> int:
    """Samples after which nothing but silence is answered any more: recordings end with more than a second of it."""
    with wave.open(path) as recording:
        return recording.getnframes() - RATE // 2


def said(pcm: bytes, text: str) -> dict[str, Any]:
    return {"pcm": base64.b64encode(pcm).decode(), "text": text}


async def talk(url: str, path: str) -> None:
    """What `AgentSession` does with the model, step by step.  Only a stretch without any audio counts as its end
    much later than by default: how busy this machine is does not matter here."""
    model = llm.DuplexRealtimeAdapter(GPTLiveModel(base_url=url, api_key="any"), audio_timeout=10.0)
    session = model.session()
    watch = Watch()
    watch.attach(session.duplex_session)
    spoken: list[asyncio.Task[dict[str, Any]]] = []
    session.on("generation_created", lambda event: spoken.append(asyncio.create_task(generation(event))))
    await session._update_session(instructions="Repeat what you hear.", chat_ctx=llm.ChatContext.empty())
    async for frame in frames(path):
        session.push_audio(frame)
    await watch.until(lambda: watch.samples >= enough(path))
    generations = await asyncio.gather(*spoken)
    await asyncio.to_thread(sys.stdin.readline)
    began = time.monotonic()
    await session.aclose()
    closed_s = time.monotonic() - began
    await model.aclose()
    say({**watch.summary(), "generations": generations, "closed_s": closed_s})


async def generation(event: llm.GenerationCreatedEvent) -> dict[str, Any]:
    pcm, text = b"", ""
    async for message in event.message_stream:
        async for frame in message.audio_stream:
            pcm += bytes(frame.data)
        async for fragment in message.text_stream:
            text += fragment
    return said(pcm, text)


async def refused(url: str) -> None:
    await asyncio.to_thread(sys.stdin.readline)
    model = llm.DuplexRealtimeAdapter(GPTLiveModel(base_url=url, api_key="any"))
    session = model.session()
    watch = Watch()
    watch.attach(session.duplex_session)
    began = time.monotonic()
    await session._update_session(instructions="Repeat what you hear.")
    await watch.until(lambda: watch.gave_up)
    gave_up_s = time.monotonic() - began
    await session.aclose()
    await model.aclose()
    say({**watch.summary(), "gave_up_s": gave_up_s, "closed_s": time.monotonic() - began - gave_up_s})


# ---------------------------------------------------------------- a whole agent


class Microphone(io.AudioInput):
    def __init__(self, path: str) -> None:
        super().__init__(label="microphone")
        self._frames = frames(path)

    async def __anext__(self) -> rtc.AudioFrame:
        return await anext(self._frames)


class Loudspeaker(io.AudioOutput):
    """Plays at once; keeps one bytes object for each stretch that was played to its end."""

    def __init__(self) -> None:
        super().__init__(
            label="loudspeaker", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=RATE
        )
        self.played: list[bytes] = []
        self._pcm = b""

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self._pcm += bytes(frame.data)

    def flush(self) -> None:
        super().flush()
        self._finish(interrupted=False)

    def clear_buffer(self) -> None:
        self._finish(interrupted=True)

    def _finish(self, *, interrupted: bool) -> None:
        pcm, self._pcm = self._pcm, b""
        if pcm:
            self.played.append(pcm)
            self.on_playback_finished(playback_position=len(pcm) / 2 / RATE, interrupted=interrupted)


async def agent(url: str, path: str) -> None:
    watch = Watch()
    loudspeaker = Loudspeaker()
    async with utils.http_context.open():
        session: AgentSession[None] = AgentSession(llm=GPTLiveModel(base_url=url, api_key="any"))
        session.input.audio = Microphone(path)
        session.output.audio = loudspeaker
        errors: list[str] = []
        session.on("error", lambda event: errors.append(type(event.error).__name__))
        turns: list[str] = []
        session.on("user_input_transcribed", lambda event: event.is_final and turns.append(event.transcript))
        states: list[str] = []
        session.on("user_state_changed", lambda event: states.append(event.new_state))
        started = Agent(instructions="Repeat what you hear.")
        await session.start(started, record=False)
        watch.attach(started.duplex_session)
        await watch.until(lambda: watch.samples >= enough(path))
        began = time.monotonic()
        await session.aclose()
        closed_s = time.monotonic() - began
    texts: dict[str, list[str]] = {"assistant": [], "user": []}
    for item in session.history.items:
        if item.type == "message":
            texts[item.role].append(item.text_content or "")
    say(
        {
            **watch.summary(),
            "agent_errors": errors,
            "closed_s": closed_s,
            "played": [
                said(pcm, text) for pcm, text in zip(loudspeaker.played, texts["assistant"], strict=True)
            ],
            "turns": turns,
            "user_items": texts["user"],
            "user_states": states,
        }
    )


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run({"talk": talk, "agent": agent, "refused": refused}[sys.argv[1]](*sys.argv[2:]))
