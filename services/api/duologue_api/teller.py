"""What a session tells its client."""

from collections.abc import Sequence
from datetime import UTC, datetime

from duologue.audio.formats import Format
from duologue.audio.streams import OutputStream
from duologue.bus.messages import Heard
from duologue.errors import CloseReason
from duologue.models import Manifest
from duologue_api.live import events
from duologue_api.live.config import Notice, SessionConfig
from duologue_api.live.refused import Refused
from duologue_api.port import Client

MAX_EARLY = 64
"""Answers waiting for `session.started`; beyond it no command is taken that would have another one."""


def overflow(backlog_s: float) -> str:
    """Why a session ends whose input may not be replaced."""
    return f"Input ran more than {backlog_s:g} s ahead of the model. Send audio at the pace at which it is recorded."


class Teller:
    """Makes the events of one session, `session.started` before all others but errors.  `config` may be replaced."""

    def __init__(
        self, sid: str, client: Client, config: SessionConfig, manifest: Manifest, form: Format
    ) -> None:
        self.config = config
        self.expires_at = 0
        """Unix seconds."""
        self._sid, self._client, self._manifest = sid, client, manifest
        self._notices: Sequence[Notice] = config.notices
        self._output = OutputStream(form, manifest.output_rate)
        self._silence = bytes(2 * manifest.output_samples)
        self._early: list[events.ServerEvent] | None = []  # bounded: check_room
        self._context_used = -1.0
        self._told_from = 0
        """Start of the last transcript that was told, in ms."""

    # -- answers

    def started(self, event_id: str | None) -> None:
        self._client.send(events.SessionStarted(session=self._session(), client_event_id=event_id))
        early, self._early = self._early or (), None
        for event in (*self._infos(self._notices), *early):
            self._client.send(event)

    def check_room(self, event_id: str | None) -> None:
        """To be called before a command is taken.  Raises `Refused`."""
        if self._early is not None and len(self._early) >= MAX_EARLY:
            raise Refused("invalid_event", "Too many commands before session.started.", event_id=event_id)

    def muted(self, on: bool, event_id: str | None) -> None:
        kind = events.InputAudioMuted if on else events.InputAudioUnmuted
        self._answer(kind(client_event_id=event_id))

    def updated(self, config: SessionConfig, event_id: str | None) -> None:
        """`config` is that of the session from now on; its notices are those of the update."""
        self.config = config
        updated = events.SessionUpdated(session=self._session(), client_event_id=event_id)
        self._answer(updated, *self._infos(config.notices, event_id))

    def shedding(self, backlog_s: float) -> None:
        """An episode of input beyond `backlog_s` begins."""
        message = (
            f"Input runs more than {backlog_s:g} s ahead of the model; the oldest of it is replaced by silence until "
            "the model has caught up. Send audio at the pace at which it is recorded."
        )
        # Some clients take any error before session.started for a refusal.
        self._answer(events.error("input_backlog", message))

    # -- units

    def unit(self, unit: int, text: str, heard: Sequence[Heard], pcm: bytes | None) -> None:
        """Output unit `unit`: int16 at the model's rate, `None` for silence.  Raises `ValueError` for another length
        than a unit's, which would shift all that follows."""
        if pcm is not None and len(pcm) != len(self._silence):
            raise ValueError(f"an output unit of {len(pcm)} bytes instead of {len(self._silence)}")
        for piece in heard:
            start_ms, end_ms = self._span(piece.first, piece.end)
            self._client.send(events.InputTranscriptDelta(delta=piece.text, start_ms=start_ms, end_ms=end_ms))
        if text:
            start_ms, end_ms = self._span(unit, unit + 1)
            self._client.send(events.OutputTranscriptDelta(delta=text, start_ms=start_ms, end_ms=end_ms))
        self._audio(self._output.push(self._silence if pcm is None else pcm))

    def rest(self) -> None:
        """The audio of the units so far that a resampler has held back; no unit may follow."""
        self._audio(self._output.flush())

    def _span(self, first: int, end: int) -> tuple[int, int]:
        """Milliseconds of the units from `first` to before `end`.  What was heard is known later than it was said,
        and clients take a start that lies before an earlier one for a clock that was set back."""
        ms = 1000 * self._manifest.unit_s
        self._told_from = max(self._told_from, round(first * ms))
        return self._told_from, max(self._told_from, round(end * ms))

    def _audio(self, audio: bytes) -> None:
        if audio:
            self._client.send(events.OutputAudioDelta(delta=audio))

    # -- the session

    def context(self, used: float) -> None:
        """The share of the model's context in use; negative: not known."""
        if used >= 0:
            self._context_used = used

    def usage(self, seconds: float) -> None:
        window = events.ContextWindow(usage_ratio=self._context_used) if self._context_used >= 0 else None
        self._client.send(events.UsageUpdated(usage=events.Usage(seconds=seconds), context_window=window))

    def expiring(self, left_s: float) -> None:
        until = datetime.fromtimestamp(self.expires_at, UTC).isoformat(timespec="seconds")
        message = f"This session ends in {left_s:g} s, at {until}. Start another one to go on."
        self._client.send(events.Info(code="session_expiring", message=message))

    def closed(self, reason: CloseReason, seconds: float, event_id: str | None = None) -> None:
        usage = events.Usage(seconds=seconds)
        self._client.send(
            events.SessionClosed(
                reason=reason, session=self._session(), usage=usage, client_event_id=event_id
            )
        )

    # --

    def _session(self) -> events.SessionResource:
        return self.config.resource(self._sid, self.expires_at)

    def _infos(self, notices: Sequence[Notice], event_id: str | None = None) -> list[events.Info]:
        return [
            events.Info(code=notice.code, message=notice.message, client_event_id=event_id)
            for notice in notices
        ]

    def _answer(self, *answers: events.ServerEvent) -> None:
        if self._early is not None:
            self._early += answers
            return
        for answer in answers:
            self._client.send(answer)
