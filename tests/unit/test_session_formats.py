"""Sessions in every format, in virtual time: any chunking gives the bytes that the whole gives in one go."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from duologue.audio.formats import FORMATS, PCM_24K, PCMA, PCMU, Format
from duologue.inprocess import InProcess
from duologue.virtual import run_virtual
from duologue_api.live import events
from edge_audio import RATE, SEED, UNIT, UNIT_S, answer, utterance
from recorder import Recorder, config

pytestmark = pytest.mark.unit

EVERY_FORMAT = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


def converse(form: Format, chunks: Sequence[bytes], pace: float = 1.0) -> Recorder:
    """A whole session: each chunk when its first sample is due, and the close at once after the last."""

    async def session() -> Recorder:
        loop = asyncio.get_running_loop()
        async with InProcess("parrot", seed=SEED) as deployment:
            client = Recorder()
            root = deployment.pod.connect(client)
            audio = {"format": {"type": form.type, "rate": form.rate}}
            root.start(config(deployment.pod, audio=audio), None)
            began, sent = loop.time(), 0
            for chunk in chunks:
                due = began + sent / form.bytes_per_s / pace
                if due - loop.time() >= 0.001:
                    await asyncio.sleep(due - loop.time())
                root.append(chunk, None)
                sent += len(chunk)
            await client.until(lambda: client.started)
            root.request_close(None)
            await client.until(lambda: client.ended)
            root.disconnected()
            return client

    return run_virtual(session())


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def of(client: Recorder, kind: type) -> list[Any]:
    return [event for event in client.events if isinstance(event, kind)]


def transcript(client: Recorder) -> list[tuple[str, int, int]]:
    spoken = of(client, events.OutputTranscriptDelta)
    assert all(event.end_ms - event.start_ms == 1000 * UNIT_S for event in spoken)
    return [(event.delta, event.start_ms, event.end_ms) for event in spoken]


@EVERY_FORMAT
@pytest.mark.parametrize("milliseconds", [0, 3, 20, 100, 730, 3000])
def test_every_chunk_size_gives_the_same_bytes(form: Format, milliseconds: int) -> None:
    """0 ms: one sample an append."""
    pcm = utterance(form)
    data = form.encode(pcm)
    size = max(1, milliseconds * form.rate // 1000) * form.sample_bytes
    client = converse(form, cut(data, size))
    assert client.ended == (1000, "close_requested")
    assert client.errors == []
    got = b"".join(client.units)
    units = -(-len(pcm) * RATE // (form.rate * UNIT))
    assert len(got) == units * UNIT * form.bytes_per_s // RATE, "n units in, n units out"
    assert got == answer(form, form.decode(data))
    assert " u2 u3 u4" in client.text, "it has spoken"
    assert all(client.units), "no delta is empty"
    assert {len(delta) % form.sample_bytes for delta in client.units} == {0}


@pytest.mark.parametrize("form", [PCMU, PCMA], ids=lambda form: form.name)
def test_odd_and_changing_sizes_are_nothing_special_for_bytes(form: Format) -> None:
    data = form.encode(utterance(form))
    rng = np.random.default_rng(1)
    edges = np.unique(rng.integers(0, len(data), 150)).tolist()
    chunks = [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True) if a < b]
    assert b"".join(converse(form, chunks).units) == answer(form, form.decode(data))


@EVERY_FORMAT
def test_the_session_shows_its_format_and_runs_on_input_time(form: Format) -> None:
    data = form.encode(utterance(form))
    client = converse(form, cut(data, form.bytes_per_s // 10))
    [started] = of(client, events.SessionStarted)
    assert (started.session.audio.format.type, started.session.audio.format.rate) == (form.type, form.rate)
    [closed] = of(client, events.SessionClosed)
    assert closed.session.audio.format == started.session.audio.format
    assert closed.usage.seconds == len(data) // form.bytes_per_s == 2
    same = converse(PCM_24K, cut(PCM_24K.encode(utterance(PCM_24K)), 4800))
    assert transcript(client) == transcript(same) != []


@EVERY_FORMAT
def test_silence_is_silence(form: Format) -> None:
    silence = np.zeros(form.rate, np.int16)
    client = converse(form, cut(form.encode(silence), 500))
    assert set(b"".join(client.units)) == set(form.encode(silence))
    assert client.text == ""


@EVERY_FORMAT
def test_a_session_without_input_has_no_output(form: Format) -> None:
    client = converse(form, [])
    assert client.units == []
    assert [type(event).__name__ for event in client.events] == [
        "SessionStarted",
        "UsageUpdated",
        "SessionClosed",
    ]


def test_input_that_came_before_the_start_is_answered_in_the_right_order() -> None:
    data = PCMU.encode(utterance(PCMU))
    client = converse(PCMU, [data[:1], data[1:8000], data[8000:]], pace=1000)
    assert b"".join(client.units) == answer(PCMU, PCMU.decode(data))
