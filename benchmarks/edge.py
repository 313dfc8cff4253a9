"""What a unit costs at the API's edge alone, against the least that any server of JSON and base64 could do.

The edge is the real one: uvicorn, the app, full validation, the seam to the pod; behind it an echo instead of roots.
Sessions are paced by another process: one append of 80 ms (3840 bytes) every 80 ms, phases spread over the unit; or one
session sends as fast as the answers come, which shows the code without the cost of waking up for it.  The limit is a bare server of the `websockets` library on the same event loop that does `json.loads`, base64 both ways and
`json.dumps` with each frame, and checks nothing.  CPU is the server process's, from the kernel.
"""

import asyncio
import base64
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_bare
from websockets.exceptions import ConnectionClosed

from duologue.bench import Figure, Figures, interleaved
from duologue.cli import loop
from duologue_api.app import create_app
from duologue_api.live import events
from duologue_api.live.config import SessionConfig
from duologue_api.port import Client, ModelStatus
from duologue_api.server import make_server

SESSIONS = {"1": 1, "24": 24, "unpaced": 0}
UNDER_WAY = 8
"""Units that the unpaced session has not been answered."""
UNIT_S, UNIT_BYTES = 0.080, 3840
WARM_S, SECONDS, LAG_S = 0.5, 2.5, 1.5
TICK_S = 0.005
"""How often the event loop's lag is sampled, after the CPU was measured: sampling costs some."""

TARGETS = {"1": 1.5, "24": 1.2, "unpaced": 0.75}
"""Of CPU a unit, to that of the bare server; to stay below."""

Case = dict[str, float]


def run(rounds: int) -> Figures:
    """Interleaved rounds, about 5 s for each server and number of sessions."""
    cases = {f"{server}_{name}": (server, name) for name in SESSIONS for server in ("edge", "bare")}
    found = interleaved(rounds, {key: partial(_case, *case) for key, case in cases.items()})
    figures: dict[str, Figure] = {}
    for name in SESSIONS:
        edge, bare = found[f"edge_{name}"], found[f"bare_{name}"]
        figures |= _of("", name, edge)
        figures |= _of("bare_", name, bare)
        ratios = [a["cpu"] / b["cpu"] for a, b in zip(edge, bare, strict=True)]
        figures[f"cpu_to_bare_{name}"] = Figure.of(ratios, "x", TARGETS[name])
        figures[f"units_lost_{name}"] = Figure.of([case["lost"] for case in edge], "units", 0.0)
    return figures


def _of(prefix: str, name: str, cases: Sequence[Case]) -> dict[str, Figure]:
    keys = {
        "cpu": "cpu_per_unit",
        "answer_p50": "answer_p50",
        "answer_p99": "answer_p99",
        "lag_p99": "lag_p99",
    }
    return {
        f"{prefix}{called}_{name}": Figure.of([case[key] for case in cases], "us" if key == "cpu" else "ms")
        for key, called in keys.items()
    }


