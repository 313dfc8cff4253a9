"""What telemetry costs: CPU by unit with metrics and traces, against the same sessions with neither.

Sixteen sessions of the parrot in one process and in virtual time, without a socket: of a unit's whole way only NATS and
the WebSocket are missing, so the shares of a real deployment are smaller.  Traces are those of production, 1 % of the
units, sent over HTTP to a receiver that is another process; the exporter's thread counts.  "Without" means that no
metric counts: prometheus_client's methods do nothing then.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from prometheus_client.metrics import Counter, Gauge, Histogram

from duologue.bench import Figure, Figures, interleaved
from duologue.inprocess import InProcess
from duologue.spans import Spans, otlp
from duologue.testing.signals import speechlike
from duologue.tracing import UNTRACED, Tracing
from duologue.virtual import run_virtual
from duologue_api.live.config import check

SESSIONS, SECONDS, UNIT_S = 16, 8.0, 0.080
RECORDINGS = [speechlike(SECONDS, seed) for seed in range(SESSIONS)]
RECEIVER = """
import http.server, sys
class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
"""


def run(rounds: int) -> Figures:
    """Interleaved rounds of 16 sessions with 8 s of input each."""
    with _receiver() as url:
        results = interleaved(
            rounds,
            {
                "off": lambda: _without_metrics(lambda: _round("", 0.0)),
                "metrics": lambda: _round("", 0.0),
                "on": lambda: _round(url, 0.01),
                "all": lambda: _round(url, 1.0),
            },
        )

    def ratio(case: str, target: float | None = None) -> Figure:
        pairs = zip(results[case], results["off"], strict=True)
        return Figure.of([with_ / without for with_, without in pairs], "x", target)

    return {
        "cpu_per_unit_off": Figure.of(results["off"], "us"),
        "cpu_per_unit_on": Figure.of(results["on"], "us"),
        "metrics_to_off": ratio("metrics"),
        "on_to_off": ratio("on", 1.10),
        "every_unit_traced_to_off": ratio("all"),
    }


def _round(url: str, ratio: float) -> float:
    """CPU microseconds by unit, all threads."""
    opened: list[Spans] = []

    def tracing(service: str) -> Tracing:
        if not url:
            return UNTRACED
        spans = Spans(otlp(url), service=service, instance=service)
        opened.append(spans)
        return Tracing(spans, ratio=ratio, clock=asyncio.get_running_loop().time)

    began = time.process_time()
    units = run_virtual(_sessions(tracing))
    for spans in opened:
        spans.close(10.0)
    return 1e6 * (time.process_time() - began) / units


async def _sessions(tracing: Callable[[str], Tracing]) -> int:
    """Runs them to their ends; returns their units."""
    async with InProcess("parrot", seed=1, tracing=tracing) as deployment:
        answers = await asyncio.gather(
            *(_session(deployment, pcm, number) for number, pcm in enumerate(RECORDINGS))
        )
    return sum(answers)


async def _session(deployment: InProcess, pcm: Any, number: int) -> int:
    client = _Client()
    await asyncio.sleep(number * UNIT_S / SESSIONS)
    root = deployment.pod.connect(client)
    root.start(check({"model": "parrot"}, deployment.pod.models()), None)
    samples = deployment.manifest.unit_samples
    for at in range(0, len(pcm), samples):
        root.append(pcm[at : at + samples].tobytes(), None)
        await asyncio.sleep(UNIT_S)
    root.request_close(None)
    await client.ended.wait()
    root.disconnected()
    return client.units


class _Client:
    def __init__(self) -> None:
        self.units = 0
        self.ended = asyncio.Event()

    def send(self, event: Any) -> None:
        self.units += type(event).__name__ == "OutputAudioDelta"

    def end(self, code: int, reason: str) -> None:
        self.ended.set()


def _without_metrics(round_: Callable[[], float]) -> float:
    def nothing(*_: object) -> None:
        pass

    with contextlib.ExitStack() as stack:
        for kind, methods in ((Counter, ("inc",)), (Gauge, ("inc", "dec", "set")), (Histogram, ("observe",))):
            for method in methods:
                stack.enter_context(patch.object(kind, method, nothing))
        return round_()


@contextlib.contextmanager
def _receiver() -> Iterator[str]:
    """The URL of an OTLP/HTTP receiver that throws everything away."""
    command = [sys.executable, "-c", RECEIVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1/traces"
        finally:
            process.kill()
