"""Looking at a whole deployment: `tap`, `top` and `up --tap`, as an operator runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duologue.audio.wav import write_wav
from duologue.testing.signals import speechlike

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

UNIT, UNITS = 1920, 45
PATIENCE_S = 60
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("DUO_")}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "duologue", *arguments]


def duologue(*arguments: str) -> str:
    """Runs it to its end; what it said on standard output."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def running(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Deployment(dict[str, Any]):
    """What `up` said."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        super().__init__(json.loads(process.stdout.readline()))
        self._process = process

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_S) == 0


@contextmanager
def up(*arguments: str) -> Iterator[Deployment]:
    """A deployment that is ready."""
    with subprocess.Popen(
        command("up", "--json", "--port", "0", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        try:
            yield Deployment(process)
        finally:
            process.kill()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Not a whole number of units."""
    write_wav(tmp_path / "talk.wav", speechlike((UNITS * UNIT - 700) / 24000, seed=3), 24000)
    return tmp_path / "talk.wav"


def talk(said: dict[str, Any], recording: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        duologue("talk", str(recording), "--url", said["live_url"], "--no-pace", "--json")
    )
    assert found["units_out"] == UNITS
    return found


def appears(path: Path) -> Path:
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < until, f"no {path.name}"
        time.sleep(0.02)
    return path


def lines(process: "subprocess.Popen[str]") -> Iterator[Any]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def interrupted(process: "subprocess.Popen[str]") -> None:
    """Ctrl-C is how one ends it."""
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (0, "")


