"""The live server, over real processes and a real bus, answers with exactly the samples of `duologue offline` and of the
reference function: however the client cuts its audio, however many talk at once, in every mode of the model."""

import asyncio
import json
import subprocess
import wave
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deployment import DUOLOGUE, Deployment, clean_environment, deployment
from duologue.audio.wav import write_wav
from duologue.testing.signals import bursts, speechlike
from live_client import RATE, UNIT, LiveSession, Pcm, converse
from parrot_answers import Settings, assert_exact, expected, fragments

pytestmark = pytest.mark.e2e

SETTINGS = {
    "plain": Settings(seed=7),
    "loop": Settings(seed=7, loop=True),
    "short-context": Settings(seed=8, context_units=24),
    "both": Settings(seed=9, loop=True, context_units=24),
}
RECORDING = speechlike(9.05, 28)
"""113 units and a bit, with pauses, utterances and interruptions."""
OTHER = speechlike(8.0, 37)
"""100 units and no more."""
BRIEF = bursts([(0.32, True), (1.04, False)], 1)
"""17 units, for 32,640 appends of one sample."""


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Deployment]]:
    """Deployments by the name of their settings, each started when it is first wanted."""
    with ExitStack() as stack:

        class Running(dict[str, Deployment]):
            def __missing__(self, name: str) -> Deployment:
                settings = SETTINGS[name]
                started = deployment(seed=settings.seed, options=settings.options)
                self[name] = stack.enter_context(started)
                return self[name]

        yield Running()


def kinds(recording: Pcm, settings: Settings) -> set[int]:
    return {record["llm"][0] for record in expected(recording, settings).records}


def test_the_recordings_show_what_is_tested() -> None:
    plain, loop, short, both = (expected(RECORDING, settings) for settings in SETTINGS.values())
    assert kinds(RECORDING, SETTINGS["plain"]) == kinds(RECORDING, SETTINGS["short-context"]) == {0, 1, 2}
    assert len({tuple(answer.texts) for answer in (plain, loop, short, both)}) == 4
    assert len({record["llm"][2] for record in short.records}) > 5
    assert (len(RECORDING) % UNIT, len(OTHER) % UNIT, len(BRIEF) % UNIT) == (240, 0, 0)


# ---------------------------------------------------------------- however it is cut, whoever else talks


@pytest.mark.parametrize(
    ("chunk_bytes", "recording"),
    [
        pytest.param(2, BRIEF, id="one-sample"),
        pytest.param(46, RECORDING, id="46-bytes"),
        pytest.param(960, RECORDING, id="20-ms"),
        pytest.param(3840, OTHER, id="a-unit"),
        pytest.param(4800, RECORDING, id="100-ms"),
        pytest.param(48_000, RECORDING, id="1-s"),
        pytest.param(144_000, OTHER, id="3-s"),
    ],
)
def test_any_chunks(running: dict[str, Deployment], chunk_bytes: int, recording: Pcm) -> None:
    live = asyncio.run(converse(running["plain"].live_url, recording, chunk_bytes=chunk_bytes))
    assert_exact(live, recording, SETTINGS["plain"])


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("sessions", [1, 2, 16])
def test_any_company(running: dict[str, Deployment], name: str, sessions: int) -> None:
    """Neighbours in a batch change nothing, whether they send the same or not."""
    recordings = [RECORDING if number % 2 == 0 else OTHER for number in range(sessions)]

    async def scenario() -> list[LiveSession]:
        url = running[name].live_url
        conversations = (
            converse(url, recording, chunk_bytes=960 + 2 * number)
            for number, recording in enumerate(recordings)
        )
        return await asyncio.gather(*conversations)

    for live, recording in zip(asyncio.run(scenario()), recordings, strict=True):
        assert_exact(live, recording, SETTINGS[name])


