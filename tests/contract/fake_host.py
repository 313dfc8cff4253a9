"""A pod without models: its sessions echo the audio.  And the edge before it, under a real uvicorn."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from duologue.errors import CloseReason, place_of
from duologue_api.app import create_app
from duologue_api.live import events
from duologue_api.live.config import SessionConfig
from duologue_api.port import Client, Draining, ModelStatus
from duologue_api.server import make_server

MODEL = ModelStatus("echo", "Says what it hears", True, ("robin", "wren"), 0.08)
MUTE = ModelStatus("mute", "Says nothing", False, (), 1.0)


class EchoSession:
    def __init__(self, host: "EchoHost", client: Client) -> None:
        self.host = host
        self.client = client
        self.config: SessionConfig | None = None
        self.heard = bytearray()
        self.gone = 0

    def start(self, config: SessionConfig, event_id: str | None) -> None:
        self.config = config
        started = events.SessionStarted(session=self.resource(), client_event_id=event_id)
        self.client.send(started)
        for notice in config.notices:
            self.client.send(events.Info(code=notice.code, message=notice.message))

    def resource(self) -> events.SessionResource:
        assert self.config is not None
        return self.config.resource("live_0123456789abcdefghijklmnop", 2_000_000_000)

    def append(self, pcm: bytes, event_id: str | None) -> None:
        if pcm == self.host.poison:
            raise LookupError("secret words of the client")
        start_ms = len(self.heard) // 48
        self.heard += pcm
        if len(self.heard) >= self.host.enough:
            self.host.heard.set()
        end_ms = len(self.heard) // 48
        self.client.send(
            events.InputTranscriptDelta(
                delta="in", start_ms=start_ms, end_ms=end_ms, client_event_id=event_id
            )
        )
        self.client.send(events.OutputTranscriptDelta(delta=" out", start_ms=start_ms, end_ms=end_ms))
        self.client.send(events.OutputAudioDelta(delta=pcm))
        self.client.send(
            events.UsageUpdated(
                usage=events.Usage(seconds=float(end_ms // 1000)),
                context_window=events.ContextWindow(usage_ratio=0.5),
            )
        )

    def mute(self, on: bool, event_id: str | None) -> None:
        kind = events.InputAudioMuted if on else events.InputAudioUnmuted
        self.client.send(kind(client_event_id=event_id))

    def update(self, config: SessionConfig, event_id: str | None) -> None:
        self.config = config
        self.client.send(events.SessionUpdated(session=self.resource(), client_event_id=event_id))
        for notice in config.notices:
            self.client.send(events.Info(code=notice.code, message=notice.message))

    def request_close(self, event_id: str | None) -> None:
        self.closed("close_requested", event_id)

    def closed(self, reason: CloseReason, event_id: str | None) -> None:
        usage = events.Usage(seconds=float(len(self.heard) // 48_000))
        self.client.send(
            events.SessionClosed(
                reason=reason, session=self.resource(), usage=usage, client_event_id=event_id
            )
        )
        self.client.end(1000, reason)

    def broke(self, bug: Exception) -> None:
        structlog.get_logger().error("session ended by a bug", **place_of(bug))
        self.client.send(events.error("internal_error", "A bug."))
        if self.config is None:
            self.client.end(1011, "internal_error")
        else:
            self.closed("connection_lost", None)

    def disconnected(self) -> None:
        self.gone += 1
        self.host.left.set()

    async def room(self) -> None:
        await asyncio.to_thread(self.host.open.wait)


@dataclass
class EchoHost:
    poison: bytes = b""
    draining: bool = False
    not_ready: str = ""
    sessions: list[EchoSession] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """A session was told that its client is gone."""
    enough: int = 0
    heard: threading.Event = field(default_factory=threading.Event)
    """A session has heard `enough` bytes."""
    open: threading.Event = field(default_factory=threading.Event)
    """There is room for input."""

    def __post_init__(self) -> None:
        self.open.set()

    def connect(self, client: Client) -> EchoSession:
        if self.draining:
            raise Draining
        self.sessions.append(EchoSession(self, client))
        return self.sessions[-1]

    def models(self) -> tuple[ModelStatus, ...]:
        return (MODEL, MUTE)

    def ready(self) -> tuple[bool, str]:
        return not self.not_ready, self.not_ready


@contextmanager
def serving(host: EchoHost, **options: Any) -> Iterator[str]:
    """The edge of `host` on a free port, in a thread of its own; `options` are those of `create_app`.  Yields
    "127.0.0.1:port"."""
    options.setdefault("keys", ())
    server = make_server(create_app(host, **options), "127.0.0.1", 0)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
