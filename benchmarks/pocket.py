"""How the pocket model converses on this machine: understanding, first audio, interruption, CPU.

`input_wer`: recorded speech (Debian's packages, see `duologue.testing.recordings`; left out where they are not installed)
through the encoder alone.  All else at `duologue up --model pocket` in real time, as a client on the same machine sees it:
ten questions with answers by rule, and four answers that are spoken over.  `first_audio`: from the last sample of the
question's sound to the first sample of the answer's.  `interruption`: from the first sample of the interrupting speech to
the last of the model's.  `cpu_per_talker`: of all its processes, NATS included, while one caller speaks.

Targets: word error rate at most 0.15, first audio at most 1000 ms in the median, interruption at most 300 ms, CPU at most
half a core.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from duologue.audio.formats import PCM_16K
from duologue.bench import Figure, Figures
from duologue.client.events import AudioDelta
from duologue.client.live import LiveClient
from duologue.testing import recordings
from duologue.testing.overheard import encoder, recognition
from duologue.testing.spoken import spoken

RATE = 16_000
CHUNK = RATE // 50
"""20 ms."""
QUESTIONS = (
    "What is seven plus five?",
    "What day is it today?",
    "Please repeat: the train leaves at nine.",
    "What time is it?",
    "How do you spell cat?",
    "What is half of ninety?",
    "Who are you?",
    "Count to five.",
    "What is twelve times twelve?",
    "Thank you very much.",
)
LONG, INTERRUPTION = "What can you do?", "Wait a moment, I have another question for you."
INTERRUPTIONS = 4
PATIENCE_S = 8.0
LOUD = 300
"""A sample above this is sound."""
QUIET_S = 0.4
"""So long without sound, and what was said is over."""

Pcm = npt.NDArray[np.int16]


def run(rounds: int) -> Figures:
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        with _up() as (url, pids):
            cpu_s, begun = _cpu_s(pids), time.monotonic()
            first, over = asyncio.run(_converse(url, number))
            cores = (_cpu_s(pids) - cpu_s) / (time.monotonic() - begun)
        for key, value in (
            ("first_audio_p50", 1000 * float(np.percentile(first, 50))),
            ("first_audio_p95", 1000 * float(np.percentile(first, 95))),
            ("unanswered", float(len(QUESTIONS) - len(first))),
            ("interruption_p50", 1000 * float(np.percentile(over, 50))),
            ("interruption_max", 1000 * max(over)),
            ("cpu_per_talker", cores),
        ):
            found.setdefault(key, []).append(value)
    targets = {
        "first_audio_p50": 1000.0,
        "unanswered": 0.0,
        "interruption_p50": 300.0,
        "cpu_per_talker": 0.5,
    }
    units = {"cpu_per_talker": "cores", "unanswered": "questions"}
    figures = {
        key: Figure.of(values, units.get(key, "ms"), targets.get(key)) for key, values in found.items()
    }
    try:
        said = [*recordings.prompts(), *recordings.read_aloud()]
    except recordings.Missing:
        return figures
    return {**figures, "input_wer": Figure.of([recognition(encoder(), said).word_error_rate], "1", 0.15)}


@contextmanager
def _up() -> Iterator[tuple[str, list[int]]]:
    """URL and process ids of a deployment."""
    command = [sys.executable, "-m", "duologue", "up", "--model", "pocket", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as up:
        try:
            assert up.stdout is not None
            told: dict[str, Any] = json.loads(up.stdout.readline())
            pids = [worker["pid"] for worker in told["workers"]]
            yield told["url"], [*pids, *told["api_pids"], told["nats_pid"]]
        finally:
            up.send_signal(signal.SIGTERM)


def _cpu_s(pids: list[int]) -> float:
    """CPU seconds so far, to the nanosecond (Linux)."""
    tasks = (task for pid in pids for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


async def _converse(url: str, seed: int) -> tuple[list[float], list[float]]:
    """Seconds to the first audio of each answer, and to the end of each answer that was spoken over."""
    async with LiveClient.connect(url, model="pocket", form=PCM_16K) as client:
        line = _Line(client)
        listening = asyncio.create_task(line.listen())
        first, over = [], []
        try:
            await line.say(np.zeros(RATE, np.int16))
            for question in QUESTIONS:
                ended = await line.say(spoken(question, seed=seed))
                if await line.until(partial(line.heard_since, ended)):
                    first.append(line.since(ended)[0] - ended)
                await line.until(line.quiet)
            for _ in range(INTERRUPTIONS):
                ended = await line.say(spoken(LONG, seed=seed))
                await line.until(partial(line.heard_since, ended))
                await line.say(np.zeros(round(1.5 * RATE), np.int16))
                begun = time.monotonic()
                speech = _trimmed(spoken(INTERRUPTION, seed=seed))
                await line.say(speech)
                # The answer to the interruption comes after it.
                stopped = [at for at in line.sounds if at < begun + len(speech) / RATE]
                over.append(max(stopped, default=begun) - begun)
                await line.until(line.quiet)
        finally:
            listening.cancel()
            await asyncio.wait([listening])
    return first, over


class _Line:
    """A call: sends at the pace of speech, silence between what is said, and notes when sound came."""

    def __init__(self, client: LiveClient) -> None:
        self._client = client
        self._next = time.monotonic()
        self.sounds: list[float] = []
        """When each 20 ms with sound in it would be heard: its place in its event after that came."""

    async def listen(self) -> None:
        async for event in self._client:
            if isinstance(event, AudioDelta):
                now, pcm = time.monotonic(), np.frombuffer(event.audio, "<i2")
                for at in range(0, len(pcm), CHUNK):
                    if np.abs(pcm[at : at + CHUNK].astype(int)).max() > LOUD:
                        self.sounds.append(now + at / RATE)

    async def say(self, pcm: Pcm) -> float:
        """Sends it at its pace; returns when its last sound was sent."""
        loud = np.flatnonzero(np.abs(pcm.astype(int)) > LOUD)
        last, ended = int(loud[-1]) if len(loud) else 0, time.monotonic()
        for at in range(0, len(pcm), CHUNK):
            chunk = pcm[at : at + CHUNK]
            self._next += len(chunk) / RATE
            await asyncio.sleep(self._next - time.monotonic())
            await self._client.append(chunk.tobytes())
            if at <= last:
                ended = time.monotonic()
        return ended

    async def until(self, what: Callable[[], bool]) -> bool:
        """Sends silence until `what()`, for a few seconds at most."""
        deadline = time.monotonic() + PATIENCE_S
        while not what() and time.monotonic() < deadline:
            await self.say(np.zeros(CHUNK, np.int16))
        return what()

    def since(self, at: float) -> list[float]:
        return [sound for sound in self.sounds if sound > at]

    def heard_since(self, at: float) -> bool:
        return bool(self.since(at))

    def quiet(self) -> bool:
        return not self.sounds or time.monotonic() - self.sounds[-1] > QUIET_S


def _trimmed(pcm: Pcm) -> Pcm:
    """From its first sound on."""
    return pcm[np.flatnonzero(np.abs(pcm.astype(int)) > LOUD)[0] :]
