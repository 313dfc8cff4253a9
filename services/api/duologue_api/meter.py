"""What is measured of one session at its root: counters and histograms of all units, spans of those that are traced."""

from collections.abc import Mapping

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.models import STAGES, Manifest
from duologue.tracing import Attributes
from duologue_api.house import House
from duologue_api.wiring import Place


class Meter:
    """Times are of the house's clock, in seconds."""

    def __init__(self, sid: str, manifest: Manifest, house: House) -> None:
        self._sid, self._unit_s = sid, manifest.unit_s
        self._tracing, self._clock, self._transport = house.tracing, house.clock, house.transport
        self._model = manifest.id
        self._heard_at: float | None = None
        self._units = self._spoken = 0
        """Answered so far; the last one spoken, and one."""
        self._told_shed = 0
        # Looking a metric up by its labels costs more than counting.
        self._in = telemetry.UNITS_IN.labels(self._model)
        self._out = telemetry.UNITS_OUT.labels(self._model)
        self._out_spoken = telemetry.UNITS_SPOKEN.labels(self._model)
        self._shed = telemetry.UNITS_SHED.labels(self._model)
        self._late = telemetry.UNITS_LATE.labels(self._model)
        self._answer = telemetry.ANSWER_SECONDS.labels(self._model)
        self._backlog = telemetry.BACKLOG_SECONDS.labels(self._model)
        self._silence = telemetry.SILENCE_SECONDS.labels(self._model)

    def opened(self, took_s: float) -> None:
        telemetry.STARTED.labels(self._model).inc()
        telemetry.SESSIONS.labels(self._model).inc()
        telemetry.START_SECONDS.labels(self._model).observe(took_s)

    def suspended(self) -> None:
        telemetry.SUSPENDED.labels(self._model).inc()

    def closed(self, reason: str, shed: int) -> None:
        """The session that was opened is over; `shed` as below."""
        telemetry.SESSIONS.labels(self._model).dec()
        telemetry.CLOSED.labels(self._model, reason).inc()
        self.shed(shed)

    def trace(self, unit: int) -> str:
        """The traceparent that a unit sets out with; mostly none."""
        return self._tracing.sampled(self._sid, unit)

    def framed(self, units: int) -> None:
        """Input came and completed so many units."""
        if self._heard_at is None:
            self._heard_at = self._clock()
        self._in.inc(units)

    def answered(self, envelope: m.Envelope, waited_s: float | None, places: Mapping[str, Place]) -> None:
        """An output unit came, `waited_s` after its last input sample if another root did not have that."""
        if not self._units and self._heard_at is not None:
            first_audio_s = self._clock() - self._heard_at
            telemetry.FIRST_AUDIO_SECONDS.labels(self._model).observe(first_audio_s)
        self._units = envelope.unit + 1
        self._out.inc()
        if not envelope.body.marker:
            self._spoken = self._units
            self._out_spoken.inc()
        if waited_s is None:
            return
        self._answer.observe(waited_s)
        late = waited_s > self._unit_s
        if late:
            self._late.inc()
        if envelope.trace:
            self._spans(envelope, waited_s, late, envelope.trace)
        elif late and (trace := self._tracing.late(self._sid, envelope.unit)):
            self._spans(envelope, waited_s, late, trace)
            for stage in STAGES:
                place = places[stage]
                asked = m.Trace(m.WIRE, self._sid, place.epoch, envelope.unit, trace)
                self._transport.publish(subjects.control(place.address), m.encode(asked))

    def shed(self, units: int) -> None:
        """So many were replaced by silence up to now."""
        self._shed.inc(units - self._told_shed)
        self._told_shed = units

    def sample(self, backlog_s: float, shed: int) -> None:
        """To be called every second; `shed` as above."""
        self.shed(shed)
        self._backlog.observe(backlog_s)
        self._silence.observe((self._units - self._spoken) * self._unit_s)

    def _spans(self, envelope: m.Envelope, waited_s: float, late: bool, trace: str) -> None:
        now, tracing, unit = self._clock(), self._tracing, envelope.unit
        attributes: Attributes = {
            "duo.model": self._model,
            "duo.session": self._sid,
            "duo.unit": unit,
            "duo.late": late,
        }
        tracing.first(self._sid, unit, "unit", now - waited_s, now, attributes)
        tracing.under(trace, f"hop {envelope.src} root", tracing.of_wall(envelope.sent), now)
