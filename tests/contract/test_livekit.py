"""LiveKit's real client, in an environment of its own, against a real deployment.

What its users write is `AgentSession(llm=GPTLiveModel(base_url=…, api_key=…))`, everything else left at its default.
"""

import base64
import json
import os
import subprocess
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import environments
import hearing_model
from deployment import Deployment, deployment
from duologue.testing.parrot_reference import Reference, reference
from duologue.testing.signals import bursts, speechlike

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]  # the environment may have to be made first

DRIVER = Path(__file__).parent / "clients" / "livekit_driver.py"
SEED, RATE, UNIT = 7, 24_000, 1920
GIVE_UP_S = 120.0
FLOOR = 0.0006
"""The RMS that LiveKit's gate takes for OpenAI's silence."""

Pcm = npt.NDArray[np.int16]


@pytest.fixture(scope="module")
def livekit() -> str:
    try:
        return environments.python("livekit")
    except environments.Unavailable as why:
        if environments.required():
            raise
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def served() -> Iterator[Deployment]:
    """With places for one session."""
    with deployment(seed=SEED, env={"DUO_PLACES": "1"}) as served:
        yield served


@contextmanager
def driver(python: str, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [python, str(DRIVER), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environments.clean(),
    ) as client:
        try:
            yield client
        finally:
            client.kill()


def result(client: "subprocess.Popen[str]") -> dict[str, Any]:
    """What the driver says last, once it is told to close."""
    out, _ = client.communicate("close\n", timeout=GIVE_UP_S)
    assert client.returncode == 0
    said: dict[str, Any] = json.loads(out.splitlines()[-1])
    return said


def record(path: Path, pcm16: Pcm) -> str:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(pcm16.tobytes())
    return str(path)


def generations(answer: Reference) -> list[tuple[bytes, str]]:
    """(audio, transcript) of each stretch of `answer` that LiveKit takes for the agent's speech: from a unit louder
    than three times its floor until 0.8 s are below 1.8 times."""
    found: list[tuple[list[bytes], str]] = []
    is_open, quiet_s = False, 0.0
    for unit, text in zip(answer.pcm16.reshape(-1, UNIT), answer.texts, strict=True):
        rms = float(np.sqrt(np.mean(np.square(unit.astype(np.float32))))) / 32768
        if not is_open and rms > 3 * FLOOR:
            is_open, quiet_s = True, 0.0
            found.append(([], ""))
        elif is_open:
            quiet_s = quiet_s + UNIT / RATE if rms < 1.8 * FLOOR else 0.0
            is_open = quiet_s < 0.8
        if is_open:
            audio, said = found[-1]
            found[-1] = ([*audio, unit.astype("<i2").tobytes()], said + text)
        else:
            assert not text, "text without sound would be said in another generation"
    return [(b"".join(audio), said) for audio, said in found]


def heard(said: list[dict[str, str]]) -> list[tuple[bytes, str]]:
    return [(base64.b64decode(each["pcm"]), each["text"]) for each in said]


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def test_it_starts_hears_speaks_and_closes_and_is_refused_where_there_is_no_place(
    livekit: str, served: Deployment, tmp_path: Path
) -> None:
    recording = np.concatenate([speechlike(6.0, seed=3), np.zeros(3 * RATE, np.int16)])
    expected = generations(reference(recording, SEED))
    assert len(expected) > 1, "a recording with more than one answer"
    url = f"{served.url}/v1"

    with (
        driver(livekit, "talk", url, record(tmp_path / "in.wav", recording)) as talking,
        driver(livekit, "refused", url) as waiting,
    ):
        assert talking.stdout is not None
        started = talking.stdout.readline()
        refused = result(waiting)
        said = result(talking)

    assert json.loads(started)["started"].startswith("live_")
    assert heard(said["generations"]) == expected
    assert (said["errors"], said["reconnects"]) == ([], 0)
    assert said["closed_s"] < 5
    events = said["received"]
    assert types(events) == [
        "session.started",
        "info",
        "info",
        "info",
        "info",
        "session.usage.updated",
        "session.closed",
    ]
    assert [event["code"] for event in events[1:5]] == [
        "model_mapped",
        "voice_mapped",
        "unsupported_instructions",
        "unsupported_delegation",
    ]
    assert events[0]["session"]["model"] == "parrot"
    assert events[-2]["usage"] == events[-1]["usage"] == {"seconds": 9.0}
    assert events[-1]["reason"] == "close_requested"

    # Refused four times, it gives up for good.
    assert refused["sent"] == ["session.start"]
    assert [event["error"]["code"] for event in refused["received"]] == ["session_limit_reached"] * 4
    assert refused["errors"].count(False) == 1
    assert refused["errors"][-1] is False
    assert refused["reconnects"] == 3
    assert refused["closed_s"] < 1
    metrics = served.metrics("api")
    assert metrics.total("duo_sessions_refused_total", code="session_limit_reached") == 4
    assert metrics.total("duo_sessions_started_total") == 1


def test_an_agent_is_told_what_the_user_said(livekit: str, tmp_path: Path) -> None:
    recording = bursts([(0.4, False), (1.0, True), (3.0, False), (0.6, True), (3.0, False)], seed=5)
    words = list(hearing_model.heard([bool(each) for each in reference(recording, SEED).active]))
    expected = ["".join(text for text, *_ in words[at : at + 2]).strip() for at in (0, 2)]
    path = f"{hearing_model.install(tmp_path)}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with (
        deployment(seed=SEED, model=hearing_model.ID, env={"PYTHONPATH": path}) as served,
        driver(livekit, "agent", f"{served.url}/v1", record(tmp_path / "in.wav", recording)) as client,
    ):
        said = result(client)
    assert [turn.strip() for turn in said["turns"]] == expected
    assert [item.strip() for item in said["user_items"]] == expected
    assert said["user_states"].count("speaking") == 2
    assert (said["errors"], said["agent_errors"], said["reconnects"]) == ([], [], 0)


def test_a_whole_agent_hears_and_speaks(livekit: str, served: Deployment, tmp_path: Path) -> None:
    recording = bursts([(0.4, False), (1.0, True), (4.0, False)], seed=5)
    expected = generations(reference(recording, SEED))
    with driver(livekit, "agent", f"{served.url}/v1", record(tmp_path / "in.wav", recording)) as client:
        said = result(client)
    assert heard(said["played"]) == expected
    assert (said["errors"], said["agent_errors"], said["reconnects"]) == ([], [], 0)
    assert types(said["received"])[-1] == "session.closed"
    assert said["closed_s"] < 5
