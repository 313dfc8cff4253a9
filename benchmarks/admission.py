"""Whether admission takes as many sessions as a deployment can carry, and no more.

The true capacity is found with admission opened wide: the most sessions of which at most 1 % of the units are answered
later than a unit after their last sample.  Then sessions arrive one by one until one is refused.  Both in virtual time,
where a step takes exactly what the parrot's cost model says, with the same phases of the clients, which are others in
each round; one worker a stage, no reserve.

`processes_…` is the same once more at `duologue up`, in real time, where all else takes time, too: its capacity is found
there as well, by adding sessions to as many as were admitted.

Targets: `admitted` at least 0.9 of the capacity, `late_share` at most 0.01, `refused_after` at most 100 ms.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from duologue.bench import Figure, Figures
from duologue.client.events import AudioDelta
from duologue.client.live import LiveClient, SessionRefused
from duologue.inprocess import InProcess
from duologue.stage.shell import ShellSettings
from duologue.testing.paced import Outcome, arrive, hold
from duologue.virtual import run_virtual

UNIT_S = 0.08
LATE = 0.01
MOST = 128
EVERY_S = 0.5
SKIP_S, COUNT_S = 0.8, 1.6
MEMORY = {"session_bytes": 100 << 20, "fixed_bytes": 1 << 30}
MEMORY_BYTES = (5 << 30) + (50 << 20)
CASES: dict[str, dict[str, float]] = {
    "rows": {"row_ms": 1.0},
    "batch": {"batch_ms": 6.0, "row_ms": 0.5},
    "memory": MEMORY,
}
"""Cost models by what bounds them; each worker of the deployment has it."""
PROCESSES = {"row_ms": 1.5}
"""The cost model of the real processes: few sessions, since they and their clients share this machine."""
REAL_S = 5.0
WIDE = 1e6
"""Bounds that bound nothing here."""


def run(rounds: int) -> Figures:
    """Each round with other phases."""
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for name, options in CASES.items():
            for key, value in _case(options, _phases(number)).items():
                found.setdefault(f"{name}_{key}", []).append(value)
    found |= {f"processes_{key}": [value] for key, value in _processes(PROCESSES, _phases(0)).items()}
    units = {"capacity": "sessions", "sessions": "sessions", "after": "ms"}
    targets = {"admitted": 0.9, "late_share": LATE, "refused_after": 100.0}
    return {
        key: Figure.of(
            values,
            units.get(key.rpartition("_")[2], "1"),
            next((target for end, target in targets.items() if key.endswith(end)), None),
        )
        for key, values in found.items()
    }


def _phases(number: int) -> list[float]:
    rng = random.Random(number)
    return [rng.uniform(0, UNIT_S) for _ in range(MOST)]


def _case(options: dict[str, float], phases_s: list[float]) -> dict[str, float]:
    capacity = _capacity(options, phases_s)
    admitted = _virtual(options, phases_s, wide=False)
    assert admitted.refusal is not None
    return {
        "capacity": float(capacity),
        "sessions": float(admitted.sessions),
        "admitted": admitted.sessions / capacity,
        "late_share": admitted.late_share,
        "refused_after": 1000 * admitted.refusal.after_s,
    }


def _capacity(options: dict[str, float], phases_s: list[float]) -> int:
    """By doubling, then halving."""
    if "session_bytes" in options:
        return int((MEMORY_BYTES - options["fixed_bytes"]) // options["session_bytes"])
    few, many = 0, 4
    while many < MOST and _virtual(options, phases_s[:many], wide=True).late_share <= LATE:
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        if _virtual(options, phases_s[:middle], wide=True).late_share <= LATE:
            few = middle
        else:
            many = middle
    return few


def _virtual(options: dict[str, float], phases_s: list[float], *, wide: bool) -> Outcome:
    settings = ShellSettings(
        places=MOST,
        memory_bytes=MEMORY_BYTES,
        utilisation=WIDE if wide else ShellSettings.utilisation,
        probe=not wide,
    )
    limits = {"takeover_reserve": 0, **({"deadline_units": WIDE} if wide else {})}

    async def main() -> Outcome:
        async with InProcess(
            "parrot", worker_options=options, settings=settings, limits=limits, seed=1
        ) as deployment:
            if wide:
                return await hold(deployment, phases_s, SKIP_S, COUNT_S)
            return await arrive(deployment, phases_s, EVERY_S, SKIP_S, COUNT_S)

    return run_virtual(main())


# ---------------------------------------------------------------- real processes


def _processes(options: dict[str, float], phases_s: list[float]) -> dict[str, float]:
    with _up(options, {"DUO_PLACES": str(MOST)}) as url:
        admitted, after_s = asyncio.run(_arrive(url, phases_s))
    wide = {"DUO_PLACES": str(MOST), "DUO_UTILISATION": "1", "DUO_DEADLINE_UNITS": "100"}
    with _up(options, wide) as url:
        capacity = asyncio.run(_most(url, phases_s, admitted.sessions))
    return {
        "capacity": float(capacity),
        "sessions": float(admitted.sessions),
        "admitted": admitted.sessions / capacity,
        "late_share": admitted.late_share,
        "refused_after": 1000 * after_s,
    }


@contextmanager
def _up(options: dict[str, float], env: dict[str, str]) -> Iterator[str]:
    """The URL of a deployment of this cost model."""
    command = [sys.executable, "-m", "duologue", "up", "--model", "parrot", "--port", "0", "--json"]
    command += ["--takeover-reserve", "0"]
    command += [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **env}
    ) as up:
        try:
            assert up.stdout is not None
            yield json.loads(up.stdout.readline())["url"]
        finally:
            up.send_signal(signal.SIGTERM)


async def _most(url: str, phases_s: list[float], admitted: int) -> int:
    """The most sessions of at least `admitted` of which at most 1 % of the units are late: more until two counts
    running are beyond it."""
    most, beyond = admitted, 0
    for sessions in range(admitted + 1, len(phases_s)):
        async with _Clients(url) as clients:
            for phase_s in phases_s[:sessions]:
                assert await clients.join(phase_s)
            late = await clients.count()
        most, beyond = (sessions, 0) if late.late_share <= LATE else (most, beyond + 1)
        if beyond == 2:
            break
    return most


async def _arrive(url: str, phases_s: list[float]) -> tuple[Outcome, float]:
    async with _Clients(url) as clients:
        for phase_s in phases_s:
            asked = time.monotonic()
            if not await clients.join(phase_s):
                break
            await asyncio.sleep(EVERY_S)
        after_s = time.monotonic() - asked
        return await clients.count(), after_s


class _Clients:
    """Sessions that stream silence at real time over sockets."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = asyncio.Event()
        self._streams: list[asyncio.Task[list[tuple[float, float]]]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._streams)

    async def join(self, phase_s: float) -> bool:
        """Whether one more session could start."""
        started = asyncio.Event()
        stream = asyncio.create_task(_stream(self._url, phase_s, started, self._stop))
        waiter = asyncio.create_task(started.wait())
        await asyncio.wait({stream, waiter}, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if stream.done():
            await stream
            return False
        self._streams.append(stream)
        return True

    async def count(self) -> Outcome:
        """Late units of the next 5 s, after which the sessions end."""
        await asyncio.sleep(SKIP_S)
        since = time.monotonic()
        await asyncio.sleep(REAL_S)
        self._stop.set()
        times = [pair for each in await asyncio.gather(*self._streams) for pair in each if pair[0] >= since]
        late = sum(answered - due > UNIT_S for due, answered in times)
        return Outcome(len(self._streams), len(times), late)


async def _stream(
    url: str, phase_s: float, started: asyncio.Event, stop: asyncio.Event
) -> list[tuple[float, float]]:
    """(when a unit's last sample was there, when its answer came) of all units; empty if refused."""
    due: list[float] = []
    answered: list[float] = []
    try:
        async with LiveClient.connect(url, model="parrot") as client:
            started.set()

            async def send() -> None:
                begin = (time.monotonic() // UNIT_S + 1) * UNIT_S + phase_s
                while not stop.is_set():
                    at = begin + (len(due) + 1) * UNIT_S
                    await asyncio.sleep(at - time.monotonic())
                    due.append(at)
                    await client.append(bytes(3840))
                await client.finish()

            sending = asyncio.create_task(send())
            async for event in client:
                if isinstance(event, AudioDelta):
                    answered.append(time.monotonic())
            await sending
    except SessionRefused as refused:
        if (refused.code, refused.close_code) != ("session_limit_reached", 1013):
            raise
    return list(zip(due, answered, strict=False))