def test_what_up_writes_down_is_what_offline_does(recording: Path, tmp_path: Path) -> None:
    options, out, folder = tmp_path / "options.json", tmp_path / "offline.npz", tmp_path / "sessions"
    options.write_text('{"loop": true}')
    arguments = ["--input", str(recording), "--options", str(options), "--out", str(out)]
    duologue("offline", "--model", "parrot", "--seed", "7", *arguments)
    expected, records = dict(np.load(out)), json.loads(out.with_suffix(".json").read_text())
    assert len(records) == UNITS

    with up("--tap", str(folder), "--seed", "7", "--option", "loop=true", "--workers", "llm=2") as said:
        whole = talk(said, recording)["session"]
        until = time.monotonic() + PATIENCE_S
        while not (folder / f"{whole}.json").exists():
            assert time.monotonic() < until, "a session is written when it is over"
            time.sleep(0.02)
        with np.load(folder / f"{whole}.npz") as found:
            assert set(found.files) == set(expected)
            for name, array in expected.items():
                assert found[name].dtype == array.dtype
                assert np.array_equal(found[name], array), name
        assert json.loads((folder / f"{whole}.json").read_text()) == records

        with (
            running("tap", "--json", "--kind", "in", "--kind", "hb", "--nats", said["nats_url"]) as tap,
            running("talk", str(recording), "--url", said["live_url"], "--tail", "60") as _,
        ):
            units = (unit for line in lines(tap) for unit in line["message"].get("units", []))
            part = next(unit["sid"] for unit in units if unit["dst"] == "root" and unit["unit"] >= 5)
            interrupted(tap)
            # `up` ends while this session is under way.
            said.stop()
    assert {path.name for path in folder.iterdir()} == {
        f"{sid}.{end}" for sid in (whole, part) for end in ("json", "npz")
    }
    with np.load(folder / f"{part}.npz") as found:
        units = min(UNITS, len(found["pcm16"]) // UNIT)
        assert units > 5
        for name, array in expected.items():
            length = units * (UNIT if name.endswith("pcm16") else 1)
            assert np.array_equal(found[name][:length], array[:length]), name
    assert json.loads((folder / f"{part}.json").read_text())[:units] == records[:units]


def test_a_tap_shows_a_session_and_nothing_of_its_sound(recording: Path) -> None:
    with up("--option", "loop=true") as said:
        kinds = [
            argument for kind in ("hb", "claim", "in", "ev", "ack", "ctl") for argument in ("--kind", kind)
        ]
        with running("tap", "--json", *kinds, "--nats", said["nats_url"]) as tap:
            shown = lines(tap)
            assert next(shown)["kind"] == "hb", "it looks"
            heard = talk(said, recording)
            seen = [next(shown)]
            while (seen[-1]["type"], seen[-1]["message"].get("kind")) != ("Event", "closed"):
                seen.append(next(shown))
            interrupted(tap)
        sid = heard["session"]
        assert {"hb", "claim", "in", "ev", "ack"} <= {line["kind"] for line in seen}
        claims = [line["message"] for line in seen if line["type"] == "Claim"]
        assert sorted(claim["stage"] for claim in claims) == ["codec", "encoder", "llm", "talker"]
        assert {claim["sid"] for claim in claims} == {sid}
        assert [line["message"]["state"] for line in seen if line["type"] == "Claimed"] == ["open"] * 4
        units = [unit for line in seen if line["type"] == "Bundle" for unit in line["message"]["units"]]
        ways = [
            ("root", "encoder"),
            ("encoder", "llm"),
            ("llm", "talker"),
            ("talker", "codec"),
            ("codec", "root"),
        ]
        for way in ways:
            numbers = {unit["unit"] for unit in units if (unit["src"], unit["dst"]) == way}
            assert numbers == set(range(UNITS)), way
        spoken = {unit["unit"]: unit["text"] for unit in units if unit["dst"] == "root"}
        assert "".join(spoken[unit] for unit in range(UNITS)) == heard["transcript"]
        tensors = [tensor for unit in units for tensor in unit["body"]["tensors"].values()]
        assert {"dtype", "shape", "bytes", "min", "max", "rms"} <= set(tensors[0])
        assert all("data" not in tensor for tensor in tensors)

        [*three] = duologue("tap", "--count", "3", "duo.v1.hb.*.*", "--nats", said["nats_url"]).splitlines()
        assert len(three) == 3
        assert all(" hb " in line and "Heartbeat" in line for line in three)
        with running("tap", "--kind", "hb", "--nats", said["nats_url"]) as tap:
            assert tap.stdout is not None
            assert "Heartbeat" in tap.stdout.readline()
            tap.stdout.close()
            assert tap.wait(PATIENCE_S) == 1, "as others whose reader leaves"
            assert tap.stderr is not None
            assert tap.stderr.read() == ""


def test_top_tells_who_is_there_and_who_is_not(recording: Path) -> None:
    with up("--workers", "talker=2", "--api-pods", "2") as said:
        nats = ["--nats", said["nats_url"]]
        picture = json.loads(duologue("top", "--once", "--json", *nats))
        started = {(worker["stage"], worker["worker"]) for worker in said["workers"]}
        assert {(row["stage"], row["id"]) for row in picture["workers"]} == started
        assert {row["state"] for row in [*picture["workers"], *picture["pods"]]} == {"ready"}
        assert len(picture["pods"]) == 2
        table = duologue("top", "--once", *nats).splitlines()
        for _, worker in started:
            assert sum(worker in line for line in table) == 1
        assert max(map(len, table)) <= 80

        with running("top", "--json", *nats) as top:
            shown = lines(top)
            next(shown)
            sid = talk(said, recording)["session"]
            while [(row["sid"], row["state"]) for row in next(shown)["sessions"]] != [(sid, "closed")]:
                pass
            victim = said["workers"][0]
            os.kill(victim["pid"], signal.SIGKILL)
            states: dict[str, str] = {}
            while states.get(victim["worker"]) != "silent" or len(states) != len(started) + 1:
                states = {row["id"]: row["state"] for row in next(shown)["workers"]}
            assert sorted(states.values()) == [*["ready"] * len(started), "silent"]
            interrupted(top)
