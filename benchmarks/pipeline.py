"""The whole path under 16 paced sessions: every hop, every stage, CPU by unit end to end.

`duologue up` with parrot, one worker a stage; sessions start at phases spread over the unit and stream at real time.
Hops and bundles are read from the services' own metrics (means over the measured seconds), CPU from the kernel.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client.parser import text_string_to_metric_families

from duologue.bench import Figure, Figures
from duologue.client.live import LiveClient
from duologue.client.talk import stream
from duologue.testing.signals import speechlike

SESSIONS, SECONDS, WARM_S = 16, 6.0, 2.0
HOPS = [("api", "encoder"), ("encoder", "llm"), ("llm", "talker"), ("talker", "codec"), ("codec", "api")]
Values = Counter[tuple[str, ...]]


def run(rounds: int) -> Figures:
    """Rounds of 6 s each, after 2 s to warm up, on one deployment."""
    with subprocess.Popen(
        [sys.executable, "-m", "duologue", "up", "--model", "parrot", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as up:
        try:
            assert up.stdout is not None
            there = json.loads(up.stdout.readline())
            found = [asyncio.run(_round(there, number)) for number in range(rounds)]
        finally:
            up.send_signal(signal.SIGTERM)
    units = {"hop": "ms", "gather": "ms", "step": "ms", "queue": "ms", "cpu": "us", "lag": "ms"}
    targets = {"units_lost": 0.0}
    return {
        key: Figure.of(
            [each[key] for each in found], units.get(key.partition("_")[0], "units"), targets.get(key)
        )
        for key in found[0]
    }


async def _round(there: dict[str, Any], seed: int) -> dict[str, float]:
    recording = speechlike(WARM_S + SECONDS + 1.0, seed)
    rng = random.Random(seed)
    sessions = [
        asyncio.create_task(_session(there["url"], recording, rng.uniform(0, 0.08))) for _ in range(SESSIONS)
    ]
    await asyncio.sleep(WARM_S)
    before, cpu = await _metrics(there), _cpu_s(there)
    await asyncio.sleep(SECONDS)
    after, cpu_s = await _metrics(there), _cpu_s(there) - cpu
    lost = sum(await asyncio.gather(*sessions))
    return _figures(after - before, cpu_s) | {"units_lost": float(lost)}


async def _session(url: str, recording: npt.NDArray[np.int16], phase_s: float) -> int:
    """Units that were not answered."""
    await asyncio.sleep(phase_s)
    async with LiveClient.connect(url, model="parrot") as client:
        result = await stream(recording, client, chunk_bytes=3840)
        return -(-len(recording) // 1920) - len(result.pcm16) // 1920


def _figures(moved: Values, cpu_s: float) -> dict[str, float]:
    def mean_ms(name: str, *labels: str) -> float:
        return 1e3 * moved[f"{name}_sum", *labels] / max(1.0, moved[f"{name}_count", *labels])

    figures: dict[str, float] = {}
    for hop in HOPS:
        name = "_".join(hop)
        figures[f"hop_{name}_mean"] = mean_ms("duo_hop_seconds", *hop)
        figures[f"units_per_message_{name}"] = (
            moved["duo_units_sent_total", *hop] / moved["duo_bundles_sent_total", *hop]
        )
    figures["gather_api_mean"] = mean_ms("duo_gather_seconds", "api")
    for stage in ("encoder", "llm", "talker", "codec"):
        figures[f"queue_{stage}_mean"] = mean_ms("duo_queue_seconds", "parrot", stage)
        figures[f"step_{stage}_mean"] = mean_ms("duo_step_seconds", "parrot", stage)
    answered = moved["duo_unit_answer_seconds_count", "parrot"]
    figures["lag_mean"] = mean_ms("duo_unit_answer_seconds", "parrot")
    figures["cpu_per_unit"] = 1e6 * cpu_s / answered
    return figures


async def _metrics(there: dict[str, Any]) -> Values:
    """(sample's name, label values in the order of their names) → value, over all processes."""
    urls = [f"{there['url']}/metrics", *(worker["metrics_url"] for worker in there["workers"])]
    values: Values = Counter()
    for text in await asyncio.gather(*(asyncio.to_thread(_get, url) for url in urls)):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if "le" not in sample.labels and not sample.name.endswith("_created"):
                    values[sample.name, *sample.labels.values()] += sample.value
    return values


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def _cpu_s(there: dict[str, Any]) -> float:
    """CPU seconds of the API, the workers and NATS so far (Linux)."""
    pids = [*there["api_pids"], *(worker["pid"] for worker in there["workers"]), there["nats_pid"]]
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
