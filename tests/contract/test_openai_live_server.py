"""The OpenAI SDK against a real deployment: its Live client talks, and gets what the model has to answer."""

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from openai import AsyncOpenAI

from contract.strict_events import strict_event
from deployment import Deployment, deployment
from duologue.testing.signals import speechlike
from live_client import RATE, UNIT, Fragment
from parrot_answers import Settings, expected, fragments

pytestmark = pytest.mark.contract

SETTINGS = Settings(seed=7)
KEY = "sk-test-key"
RECORDING = speechlike(9.05, 28)


@pytest.fixture(scope="module")
def served() -> Iterator[Deployment]:
    with deployment(seed=SETTINGS.seed, arguments=["--key", KEY]) as served:
        yield served


async def talk(served: Deployment) -> list[dict[str, Any]]:
    """All events of a session that sends `RECORDING` in pieces of 100 ms."""
    events: list[dict[str, Any]] = []
    client = AsyncOpenAI(
        base_url=f"{served.url}/v1", api_key=KEY, http_client=httpx2.AsyncClient(trust_env=False)
    )
    async with client, client.live.connect() as live:
        await live.send({"type": "session.start", "event_id": "s1", "session": {"model": "parrot"}})
        answered, all_answered = 0, asyncio.Semaphore(0)

        async def speak() -> None:
            pcm = RECORDING.astype("<i2").tobytes()
            for at in range(0, len(pcm), 4800):
                audio = base64.b64encode(pcm[at : at + 4800]).decode()
                await live.send({"type": "session.input_audio.append", "audio": audio})
                while at > 2 * (answered * UNIT + 2 * RATE):
                    await all_answered.acquire()
            while answered < len(RECORDING) // UNIT:
                await all_answered.acquire()
            await live.send({"type": "session.close", "event_id": "c1"})

        speaking: asyncio.Task[None] | None = None
        async for event in live:
            events.append(strict_event(event.to_dict()))
            if event.type == "session.started":
                speaking = asyncio.create_task(speak())
            elif event.type == "session.output_audio.delta":
                answered += 1
                all_answered.release()
        assert speaking is not None
        await speaking
    return events


def test_the_sdk_talks_with_the_parrot(served: Deployment) -> None:
    events = asyncio.run(talk(served))
    answer = expected(RECORDING, SETTINGS)

    def of(kind: str) -> list[dict[str, Any]]:
        return [event for event in events if event["type"] == kind]

    assert {event["type"] for event in events} == {
        "session.started",
        "session.output_audio.delta",
        "session.output_transcript.delta",
        "session.usage.updated",
        "session.closed",
    }
    audio = b"".join(base64.b64decode(event["delta"]) for event in of("session.output_audio.delta"))
    assert np.array_equal(np.frombuffer(audio, "<i2"), answer.pcm16)
    said = [
        Fragment(event["delta"], event["start_ms"], event["end_ms"])
        for event in of("session.output_transcript.delta")
    ]
    assert said == fragments(answer)
    first, last = events[0], events[-1]
    assert (first["type"], first["client_event_id"]) == ("session.started", "s1")
    assert (last["type"], last["client_event_id"]) == ("session.closed", "c1")
    assert last["reason"] == "close_requested"
    assert last["usage"] == {"seconds": float(len(RECORDING) // RATE)}
    assert last["session"] == first["session"]
    assert first["session"]["model"] == "parrot"


def test_the_sdk_lists_the_models(served: Deployment) -> None:
    async def scenario() -> list[str]:
        client = AsyncOpenAI(
            base_url=f"{served.url}/v1", api_key=KEY, http_client=httpx2.AsyncClient(trust_env=False)
        )
        async with client:
            return [model.id async for model in await client.models.list()]

    assert asyncio.run(scenario()) == ["parrot"]
