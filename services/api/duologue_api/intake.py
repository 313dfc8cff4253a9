"""A session's input: framed into units, numbered, bounded (DESIGN §4 "Bounds")."""

import asyncio
from collections.abc import Callable

import numpy as np

from duologue.audio.formats import PCM_24K, Format
from duologue.audio.streams import InputStream
from duologue.bus.delivery import Emission
from duologue.bus.endpoint import Endpoint
from duologue.bus.messages import SHED, Audio
from duologue.models import Manifest
from duologue.session.capture import Capture
from duologue_api.live.refused import Refused

SHED_RECORD = {"root": "shed"}
CONTROLS = "controls"
"""Key of a unit's record under which its controls travel: `Control`s in the order in which they came."""
MAX_CONTROLS = 32
"""In one unit; what they say has to fit the unit's message."""
MUTED, UNMUTED = "muted", "unmuted"

Control = tuple[str, int, str | None]
"""(kind, number of the first of the client's samples that it concerns, the command's event id)."""


class Intake:
    """Frames input for the root's endpoint and keeps it within bounds.

    At most `backlog_s` seconds of sound wait to be sent.  Beyond that the oldest unit that was never sent is *shed*: it
    keeps its number and travels as a silence marker; or, where there is an `overflow`, that is called and nothing is
    taken any more.  At most four times that many units in all wait for their answers: then `room` makes the socket
    wait, which bounds memory whatever the client does.
    `shedding(True)` is called when an episode of shedding begins, `shedding(False)` when it is over;
    `trace` gives the traceparent of a unit; what is heard goes to `capture` as well.
    """

    def __init__(
        self,
        manifest: Manifest,
        endpoint: Endpoint,
        *,
        clock: Callable[[], float],
        backlog_s: float,
        shedding: Callable[[bool], None],
        overflow: Callable[[], None] | None = None,
        form: Format = PCM_24K,
        trace: Callable[[int], str] = lambda unit: "",
        capture: Capture | None = None,
    ) -> None:
        self.muted = False
        """Input is replaced by silence; the session clock goes on."""
        self.shed = 0
        self._endpoint, self._clock = endpoint, clock
        self._on_shedding, self._on_overflow = shedding, overflow
        self._rate = form.rate
        self._stream = InputStream(form, manifest.input_rate, manifest.unit_samples)
        self._trace, self._unit_s = trace, manifest.unit_s
        self._capture = capture
        self._silence = bytes(2 * manifest.unit_samples)
        self._backlog = max(2, round(backlog_s / manifest.unit_s))
        self._shed_before = 0
        self._shedding = False
        self._overflown = False
        self._answered = 0
        self._heard_at: dict[int, float] = {}
        """When the last sample of a unit came."""
        self._controls: dict[int, list[Control]] = {}
        self._waiting: asyncio.Event | None = None

    @property
    def samples(self) -> int:
        """The client's samples received."""
        return self._stream.samples

    @property
    def seconds(self) -> float:
        """The session clock: whole seconds of input audio."""
        return float(self.samples // self._rate)

    @property
    def units(self) -> int:
        """Units framed so far."""
        return self._endpoint.rings["encoder"].end

    @property
    def pending(self) -> int:
        """Units whose output has not come."""
        return self.units - self._answered

    @property
    def backlog_s(self) -> float:
        """Seconds of input that wait to be sent."""
        return self._audible() * self._unit_s

    def unit_of(self, sample: int) -> int:
        """The unit that has the client's sample."""
        return sample // self._stream.unit

    def append(self, audio: bytes) -> int:
        """Takes audio in the session's format; returns how many units it completed."""
        before, heard = self.units, self.unit_of(self.samples)
        made = self._stream.push(audio, silent=self.muted)
        if self._capture:
            self._capture.push(audio, silent=self.muted)
        now = self._clock()
        for unit in range(heard, self.unit_of(self.samples)):
            self._heard_at[unit] = now
        for pcm in made:
            if self._overflown:
                break
            self._emit(pcm)
            if self._audible() > self._backlog:
                self._overflow()
        return self.units - before

    def flush(self) -> int:
        """Completes what is left with zeros; returns how many units that made."""
        last, part = divmod(self.samples, self._stream.unit)
        if part:
            self._heard_at[last] = self._clock()
        made = self._stream.flush()
        for pcm in made:
            self._emit(pcm)
            if self._audible() > self._backlog and self._on_overflow is None:
                self._shed_oldest()
        return len(made)

    def mute(self, on: bool, event_id: str | None) -> Control | None:
        """From the next sample on input is silence, or is heard again; the control, if that changes anything.  It
        travels with its unit.  Raises `Refused`."""
        if on is self.muted:
            return None
        controls = self._controls.setdefault(self.unit_of(self.samples), [])
        if len(controls) >= MAX_CONTROLS:
            why = f"Muted and unmuted more than {MAX_CONTROLS} times within a unit of the model."
            raise Refused("invalid_event", why, event_id=event_id)
        self.muted = on
        controls.append((MUTED if on else UNMUTED, self.samples, event_id))
        return controls[-1]

    def answered(self, unit: int) -> float | None:
        """Output of `unit` came; returns the seconds since its last sample."""
        self._answered = unit + 1
        heard = self._heard_at.pop(unit, None)
        if self._waiting and self.pending < 4 * self._backlog:
            self._waiting.set()
            self._waiting = None
        if self._shedding and self._audible() <= self._backlog // 2:
            self._shedding = False
            self._on_shedding(False)
        return None if heard is None else self._clock() - heard

    async def room(self) -> None:
        """Returns when more input may be read."""
        if self.pending >= 4 * self._backlog:
            self._waiting = self._waiting or asyncio.Event()
            await self._waiting.wait()

    def release(self) -> None:
        """The session is over: nobody needs to wait any more."""
        if self._waiting:
            self._waiting.set()

    def _emit(self, pcm: bytes) -> None:
        unit = self.units
        body = Audio() if pcm == self._silence else Audio.of({"pcm": np.frombuffer(pcm, "<i2")})
        controls = self._controls.pop(unit, None)
        records = {CONTROLS: controls} if controls else {}
        self._endpoint.emit("encoder", Emission(unit, body, records, trace=self._trace(unit)))

    def _audible(self) -> int:
        """Units that wait to be sent for the first time, those shed already not counted."""
        ring = self._endpoint.rings["encoder"]
        return ring.end - max(ring.sent, self._shed_before)

    def _overflow(self) -> None:
        if self._on_overflow is None:
            self._shed_oldest()
        else:
            self._overflown = True
            self._on_overflow()

    def _shed_oldest(self) -> None:
        ring = self._endpoint.rings["encoder"]
        unit = max(ring.sent, self._shed_before)
        kept = ring.get(unit)
        assert kept is not None  # what was never sent is kept
        ring.replace(Emission(unit, Audio(), {**SHED_RECORD, **kept.records}, "", SHED, kept.trace))
        self._shed_before = unit + 1
        self.shed += 1
        if not self._shedding:
            self._shedding = True
            self._on_shedding(True)
