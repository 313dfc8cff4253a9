"""A session's input: framed into units, numbered, bounded (DESIGN §4 "Bounds")."""

import asyncio
from collections.abc import Callable

import numpy as np

from duologue.audio.framing import Framer
from duologue.bus.delivery import Emission
from duologue.bus.endpoint import Endpoint
from duologue.bus.messages import SHED, Audio
from duologue.models import Manifest

SHED_RECORD = {"root": "shed"}


class Intake:
    """Frames input for the root's endpoint and keeps it within bounds.

    At most `backlog_s` seconds of sound wait to be sent; beyond that the oldest unit that was never sent is *shed*:
    it keeps its number and travels as a silence marker.  At most four times that many units in all wait for their
    answers: then `room` makes the socket wait, which bounds memory whatever the client does.
    `shedding(True)` is called when an episode of shedding begins, `shedding(False)` when it is over; `trace` gives the
    traceparent of a unit.
    """

    def __init__(
        self,
        manifest: Manifest,
        endpoint: Endpoint,
        *,
        clock: Callable[[], float],
        backlog_s: float,
        shedding: Callable[[bool], None],
        trace: Callable[[int], str] = lambda unit: "",
    ) -> None:
        self.samples = 0
        """Input samples received: the session clock."""
        self.shed = 0
        self._endpoint, self._clock, self._on_shedding = endpoint, clock, shedding
        self._trace, self._unit_s = trace, manifest.unit_s
        self._framer = Framer(manifest.unit_samples)
        self._silence = bytes(2 * manifest.unit_samples)
        self._backlog = max(2, round(backlog_s / manifest.unit_s))
        self._shed_before = 0
        self._shedding = False
        self._answered = 0
        self._framed_at: dict[int, float] = {}
        self._waiting: asyncio.Event | None = None

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

    def append(self, pcm: bytes) -> int:
        """Takes int16 samples at the model's input rate; returns how many units they completed."""
        self.samples += len(pcm) // 2
        units = self._framer.push(pcm)
        for unit in units:
            self._emit(unit)
        return len(units)

    def flush(self) -> int:
        """Pads the last, incomplete unit with zeros; returns how many units (0 or 1) that completed."""
        unit = self._framer.flush()
        if unit is not None:
            self._emit(unit)
        return int(unit is not None)

    def answered(self, unit: int) -> float | None:
        """Output of `unit` came; returns the seconds since its last sample."""
        self._answered = unit + 1
        framed = self._framed_at.pop(unit, None)
        if self._waiting and self.pending < 4 * self._backlog:
            self._waiting.set()
            self._waiting = None
        if self._shedding and self._audible() <= self._backlog // 2:
            self._shedding = False
            self._on_shedding(False)
        return None if framed is None else self._clock() - framed

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
        self._framed_at[unit] = self._clock()
        self._endpoint.emit("encoder", Emission(unit, body, {}, trace=self._trace(unit)))
        if self._audible() > self._backlog:
            self._shed_oldest()

    def _audible(self) -> int:
        """Units that wait to be sent for the first time, those shed already not counted."""
        ring = self._endpoint.rings["encoder"]
        return ring.end - max(ring.sent, self._shed_before)

    def _shed_oldest(self) -> None:
        ring = self._endpoint.rings["encoder"]
        unit = max(ring.sent, self._shed_before)
        emission = ring.get(unit)
        assert emission is not None  # what was never sent is kept
        ring.replace(Emission(unit, Audio(), SHED_RECORD, "", SHED, emission.trace))
        self._shed_before = unit + 1
        self.shed += 1
        if not self._shedding:
            self._shedding = True
            self._on_shedding(True)
