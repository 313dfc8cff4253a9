"""Looking at a whole deployment: `tap`, `top` and `up --tap`, as an operator runs them."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deployment import DUOLOGUE, Deployment, clean_environment, deployment
from duologue.audio.wav import write_wav
from duologue.testing.signals import speechlike

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

UNIT, UNITS = 1920, 45
PATIENCE_S = 60


def duologue(*arguments: str) -> str:
    """Runs it to its end; what it said on standard output."""
    done = subprocess.run(
        [*DUOLOGUE, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def running(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [*DUOLOGUE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Not a whole number of units."""
    write_wav(tmp_path / "talk.wav", speechlike((UNITS * UNIT - 700) / 24000, seed=3), 24000)
    return tmp_path / "talk.wav"


def talk(served: Deployment, recording: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        duologue("talk", str(recording), "--url", served.live_url, "--no-pace", "--json")
    )
    assert found["units_out"] == UNITS
    return found


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

    arguments = ["--tap", str(folder), "--workers", "llm=2"]
    with deployment(seed=7, options={"loop": True}, arguments=arguments) as served:
        whole = talk(served, recording)["session"]
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
            running("tap", "--json", "--kind", "in", "--kind", "hb", "--nats", served.nats_url) as tap,
            running("talk", str(recording), "--url", served.live_url, "--tail", "60") as _,
        ):
            units = (unit for line in lines(tap) for unit in line["message"].get("units", []))
            part = next(unit["sid"] for unit in units if unit["dst"] == "root" and unit["unit"] >= 5)
            interrupted(tap)
            # `up` is told to end while this session is under way.
            served.process.terminate()
            served.process.wait(PATIENCE_S)
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
    with deployment(options={"loop": True}) as served:
        kinds = [
            argument for kind in ("hb", "claim", "in", "ev", "ack", "ctl") for argument in ("--kind", kind)
        ]
        with running("tap", "--json", *kinds, "--nats", served.nats_url) as tap:
            shown = lines(tap)
            assert next(shown)["kind"] == "hb", "it looks"
            heard = talk(served, recording)
            seen = [next(shown)]
            while (seen[-1]["type"], seen[-1]["message"].get("kind")) != ("Event", "closed"):
                seen.append(next(shown))
            interrupted(tap)
        sid = heard["session"]
        assert {"hb", "claim", "in", "ev", "ack"} <= {line["kind"] for line in seen}
        claims = [line["message"] for line in seen if line["type"] == "Claim"]
        assert {claim["stage"] for claim in claims} == {"encoder", "llm", "talker", "codec"}
        assert {claim["sid"] for claim in claims} == {sid}
        assert [line["message"]["state"] for line in seen if line["type"] == "Claimed"].count("open") == 4
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

        [*three] = duologue("tap", "--count", "3", "duo.v1.hb.*.*", "--nats", served.nats_url).splitlines()
        assert len(three) == 3
        assert all(" hb " in line and "Heartbeat" in line for line in three)
        with running("tap", "--kind", "hb", "--nats", served.nats_url) as tap:
            assert tap.stdout is not None
            assert "Heartbeat" in tap.stdout.readline()
            tap.stdout.close()
            assert tap.wait(PATIENCE_S) == 1, "as others whose reader leaves"
            assert tap.stderr is not None
            assert tap.stderr.read() == ""


def test_top_tells_who_is_there_and_who_is_not(recording: Path) -> None:
    with deployment(arguments=["--workers", "talker=2", "--api-pods", "2"]) as served:
        nats = ["--nats", served.nats_url]
        picture = json.loads(duologue("top", "--once", "--json", *nats))
        started = {(worker.stage, worker.id) for worker in served.workers}
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
            sid = talk(served, recording)["session"]
            while [(row["sid"], row["state"]) for row in next(shown)["sessions"]] != [(sid, "closed")]:
                pass
            victim = served.workers[0]
            os.kill(victim.pid, signal.SIGKILL)
            states: dict[str, str] = {}
            while states.get(victim.id) != "silent" or len(states) != len(started) + 1:
                states = {row["id"]: row["state"] for row in next(shown)["workers"]}
            assert sorted(states.values()) == [*["ready"] * len(started), "silent"]
            interrupted(top)
