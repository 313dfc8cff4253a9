"""Every format through `duologue up`, from the socket through all processes and back: the bytes that one computes."""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from openai import AsyncOpenAI

from contract.strict_events import strict_event
from duologue.audio.formats import FORMATS, PCMU, Format
from duologue.audio.wav import read_wav, write_wav
from duologue.client import LiveClient, stream
from edge_audio import RATE, SEED, UNIT, answer, utterance

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

EVERY_FORMAT = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


@contextmanager
def up() -> Iterator[str]:
    """The URL of a deployment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DUO_")}
    command = [sys.executable, "-m", "duologue", "up", "--model", "parrot", "--json", "--port", "0"]
    command += ["--seed", str(SEED)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with up() as url:
        yield url


@EVERY_FORMAT
@pytest.mark.parametrize("milliseconds", [2, 20, 3000])
def test_a_recording_is_answered_to_the_byte(url: str, form: Format, milliseconds: int) -> None:
    pcm = utterance(form)

    async def talk() -> Any:
        async with LiveClient.connect(url, model="parrot", form=form) as client:
            return await stream(
                pcm,
                client,
                chunk_bytes=milliseconds * form.bytes_per_s // 1000,
                pace=None,
                unit_samples=UNIT * form.rate // RATE,
            )

    result = asyncio.run(talk())
    assert result.notices == ()
    expected = answer(form, form.decode(form.encode(pcm)))
    assert form.encode(result.pcm16) == expected.replace(b"\x7f", b"\xff") if form is PCMU else expected
    assert result.units_in == result.units_out == 30
    assert " u2 u3 u4" in result.text


@EVERY_FORMAT
def test_talk_takes_any_format(url: str, form: Format, tmp_path: Path) -> None:
    write_wav(tmp_path / "talk.wav", utterance(form), form.rate)
    out = tmp_path / "reply.wav"
    command = [sys.executable, "-m", "duologue", "talk", str(tmp_path / "talk.wav"), "--url", url]
    arguments = ["--format", form.name, "--out", str(out), "--no-pace", "--json"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["format"], said["units_in"], said["units_out"]) == (form.name, 30, 30)
    reply = np.rint(read_wav(out).samples * 32768).astype(np.int16)
    assert reply.tolist() == form.decode(answer(form, form.decode(form.encode(utterance(form))))).tolist()


def test_the_sdk_mutes_updates_and_goes_on_after_mistakes(url: str) -> None:
    data = PCMU.encode(utterance(PCMU))
    first, last = 3001, 5003
    audio = {"format": {"type": "audio/pcmu", "rate": 8000}}
    delegation = {"type": "responses", "responses": {"model": "m"}}

    def append(part: bytes) -> dict[str, Any]:
        return {"type": "session.input_audio.append", "audio": base64.b64encode(part).decode()}

    commands: list[dict[str, Any]] = [
        {"type": "session.input_audio.mute", "event_id": "m1"},
        append(data[first:last]),
        {"type": "session.update", "event_id": "u1", "session": {"model": "other"}},
        {"type": "session.update", "event_id": "u2", "session": {"delegation": {"responses": {"tools": []}}}},
        {"type": "session.input_audio.unmute", "event_id": "m2"},
        {"type": "session.commentary.append", "event_id": "c1", "content": "hm", "delegation_id": None},
        {"type": "session.input_audio.append", "event_id": "a1", "audio": "!"},
        append(data[last:]),
        {"type": "session.close", "event_id": "end"},
    ]

    async def talk() -> list[dict[str, Any]]:
        events = []
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="any", http_client=httpx2.AsyncClient())
        session = {"model": "parrot", "audio": audio, "delegation": delegation}
        async with client, client.live.connect() as live:
            await live.send({"type": "session.start", "session": session})
            await live.send(append(data[:first]))
            async for event in live:
                events.append(strict_event(event.to_dict()))
                if event.type == "session.started":
                    for command in commands:
                        await live.send(command)
        return events

    events = asyncio.run(talk())
    heard = PCMU.decode(data).copy()
    heard[first:last] = 0
    deltas = [base64.b64decode(event["delta"]) for event in events if event["type"].endswith("audio.delta")]
    assert b"".join(deltas) == answer(PCMU, heard)
    answers = [
        (event["type"], event["client_event_id"], event.get("error", {}).get("code"))
        for event in events
        if "client_event_id" in event
    ]
    assert answers == [
        ("session.input_audio.muted", "m1", None),
        ("error", "u1", "immutable_field_update"),
        ("session.updated", "u2", None),
        ("info", "u2", None),
        ("session.input_audio.unmuted", "m2", None),
        ("error", "c1", "unsupported_event"),
        ("error", "a1", "invalid_audio"),
        ("session.closed", "end", None),
    ]
    assert events[-1]["session"]["delegation"]["responses"] == {"model": "m", "tools": []}
