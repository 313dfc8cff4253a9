"""Spans made with OpenTelemetry, for `duologue.tracing`; imported only where something is traced.

The processor queues at most `QUEUE` spans and sends them from a thread of its own; what is more than that is dropped,
the oldest first.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from duologue.telemetry import SPANS
from duologue.tracing import Attributes, traceparent

QUEUE, BATCH = 2048, 512
EXPORT_S = 5.0
"""For one batch, all tries together."""


log = structlog.get_logger()


class _Exporter(OTLPSpanExporter):
    """Says once that the receiver is away, and once that it is back; OpenTelemetry would at every try."""

    def __init__(self, url: str) -> None:
        super().__init__(endpoint=url, timeout=EXPORT_S)
        self._away = False
        logging.getLogger(OTLPSpanExporter.__module__).setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        failed = result is not SpanExportResult.SUCCESS
        SPANS.labels("lost" if failed else "sent").inc(len(spans))
        if failed and not self._away:
            log.warning("traces can't be sent", lost=len(spans))
        elif self._away and not failed:
            log.info("traces are sent again")
        self._away = failed
        return result


def otlp(url: str) -> SpanProcessor:
    """Sends spans to an OTLP/HTTP receiver at `url`, path included, every 5 s (`OTEL_BSP_SCHEDULE_DELAY`)."""
    return BatchSpanProcessor(
        _Exporter(url),
        max_queue_size=QUEUE,
        max_export_batch_size=BATCH,
    )


class _Ids(RandomIdGenerator):
    """Random ids, but for a trace's first span, whose ids are given."""

    def __init__(self) -> None:
        self._given: tuple[int, int] | None = None

    @contextmanager
    def given(self, trace: int, span: int) -> Iterator[None]:
        self._given = trace, span
        try:
            yield
        finally:
            self._given = None

    def generate_trace_id(self) -> int:
        return self._given[0] if self._given else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self._given[1] if self._given else super().generate_span_id()


class Spans:
    """Spans of one process, made by one thread.  Times are nanoseconds since 1970."""

    def __init__(self, processor: SpanProcessor, *, service: str, instance: str) -> None:
        self._ids = _Ids()
        resource = Resource.create({"service.name": service, "service.instance.id": instance})
        self._provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=self._ids)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("duologue")
        self._propagator = TraceContextTextMapPropagator()
        self._count = SPANS.labels("made")
        # A stage's spans have but two parents.
        self._context = lru_cache(4)(self._read)

    def first(
        self, trace: int, span: int, name: str, start_ns: int, end_ns: int, attributes: Attributes
    ) -> None:
        """The span with these ids, which has no parent."""
        with self._ids.given(trace, span):
            self._made(Context(), name, start_ns, end_ns, attributes)

    def under(self, parent: str, name: str, start_ns: int, end_ns: int, attributes: Attributes) -> str:
        """A span under the one of the traceparent `parent`; returns its own, "" where `parent` is none."""
        context = self._context(parent)
        return "" if context is None else self._made(context, name, start_ns, end_ns, attributes)

    def _read(self, parent: str) -> Context | None:
        context = self._propagator.extract({"traceparent": parent}, Context())
        return context if get_current_span(context).get_span_context().is_valid else None

    def _made(self, context: Context, name: str, start_ns: int, end_ns: int, attributes: Attributes) -> str:
        self._count.inc()
        span = self._tracer.start_span(name, context, attributes=attributes, start_time=start_ns)
        span.end(max(start_ns, end_ns))
        ids = span.get_span_context()
        return traceparent(ids.trace_id, ids.span_id)

    def flush(self) -> None:
        """Returns when what is queued has been sent."""
        self._provider.force_flush()

    def close(self, timeout_s: float) -> None:
        """Sends what is queued, as far as that takes no longer."""
        closing = threading.Thread(target=self._provider.shutdown, name="tracing ends", daemon=True)
        closing.start()
        closing.join(timeout_s)
