"""What waits to be written to one client: bounded in seconds of audio, in events and in bytes.

The policy for a reader that is too slow: the oldest audio is dropped, nothing else.  An *episode* lasts from the
first drop until the reader has caught up (nothing waits any more); then one `error` states the milliseconds that were
dropped.  A reader that hasn't caught up after `behind_limit_s` is given up, with that `error` as its last event.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from duologue.audio.formats import PCM_24K
from duologue.errors import TABLE, close_code
from duologue.telemetry import EPISODES, EVENT_ERRORS, OUTPUT_BACKLOG_SECONDS, OUTPUT_DROPPED_SECONDS
from duologue_api.live.events import (
    ErrorEvent,
    OutputAudioDelta,
    ServerEvent,
    SessionClosed,
    encode,
    error,
)
from duologue_api.live.settings import EdgeSettings

MAX_REASON_BYTES = 123
"""RFC 6455 §5.5.1: a control frame has 125 bytes, two of them the code."""


class Outbound:
    """A `Client` (see `port`) whose other end is a writer that takes one text frame after another."""

    def __init__(
        self,
        settings: EdgeSettings,
        clock: Callable[[], float],
        bytes_per_s: float = PCM_24K.bytes_per_s,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.bytes_per_s = bytes_per_s
        """Of the session's format, once it is known; nothing is queued before."""
        self._audio: deque[tuple[int, OutputAudioDelta]] = deque()  # bounded: _bound, in seconds and events
        self._events: deque[tuple[int, str]] = deque()  # bounded: _bound, in events and bytes
        self._order = 0
        self._audio_bytes = 0
        self._event_bytes = 0
        self._dropped_bytes = 0
        self._behind_since: float | None = None
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self.ending: tuple[int, str] | None = None
        """Close code and reason, once it is known that the connection ends."""

    @property
    def backlog_s(self) -> float:
        """Seconds of audio that wait."""
        return self._audio_bytes / self.bytes_per_s

    # ---------------------------------------------------------------- the session's side

    def send(self, event: ServerEvent) -> None:
        if self.ending is not None:
            return
        if isinstance(event, OutputAudioDelta):
            if not event.delta:
                return
            self._audio.append((self._next(), event))
            self._audio_bytes += len(event.delta)
            OUTPUT_BACKLOG_SECONDS.observe(self.backlog_s)
        else:
            if isinstance(event, SessionClosed):
                self._end_episode()
            self._put(event)
        self._bound()
        self._changed.set()

    def end(self, code: int, reason: str) -> None:
        if self.ending is not None:
            return
        self._end_episode()
        self.ending = (code, reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore"))
        self._changed.set()
        self._ended.set()

    # ---------------------------------------------------------------- the writer's side

    def take(self) -> str | None:
        """The next text frame, in the order sent; `None` while there is none."""
        if not self._audio and not self._events:
            self._end_episode()
        if self._audio and (not self._events or self._audio[0][0] < self._events[0][0]):
            _, event = self._audio.popleft()
            self._audio_bytes -= len(event.delta)
            return encode(event)
        if self._events:
            _, text = self._events.popleft()
            self._event_bytes -= len(text)
            return text
        return None

    async def next(self) -> str | None:
        """The next text frame; `None` when the connection ends and all are out.  For one writer, which asks again
        only when the transport has taken the last one."""
        while True:
            self._changed.clear()
            if (text := self.take()) is not None:
                return text
            if self.ending is not None:
                return None
            await self._changed.wait()

    async def ended(self) -> None:
        """Returns once `ending` is set."""
        await self._ended.wait()

    # ---------------------------------------------------------------- bounds

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _put(self, event: ServerEvent) -> None:
        if isinstance(event, ErrorEvent):
            code = event.error.code
            EVENT_ERRORS.labels(code if code in TABLE else "other").inc()
        text = encode(event)
        self._events.append((self._next(), text))
        self._event_bytes += len(text)

    def _bound(self) -> None:
        limits = self._settings
        # The last one stays: a model's unit may be longer than the backlog.
        while len(self._audio) > 1 and (
            self.backlog_s > limits.output_backlog_s
            or len(self._audio) + len(self._events) > limits.max_queued_events
        ):
            self._drop_oldest()
        behind_s = 0.0 if self._behind_since is None else self._clock() - self._behind_since
        if behind_s >= limits.behind_limit_s:
            self._give_up(f"was behind for {behind_s:.0f} s")
        elif len(self._events) > limits.max_queued_events or self._event_bytes > limits.max_queued_bytes:
            self._give_up("left too many events unread")

    def _drop_oldest(self) -> None:
        _, event = self._audio.popleft()
        self._audio_bytes -= len(event.delta)
        self._dropped_bytes += len(event.delta)
        OUTPUT_DROPPED_SECONDS.inc(len(event.delta) / self.bytes_per_s)
        if self._behind_since is None:
            EPISODES.labels("output").inc()
            self._behind_since = self._clock()

    def _dropped(self) -> str:
        dropped_ms = round(self._dropped_bytes / self.bytes_per_s * 1000)
        structlog.get_logger().warning("output dropped", dropped_ms=dropped_ms)
        return f"{dropped_ms} ms of output audio were dropped"

    def _end_episode(self) -> None:
        if self._behind_since is None:
            return
        self._put(error("output_backlog", f"The reader fell behind: {self._dropped()}."))
        self._behind_since = None
        self._dropped_bytes = 0

    def _give_up(self, why: str) -> None:
        while self._audio:
            self._drop_oldest()
        self._put(error("output_backlog", f"The reader {why}: {self._dropped()}."))
        self._behind_since = None
        self.end(close_code("output_backlog"), "output_backlog")