def _case(server: str, sessions: str) -> Case:
    """One round of one server."""
    serving = subprocess.Popen(
        [sys.executable, __file__, server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    talking: subprocess.Popen[str] | None = None
    try:
        assert serving.stdin is not None
        assert serving.stdout is not None
        port = serving.stdout.readline().strip()
        talking = subprocess.Popen(
            [sys.executable, __file__, "clients", port, str(SESSIONS[sessions])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert talking.stdin is not None
        assert talking.stdout is not None
        talking.stdout.readline()  # they have started and are warm
        units, cpu = int(talking.stdout.readline()), _cpu_s(serving.pid)
        time.sleep(SECONDS)
        print("count", file=talking.stdin, flush=True)
        units, cpu = int(talking.stdout.readline()) - units, _cpu_s(serving.pid) - cpu
        print("lag", file=serving.stdin, flush=True)
        lag_p99 = float(serving.stdout.readline())
        said = json.loads(talking.communicate("stop\n", timeout=60)[0])
    finally:
        for child in filter(None, (talking, serving)):
            child.kill()
            child.communicate()
    return {
        "cpu": 1e6 * cpu / units,
        "lag_p99": 1e3 * lag_p99,
        "answer_p50": 1e3 * said["p50"],
        "answer_p99": 1e3 * said["p99"],
        "lost": said["lost"],
    }


def _cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a process so far, to the nanosecond (Linux)."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


# ---------------------------------------------------------------- servers


class Echo:
    """A pod and its only kind of session: says what it hears."""

    def __init__(self, client: Client | None = None) -> None:
        self._client = client

    def connect(self, client: Client) -> "Echo":
        return Echo(client)

    def models(self) -> Sequence[ModelStatus]:
        return (ModelStatus("echo", "Says what it hears", True, (), UNIT_S),)

    def ready(self) -> tuple[bool, str]:
        return True, ""

    def start(self, config: SessionConfig, event_id: str | None) -> None:
        self._send(
            events.SessionStarted(session=config.resource("live_1", 2_000_000_000), client_event_id=event_id)
        )

    def append(self, pcm: bytes, event_id: str | None) -> None:
        self._send(events.OutputAudioDelta(pcm))

    def request_close(self, event_id: str | None) -> None: ...

    def broke(self, bug: Exception) -> None:
        raise bug

    def disconnected(self) -> None: ...

    async def room(self) -> None: ...

    def _send(self, event: events.ServerEvent) -> None:
        assert self._client is not None
        self._client.send(event)


async def edge() -> None:
    server = make_server(create_app(Echo(), keys=()), "127.0.0.1", 0)
    serving = asyncio.create_task(server.serve())
    print(server.port, flush=True)
    await _lag()
    await serving


async def bare() -> None:
    async def echo(socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            async for frame in socket:
                event = json.loads(frame)
                said = {"type": "session.started"}
                if event["type"] == "session.input_audio.append":
                    pcm = base64.b64decode(event["audio"])
                    said = {"type": "session.output_audio.delta", "delta": base64.b64encode(pcm).decode()}
                await socket.send(json.dumps(said))

    async with serve_bare(echo, "127.0.0.1", 0, compression=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await _lag()
        await server.serve_forever()


async def _lag() -> None:
    """When told to: prints the 99th percentile of how late the event loop wakes, seconds."""
    await _line()
    late = []
    for _ in range(round(LAG_S / TICK_S)):
        due = time.perf_counter() + TICK_S
        await asyncio.sleep(TICK_S)
        late.append(time.perf_counter() - due)
    print(_percentile(late, 99), flush=True)


def _percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


# ---------------------------------------------------------------- clients


class Talker:
    """One session; each answer belongs to the oldest append that has none."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._room = asyncio.Semaphore(UNDER_WAY)
        self.sent: list[float] = []
        self.took: list[float] = []

    async def rush(self, frame: str) -> None:
        while True:
            await self._room.acquire()
            self.sent.append(time.perf_counter())
            await self._socket.send(frame)

    async def talk(self, frame: str, phase_s: float) -> None:
        due = time.perf_counter() + phase_s
        while True:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self.sent.append(time.perf_counter())
            await self._socket.send(frame)
            due += UNIT_S

    async def listen(self) -> None:
        async for _ in self._socket:
            self.took.append(time.perf_counter() - self.sent[len(self.took)])
            self._room.release()


async def clients(port: str, count: int) -> None:
    """So many paced sessions, or an unpaced one."""
    rng = random.Random(count)
    pcm = rng.randbytes(UNIT_BYTES)
    append = json.dumps(
        {"type": "session.input_audio.append", "audio": base64.b64encode(pcm).decode()}, separators=(",", ":")
    )
    talkers = []
    tasks = []
    for _ in range(count or 1):
        socket = await connect(
            f"ws://127.0.0.1:{port}/v1/live/sessions", compression=None, max_size=None, proxy=None
        )
        await socket.send('{"type":"session.start","session":{"model":"echo"}}')
        await socket.recv()
        talkers.append(Talker(socket))
        tasks.append(asyncio.create_task(talkers[-1].listen()))
    ways = [each.talk(append, rng.uniform(0, UNIT_S)) if count else each.rush(append) for each in talkers]
    talking = [asyncio.create_task(way) for way in ways]
    print("started", flush=True)
    await asyncio.sleep(WARM_S)
    warm = [len(each.took) for each in talkers]
    print(sum(warm), flush=True)
    await _line()
    print(sum(len(each.took) for each in talkers), flush=True)
    await _line()
    for task in talking:
        task.cancel()
    await asyncio.sleep(0.2)
    took = [seconds for each, first in zip(talkers, warm, strict=True) for seconds in each.took[first:]]
    lost = sum(len(each.sent) - len(each.took) for each in talkers)
    print(json.dumps({"p50": _percentile(took, 50), "p99": _percentile(took, 99), "lost": lost}), flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["clients", port, count]:
            loop.run(clients(port, int(count)))
        case ["edge"]:
            loop.run(edge())
        case ["bare"]:
            loop.run(bare())
