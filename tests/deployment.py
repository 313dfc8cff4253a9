"""A real deployment for tests: `duologue up` with its nats-server and all its processes, and nothing of it afterwards."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

READY_S, END_S = 60.0, 20.0
"""Nothing is measured by them: a deployment that takes so long has failed."""
MARK = "DEPLOYMENT_UNDER_TEST"
DUOLOGUE = (sys.executable, "-m", "duologue")

_news: deque[str] = deque(maxlen=2000)
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Worker:
    """As it was when the deployment was ready."""

    stage: str
    id: str
    pid: int
    metrics_url: str
    model: str


class Metrics:
    """The samples of one process's `/metrics`."""

    def __init__(self, text: str) -> None:
        self._samples = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def total(self, name: str, **labels: str) -> float:
        """Sum of the samples of that name with those labels; 0 where there are none."""
        return sum(
            value
            for sample, having, value in self._samples
            if sample == name and labels.items() <= having.items()
        )


class Deployment:
    """A running `duologue up`."""

    def __init__(self, process: "subprocess.Popen[bytes]", mark: str, said: Mapping[str, Any]) -> None:
        self.process, self.mark = process, mark
        self.url: str = said["url"]
        self.live_url: str = said["live_url"]
        self.nats_url: str = said["nats_url"]
        self.nats_pid: int | None = said["nats_pid"]
        self.api_pids: list[int] = said["api_pids"]
        self.workers = [
            Worker(each["stage"], each["worker"], each["pid"], each["metrics_url"], each["model"])
            for each in said["workers"]
        ]
        self.log: list[str] = []

    def worker(self, stage: str) -> Worker:
        """The only worker of that stage."""
        [found] = [worker for worker in self.workers if worker.stage == stage]
        return found

    def metrics(self, role: str) -> Metrics:
        """Of the first API pod (`api`), or of the only worker of a stage as it was at the start."""
        url = f"{self.url}/metrics" if role == "api" else self.worker(role).metrics_url
        return Metrics(get(url))

    def ready(self) -> bool:
        """Whether new sessions could be placed."""
        try:
            get(f"{self.url}/readyz")
        except OSError:
            return False
        return True


def get(url: str) -> str:
    """Raises `OSError`, for any status but 200 too."""
    with _opener.open(url, timeout=10) as answer:
        body: bytes = answer.read()
    return body.decode()


@contextlib.contextmanager
def deployment(
    *,
    model: str = "parrot",
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    nats_url: str | None = None,
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[Deployment]:
    """Runs `duologue up --json` on free ports.  `options` are the model's, `env` is for all processes, and settings of
    the caller's own environment don't reach them.  At the end no process, port or file may be left."""
    command = [*DUOLOGUE, "up", "--model", model, "--port", "0", "--json", *arguments]
    command += [] if seed is None else ["--seed", str(seed)]
    command += [] if nats_url is None else ["--nats", nats_url]
    for name, value in (options or {}).items():
        command += ["--option", f"{name}={json.dumps(value)}"]
    with tempfile.TemporaryDirectory(prefix="duologue-test-") as scratch:
        mark = secrets.token_hex(8)
        surrounding = {**clean_environment(), **(env or {}), "TMPDIR": scratch, MARK: mark}
        with subprocess.Popen(
            command,
            env=surrounding,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            served: Deployment | None = None
            log: list[str] = []
            pump = threading.Thread(target=_pump, args=(process, log))
            pump.start()
            try:
                served = Deployment(process, mark, _first_line(process))
                served.log = log
                yield served
            finally:
                _end(process, mark)
                pump.join()
        assert served is not None
        assert process.returncode == 0, f"up ended with {process.returncode}"
        wait_free(served.url)
        assert os.listdir(scratch) == []
        assert not [line for line in log if "Traceback" in line or '"event": "bug"' in line]


def clean_environment() -> dict[str, str]:
    """This process's environment without settings of Duologue."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DUO_")}


def _first_line(process: "subprocess.Popen[bytes]") -> Mapping[str, Any]:
    timer = threading.Timer(READY_S, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "up ended before it was ready"
        said: dict[str, Any] = json.loads(line)
        return said
    finally:
        timer.cancel()


def _pump(process: "subprocess.Popen[bytes]", log: list[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        log.append(line.decode(errors="replace").rstrip())
        _news.append(log[-1])


def news() -> list[str]:
    """What all deployments have logged since the last call."""
    return [_news.popleft() for _ in range(len(_news))]


def _end(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """SIGTERM, as an operator would; whatever that leaves is killed and makes the test fail."""
    process.terminate()
    late = False
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        late = True
        process.kill()
        process.wait()
    left = wait_gone(mark)
    assert process.stdout is not None
    more = process.stdout.read()
    assert not late, f"up did not end within {END_S} s"
    assert left == [], f"processes left: {left}"
    assert more == b"", "something followed the first line on standard output"


async def eventually(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Waits for what nobody announces, of processes that are asked again and again."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


# ---------------------------------------------------------------- what must not be left


def marked(mark: str) -> list[int]:
    """The processes whose environment has the mark, whoever their parent is by now.  Linux only, elsewhere none."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # ended meanwhile, or not ours
            continue
    return found


def wait_gone(mark: str, timeout_s: float = 5.0) -> list[int]:
    """Those that are left after a while, which are killed then."""
    until = time.monotonic() + timeout_s
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def wait_free(url: str) -> None:
    """Asserts that nobody listens at the address of `url` any more."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    assert host is not None
    assert port is not None
    with socket.socket() as probe:
        probe.settimeout(5)
        assert probe.connect_ex((host, port)) != 0, f"somebody still listens at {url}"


def resident_bytes(pid: int) -> int:
    """Memory of a process, resident set size."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        out = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
        return int(out.stdout) * 1024
