"""A client in memory, for tests of the pod without sockets."""

import asyncio
from collections.abc import Callable
from typing import Any

from duologue_api.live import events
from duologue_api.live.config import SessionConfig, check


class Recorder:
    """Keeps everything that the root sends."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.units: list[bytes] = []
        self.text = ""
        self.errors: list[events.ErrorDetail] = []
        self.started = False
        self.ended: tuple[int, str] | None = None
        self._moved = asyncio.Event()

    def send(self, event: events.ServerEvent) -> None:
        assert self.ended is None, "an event after the end"
        self.events.append(event)
        if isinstance(event, events.OutputAudioDelta):
            self.units.append(event.delta)
        elif isinstance(event, events.OutputTranscriptDelta):
            self.text += event.delta
        elif isinstance(event, events.ErrorEvent):
            self.errors.append(event.error)
        elif isinstance(event, events.SessionStarted):
            self.started = True
        self._moved.set()

    def end(self, code: int, reason: str) -> None:
        if self.ended is None:
            self.ended = code, reason
        self._moved.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._moved.clear()
            await self._moved.wait()


def config(pod: Any, **fields: Any) -> SessionConfig:
    """A checked configuration for the pod's first model."""
    models = pod.models()
    return check({"model": models[0].id, **fields}, models)
