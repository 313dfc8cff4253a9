"""Which units are traced, and by which ids (DESIGN §4).

The ids of a unit's trace are a hash of session and unit, and so is the draw whether it is sampled.  The root decides; the
context travels in `Envelope.trace`, and every process makes the spans of its part when it is done with it.  For a unit
that turned out late the root asks the owners afterwards (`messages.Trace`) for spans of the times that they remember.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from time import time
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from duologue import telemetry

if TYPE_CHECKING:
    from duologue.spans import Spans

Attributes = Mapping[str, str | int | float | bool]

PATH = "/v1/traces"
LATE_PER_S = 10.0
"""Late units that a pod traces: when all are late, more of them would tell nothing new, and cost most just then."""
REMEMBERED_S = 5.0
"""So long an owner remembers the times of its units."""
CLOSE_S = 2.0


class TracingError(RuntimeError):
    """The settings can't be followed."""


@dataclass(frozen=True)
class TracingSettings:
    """`endpoint` is the address of an OTLP/HTTP receiver (`http://collector:4318`, the path may be left out); empty:
    no tracing.  `ratio`, 0..1, of all units are traced, besides the late ones.  Headers, certificates and compression
    are OpenTelemetry's own `OTEL_EXPORTER_OTLP_…` variables."""

    endpoint: str = ""
    ratio: float = 0.01

    def __post_init__(self) -> None:
        """Raises `TracingError`."""
        if not 0 <= self.ratio <= 1:
            raise TracingError(f"the ratio of units to be traced must be from 0 to 1, not {self.ratio:g}")
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise TracingError("the OTLP endpoint must be an http:// or https:// address")


class Ids(NamedTuple):
    """Those of a unit's trace and of its first span."""

    trace: int
    span: int

    @classmethod
    def of(cls, sid: str, unit: int) -> "Ids":
        digest = blake2b(f"{sid} {unit}".encode(), digest_size=24).digest()
        return cls(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:], "big") or 1)

    @property
    def traceparent(self) -> str:
        return traceparent(self.trace, self.span)


def traceparent(trace: int, span: int) -> str:
    """W3C Trace Context, sampled."""
    return f"00-{trace:032x}-{span:016x}-01"


class Tracing:
    """A process's tracing; without `spans` it does nothing.  Spans' times are of `clock`, in seconds; `wall` tells the
    Unix time of now."""

    def __init__(
        self,
        spans: "Spans | None" = None,
        *,
        ratio: float = 0.0,
        clock: Callable[[], float] = time,
        wall: Callable[[], float] = time,
    ) -> None:
        self.enabled = spans is not None
        self.wall = wall
        self.ratio, self._spans, self._clock = ratio, spans, clock
        self._allowance, self._allowed_at = LATE_PER_S, 0.0

    def sampled(self, sid: str, unit: int) -> str:
        """The traceparent of a unit that is sampled; of any other ""."""
        if not self.enabled or not self.ratio:
            return ""
        if crc32(f"{sid} {unit}".encode()) >= self.ratio * 2**32:
            return ""
        telemetry.TRACES.labels("sampled").inc()
        return Ids.of(sid, unit).traceparent

    def late(self, sid: str, unit: int) -> str:
        """The traceparent of a unit that was late without being sampled; "" beyond `LATE_PER_S`."""
        if not self.enabled:
            return ""
        now = self._clock()
        earned = LATE_PER_S * (now - self._allowed_at)
        self._allowance, self._allowed_at = min(LATE_PER_S, self._allowance + earned), now
        if self._allowance < 1:
            telemetry.TRACES.labels("skipped").inc()
            return ""
        self._allowance -= 1
        telemetry.TRACES.labels("late").inc()
        return Ids.of(sid, unit).traceparent

    def first(self, sid: str, unit: int, name: str, start: float, end: float, attributes: Attributes) -> None:
        """The span in which all others of the unit lie."""
        if self._spans is not None:
            ids = Ids.of(sid, unit)
            self._spans.first(ids.trace, ids.span, name, self._ns(start), self._ns(end), attributes)

    def under(
        self, parent: str, name: str, start: float, end: float, attributes: Attributes | None = None
    ) -> str:
        """A span under the one of the traceparent `parent`; returns its own, "" where there is none."""
        if self._spans is None:
            return ""
        return self._spans.under(parent, name, self._ns(start), self._ns(end), attributes or {})

    def of_wall(self, wall: float) -> float:
        """What `clock` showed at the Unix time `wall`."""
        return wall - self.wall() + self._clock()

    def _ns(self, at: float) -> int:
        return round(1e9 * (at - self._clock() + self.wall()))

    def close(self) -> None:
        """To be called once, at the process's end; takes up to `CLOSE_S`."""
        if self._spans is not None:
            self._spans.close(CLOSE_S)


UNTRACED = Tracing()


def open_tracing(
    settings: TracingSettings, *, service: str, instance: str, clock: Callable[[], float]
) -> Tracing:
    """As the settings say.  Raises `TracingError`."""
    if not settings.endpoint:
        return UNTRACED
    try:
        from duologue.spans import Spans, otlp
    except ImportError:
        raise TracingError("tracing needs OpenTelemetry: pip install 'duologue[otel]'") from None
    base = settings.endpoint.rstrip("/")
    processor = otlp(base if base.endswith(PATH) else base + PATH)
    spans = Spans(processor, service=service, instance=instance)
    return Tracing(spans, ratio=settings.ratio, clock=clock)
