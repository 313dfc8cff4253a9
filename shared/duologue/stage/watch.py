"""What is measured of a stage's units: histograms of all of them, spans of those that are traced."""

from collections.abc import Sequence

from duologue import telemetry
from duologue.models import Manifest
from duologue.stage.batch import Due
from duologue.stage.model import Footprint
from duologue.stage.owner import Owner, Times
from duologue.tracing import UNTRACED, Tracing


class Watch:
    """One stage of one model.  Times are of the shell's clock; everything here runs on its event loop."""

    def __init__(self, stage: str, manifest: Manifest, tracing: Tracing = UNTRACED) -> None:
        self._stage, self._unit_s, self._tracing = stage, manifest.unit_s, tracing
        labels = stage, manifest.id
        # Looking a metric up by its labels costs more than counting.
        self._queue = telemetry.QUEUE_SECONDS.labels(*labels)
        self._step = telemetry.STEP_SECONDS.labels(*labels)
        self._whole = telemetry.STAGE_SECONDS.labels(*labels)
        self._batch = telemetry.BATCH_UNITS.labels(*labels)
        self._misses = telemetry.DEADLINE_MISSES.labels(*labels)
        self._due_age = telemetry.DUE_AGE.labels(*labels)
        self._owners = telemetry.OWNERS.labels(*labels)
        self._places = telemetry.PLACES.labels(*labels)
        self._fixed_bytes = telemetry.FIXED_BYTES.labels(*labels)
        self._session_bytes = telemetry.SESSION_BYTES.labels(*labels)
        self._draining = telemetry.DRAINING.labels(stage)

    def begins(self, batch: Sequence[tuple[Owner, Due]], now: float) -> None:
        """A step of these units begins."""
        self._batch.observe(len(batch))
        for _, due in batch:
            self._queue.observe(now - due.since)

    def ends(self, seconds: float) -> None:
        """A step has ended."""
        self._step.observe(seconds)

    def left(self, owner: Owner, times: Times, trace: str) -> None:
        """The outputs of a unit have left; `trace` is its traceparent, or empty."""
        taken = times.ended - times.ready
        self._whole.observe(taken)
        if taken > self._unit_s:
            self._misses.inc()
        if trace:
            self._spans(owner, times, trace)
        elif self._tracing.enabled:
            owner.times.append(times)

    def late(self, owner: Owner, unit: int, trace: str) -> None:
        """The root found that a unit was late which was not traced until now."""
        for times in owner.times:
            if times.unit == unit:
                self._spans(owner, times, trace)

    def stands(self, owners: int, places: int, footprint: Footprint, due_age: float, draining: bool) -> None:
        """At every heartbeat."""
        self._owners.set(owners)
        self._places.set(places)
        self._fixed_bytes.set(footprint.fixed_bytes)
        self._session_bytes.set(footprint.session_bytes)
        self._due_age.set(due_age)
        self._draining.set(draining)

    def _spans(self, owner: Owner, times: Times, trace: str) -> None:
        stage, under = self._stage, self._tracing.under
        under(trace, f"hop {owner.main} {stage}", self._tracing.of_wall(times.sent), times.arrived)
        whole = under(trace, stage, times.arrived, times.ended)
        under(whole, f"{stage} queue", times.ready, times.began)
        under(whole, f"{stage} step", times.began, times.ended, {"duo.batch": times.rows})
