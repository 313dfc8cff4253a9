"""A receiver of OTLP over HTTP that keeps what it gets."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """Of the process that made it, `service` and `instance`.  Times are nanoseconds since 1970."""

    service: str
    instance: str
    trace: str
    id: str
    parent: str
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]


class Receiver:
    """`url` is what `DUO_OTLP_ENDPOINT` takes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._spans: list[Span] = []
        self._lock = threading.Lock()

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        found = []
        for process in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _values(process.resource.attributes)
            for scope in process.scope_spans:
                found += [
                    Span(
                        resource["service.name"],
                        resource["service.instance.id"],
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.name,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        _values(span.attributes),
                    )
                    for span in scope.spans
                ]
        with self._lock:
            self._spans += found

    def traces(self) -> dict[str, list[Span]]:
        """All spans so far, by trace."""
        with self._lock:
            spans = list(self._spans)
        return {trace: [span for span in spans if span.trace == trace] for trace in {s.trace for s in spans}}


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listens on loopback until it is left."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            it.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        it = Receiver(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield it
        finally:
            server.shutdown()
            thread.join()
