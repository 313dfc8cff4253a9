"""The pocket model with a chat endpoint, as real processes: instructions and earlier messages reach it, its answer is spoken,
and a session that it keeps waiting holds up no other."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from chat_endpoint import Endpoint
from deployment import deployment
from live_client import LiveSession, started

pytest.importorskip("hibari", reason="the extra `pocket` is not installed")
pytest.importorskip("onnxruntime", reason="the extra `pocket` is not installed")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

RATE = 24_000


def asked(text: str) -> dict[str, Any]:
    """A message of the session's `input`."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


async def hear(live: LiveSession, enough: Callable[[], bool]) -> None:
    """Sends silence at twice the pace of speech, until that is enough."""
    for _ in range(40):
        await live.stream(np.zeros(RATE // 2, np.int16), pace=2)
        if enough():
            return
    raise AssertionError(f"only heard {live.text!r}")


async def scenario(url: str, endpoint: Endpoint, hang: threading.Event) -> None:
    async with started(url, model="pocket", input=[asked("Please hang.")]) as hung:
        hanging = asyncio.create_task(hung.stream(np.zeros(20 * RATE, np.int16), pace=2))
        await asyncio.to_thread(endpoint.asked.wait, 30)
        async with started(
            url, model="pocket", instructions="You are Ada.", input=[asked("What grows in the garden?")]
        ) as live:
            await hear(live, lambda: "radish" in live.text)
            assert "".join(live.text.split()) == "Onlyasingleradish."
            assert abs(live.pcm16.astype(int)).max() > 1000
            await live.close()
        # Its apology, should all this have taken long.
        assert "I'm sorry".startswith(hung.text[: len("I'm sorry")])
        hanging.cancel()
        hang.set()
    first, second = endpoint.requests
    assert first["messages"][-1]["content"] == "Please hang."
    assert second["messages"][0]["content"].startswith("You are Ada.")
    assert second["messages"][-1] == {"role": "user", "content": "What grows in the garden?"}


def test_an_endpoint_answers_one_session_and_keeps_another_waiting() -> None:
    hang = threading.Event()

    def between(number: int) -> None:
        if len(endpoint.requests) == 1:
            hang.wait(60)

    with Endpoint("Only a single", " radish.", between=between) as endpoint:
        env = {"DUO_POCKET_CHAT_URL": endpoint.url, "DUO_POCKET_CHAT_MODEL": "tiny"}
        with deployment(model="pocket", env=env) as served:
            asyncio.run(scenario(served.live_url, endpoint, hang))
