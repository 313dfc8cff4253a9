"""`duologue up` as a user runs it: what it tells, what it starts anew, and that it leaves nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duologue.audio.wav import read_wav, write_wav

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

UNITS, UNIT = 40, 1920
PATIENCE_S = 60


@contextmanager
def up(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A deployment that is ready, and what it said; killed at the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DUO_")}
    command = [sys.executable, "-m", "duologue", "up", "--model", "parrot", "--json", "--port", "0"]
    command += arguments
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def pids_of(said: dict[str, Any]) -> list[int]:
    return [said["nats_pid"], *said["api_pids"], *(worker["pid"] for worker in said["workers"])]


def alive(pid: int) -> bool:
    found = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()
    return bool(found) and not found.startswith("Z")


def wait_gone(pids: list[int]) -> None:
    until = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < until, f"{left} still run"
        time.sleep(0.05)


def port_is_free(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0


def talk(url: str, recording: Path, out: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "duologue", "talk", str(recording), "--url", url, "--out", str(out)]
    done = subprocess.run(
        [*command, "--json", "--no-pace"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def talk_again(url: str, recording: Path, out: Path) -> dict[str, Any]:
    """As `talk`, once it works again."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return talk(url, recording, out)
        except AssertionError:
            assert time.monotonic() < until
            time.sleep(0.2)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    pcm = np.zeros(UNITS * UNIT, np.int16)
    pcm[: 10 * UNIT] = np.rint(8000 * np.sin(2 * np.pi * 440 * np.arange(10 * UNIT) / 24000))
    write_wav(tmp_path / "talk.wav", pcm, 24000)
    return tmp_path / "talk.wav"


def test_a_life_with_deaths_and_an_orderly_end(recording: Path, tmp_path: Path) -> None:
    with up("--workers", "llm=2", "--api-pods", "2", "--seed", "1", "--option", "row_ms=0.1") as (
        process,
        said,
    ):
        assert [worker["stage"] for worker in said["workers"]] == ["encoder", "llm", "llm", "talker", "codec"]
        assert len({worker["worker"] for worker in said["workers"]}) == 5
        assert said["live_urls"][0] == said["live_url"]
        pids = pids_of(said)
        assert len(set(pids)) == 8
        assert all(map(alive, pids))

        first = talk(said["live_urls"][0], recording, tmp_path / "first.wav")
        assert (first["units_in"], first["units_out"]) == (UNITS, UNITS)
        assert first["output_samples"] == UNITS * UNIT
        assert " u0 u1 u2" in first["transcript"]

        for pid in (said["workers"][0]["pid"], said["api_pids"][1], said["nats_pid"]):
            os.kill(pid, signal.SIGKILL)
        wait_gone([said["workers"][0]["pid"], said["api_pids"][1]])
        second = talk_again(said["live_urls"][1], recording, tmp_path / "second.wav")
        assert second["transcript"] == first["transcript"]
        answers = [read_wav(tmp_path / name).samples for name in ("first.wav", "second.wav")]
        assert np.array_equal(*answers), "the seed is that of every session"

        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "", "one line and nothing after it"
    wait_gone(pids)
    assert port_is_free(said["url"])
    assert port_is_free(said["nats_url"])


def test_killed_it_leaves_nothing() -> None:
    with up() as (process, said):
        process.kill()
    wait_gone(pids_of(said))
    assert port_is_free(said["url"])
    assert port_is_free(said["nats_url"])


def test_a_port_that_is_taken_is_told_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "duologue",
            "--log-level",
            "error",
            "up",
            "--json",
            "--port",
            str(port),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"duologue: api-1: port {port} of 127.0.0.1 is taken: choose another --port\n"
