"""What `duologue up` waits for at its start."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from duologue import allinone
from duologue.processes import API_RANK, WORKER_RANK
from duologue.supervisor import GaveUp, StartFailed
from duologue.virtual import run_virtual

pytestmark = pytest.mark.unit


class Supervised:
    """Processes that have all been ready once; `dies_after_s`: one of them dies again and again."""

    def __init__(self, dies_after_s: float) -> None:
        self.dies_after_s = dies_after_s
        spec = SimpleNamespace(rank=API_RANK, name="api-1")
        self.children = [
            SimpleNamespace(spec=SimpleNamespace(rank=WORKER_RANK, name="llm-1"), ready={}),
            SimpleNamespace(spec=spec, ready={"url": "http://127.0.0.1:1"}),
        ]

    async def start(self, timeout_s: float) -> None:
        pass

    async def run(self) -> None:
        await asyncio.sleep(self.dies_after_s)
        raise GaveUp("llm-1 ended with exit code 1, 5 times in 10 s")


def start(supervised: Supervised, monkeypatch: pytest.MonkeyPatch, ready_after_s: float) -> float:
    """How long the start takes, of 120 s at most."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def look(function: Any, url: str) -> str:
            return "" if loop.time() - began >= ready_after_s else "parrot has no llm worker"

        monkeypatch.setattr(asyncio, "to_thread", look)
        await allinone._start(supervised, 120.0)  # type: ignore[arg-type]
        return loop.time() - began

    return run_virtual(main(), limit_s=600)


def test_it_returns_when_sessions_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(Supervised(1e6), monkeypatch, 3.0) == pytest.approx(3.0, abs=0.1)


def test_it_says_what_is_lacking_when_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartFailed, match="api-1 is not ready: parrot has no llm worker"):
        start(Supervised(1e6), monkeypatch, 1e6)


def test_a_worker_that_dies_again_and_again_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not looked at until sessions could start, which they never could: two minutes later, `up` said that
    there was no worker, and not why."""
    with pytest.raises(GaveUp, match="llm-1 ended"):
        start(Supervised(5.0), monkeypatch, 1e6)