def test_another_seed_gives_other_samples(running: dict[str, Deployment]) -> None:
    settings = SETTINGS["short-context"]
    live = asyncio.run(converse(running["short-context"].live_url, RECORDING))
    assert_exact(live, RECORDING, settings)
    other = expected(RECORDING, Settings(seed=7, context_units=settings.context_units))
    assert live.pcm16.shape == other.pcm16.shape
    assert np.any(live.pcm16 != other.pcm16)


def test_listening_is_exact_silence(running: dict[str, Deployment]) -> None:
    live = asyncio.run(converse(running["plain"].live_url, RECORDING))
    spoken = {fragment.start_ms // 80 for fragment in live.transcript}
    # After a spoken unit the low-pass rings on for less than one more.
    silent = [unit for unit in range(len(live.units)) if not spoken & {unit, unit - 1}]
    assert len(silent) > len(live.units) // 2
    assert {live.units[unit] for unit in silent} == {bytes(2 * UNIT)}
    assert bytes(2 * UNIT) not in {live.units[unit] for unit in spoken}


# ---------------------------------------------------------------- the command line


@cache
def command(*arguments: str) -> str:
    """Standard output of a `duologue` command."""
    done = subprocess.run(
        [*DUOLOGUE, *arguments], env=clean_environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_offline_gives_the_same(running: dict[str, Deployment], tmp_path: Path) -> None:
    settings = SETTINGS["both"]
    wav, out, options = tmp_path / "in.wav", tmp_path / "out.npz", tmp_path / "options.json"
    write_wav(wav, RECORDING, RATE)
    options.write_text(json.dumps(settings.options))
    common = ("--model", "parrot", "--input", str(wav), "--seed", str(settings.seed))
    command("offline", *common, "--options", str(options), "--out", str(out))
    live = asyncio.run(converse(running["both"].live_url, RECORDING))
    with np.load(out) as arrays:
        assert np.array_equal(arrays["pcm16"], live.pcm16)
    records = json.loads(out.with_suffix(".json").read_text())
    assert "".join(record.get("text", "") for record in records) == live.text
    answer = expected(RECORDING, settings)
    assert [record["llm"] for record in records] == [record["llm"] for record in answer.records]


@pytest.mark.parametrize("pace", [("--no-pace",), ("--pace", "1")], ids=["unpaced", "real-time"])
def test_talk_gets_the_same(running: dict[str, Deployment], tmp_path: Path, pace: tuple[str, ...]) -> None:
    served, settings = running["plain"], SETTINGS["plain"]
    wav, reply = tmp_path / "in.wav", tmp_path / "reply.wav"
    write_wav(wav, RECORDING, RATE)
    said: dict[str, Any] = json.loads(
        command("talk", str(wav), "--url", served.url, "--out", str(reply), "--json", *pace)
    )
    answer = expected(RECORDING, settings)
    with wave.open(str(reply)) as saved:
        assert (saved.getframerate(), saved.getnchannels(), saved.getsampwidth()) == (RATE, 1, 2)
        assert np.array_equal(np.frombuffer(saved.readframes(saved.getnframes()), "<i2"), answer.pcm16)
    units = -(-len(RECORDING) // UNIT)
    assert said["input_samples"] == len(RECORDING)
    assert said["output_samples"] == units * UNIT
    assert (said["units_in"], said["units_out"]) == (units, units), "the last, partial one counts, too"
    assert said["transcript"] == "".join(answer.texts)
    assert said["fragments"] == [vars(fragment) for fragment in fragments(answer)]
    assert said["usage_seconds"] == len(RECORDING) // RATE
    assert said["close_reason"] == "close_requested"
    assert said["notices"] == []
    assert said["first_audio_ms"] > 0
    first_ms = fragments(answer)[0].start_ms
    if pace == ("--pace", "1"):
        assert said["first_audio_ms"] > first_ms, "an answer can't precede what it answers"
        assert said["seconds"] >= len(RECORDING) / RATE - 0.1
    assert said["model"] == "parrot"
    assert said["session"].startswith("live_")
