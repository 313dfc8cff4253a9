"""What telemetry costs: CPU by unit with metrics and traces, against the same sessions with neither.

Sixteen sessions of the parrot in one process and in virtual time: of a unit's whole way only NATS and the WebSocket are
missing, so the shares of a real deployment are smaller.  Telemetry is switched every two units, at random, and medians
are compared, since a machine's speed changes too much between whole runs.  The 1 % of traces of 5 s are sent over HTTP at the round's
end, to a receiver that is another process, as an exporter does every 5 s.  Without metrics means that their methods do
nothing.
"""

import asyncio
import contextlib
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from prometheus_client import Counter, Gauge

from duologue.bench import Figure, Figures
from duologue.inprocess import InProcess
from duologue.spans import Spans, otlp
from duologue.telemetry import Histogram
from duologue.testing.signals import speechlike
from duologue.tracing import Tracing
from duologue.virtual import run_virtual
from duologue_api.live.config import check

SESSIONS, UNIT_S, WARM_S, STRETCH_S, STRETCHES = 16, 0.080, 1.0, 0.16, 32
MODES = {"off": (False, None), "metrics": (True, None), "on": (True, 0.01)}
"""Whether metrics count, and the share of units that are traced."""
SECONDS = WARM_S + STRETCH_S * STRETCHES * len(MODES)
RECORDINGS = [speechlike(SECONDS, seed) for seed in range(SESSIONS)]
RECEIVER = """
import http.server
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
    """In each round 32 stretches of each kind, 5 s in all."""
    with _receiver() as url:
        found = [run_virtual(Round(url, number).run(), limit_s=60 + SECONDS) for number in range(rounds)]

    def ratio(mode: str, target: float | None = None) -> Figure:
        return Figure.of([each[mode] / each["off"] for each in found], "x", target)

    return {
        "cpu_per_unit_off": Figure.of([each["off"] for each in found], "us"),
        "cpu_per_unit_on": Figure.of([each["on"] for each in found], "us"),
        "metrics_to_off": ratio("metrics"),
        "on_to_off": ratio("on", 1.10),
    }


class Round:
    """One deployment, whose telemetry is switched while its sessions talk."""

    def __init__(self, url: str, number: int) -> None:
        self._url, self._number = url, number
        self._spans: list[Spans] = []
        self._tracings: list[Tracing] = []

    async def run(self) -> dict[str, float]:
        """Mode → CPU microseconds by unit, all threads."""
        async with InProcess("parrot", seed=1, tracing=self._tracing) as deployment:
            sessions = [
                asyncio.create_task(_session(deployment, pcm, at * UNIT_S / SESSIONS))
                for at, pcm in enumerate(RECORDINGS)
            ]
            with self._switched(True, 1.0):
                await asyncio.sleep(WARM_S)
            self._flush()
            cpu_s: defaultdict[str, list[float]] = defaultdict(list)
            rng = random.Random(self._number)
            for _ in range(STRETCHES):
                for mode in rng.sample(list(MODES), len(MODES)):
                    with self._switched(*MODES[mode]):
                        began = time.process_time()
                        await asyncio.sleep(STRETCH_S)
                        cpu_s[mode].append(time.process_time() - began)
            began = time.process_time()
            self._flush()
            exported_s = (time.process_time() - began) / STRETCHES
            await asyncio.gather(*sessions)
        for spans in self._spans:
            spans.close(10.0)
        found = {mode: statistics.median(seconds) for mode, seconds in cpu_s.items()}
        found["on"] += exported_s
        return {mode: 1e6 * seconds / (SESSIONS * STRETCH_S / UNIT_S) for mode, seconds in found.items()}

    def _flush(self) -> None:
        for spans in self._spans:
            spans.flush()

    def _tracing(self, service: str) -> Tracing:
        spans = Spans(otlp(self._url), service=service, instance=service)
        clock = asyncio.get_running_loop().time
        self._spans.append(spans)
        self._tracings.append(Tracing(spans, clock=clock, wall=clock))
        return self._tracings[-1]

    @contextlib.contextmanager
    def _switched(self, metrics: bool, ratio: float | None) -> Iterator[None]:
        for tracing in self._tracings:
            tracing.enabled, tracing.ratio = ratio is not None, ratio or 0.0
        with contextlib.ExitStack() as stack:
            for kind, methods in (
                (Counter, ("inc",)),
                (Gauge, ("inc", "dec", "set")),
                (Histogram, ("observe",)),
            ):
                for method in () if metrics else methods:
                    stack.enter_context(patch.object(kind, method, _nothing))
            yield


def _nothing(*_: object) -> None:
    pass


async def _session(deployment: InProcess, pcm: Any, late_s: float) -> None:
    await asyncio.sleep(late_s)
    client = _Client()
    root = deployment.pod.connect(client)
    root.start(check({"model": "parrot"}, deployment.pod.models()), None)
    samples = deployment.manifest.unit_samples
    for at in range(0, len(pcm), samples):
        root.append(pcm[at : at + samples].tobytes(), None)
        await asyncio.sleep(UNIT_S)
    root.request_close(None)
    await client.ended.wait()
    root.disconnected()


class _Client:
    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def send(self, event: Any) -> None:
        pass

    def end(self, code: int, reason: str) -> None:
        self.ended.set()


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
