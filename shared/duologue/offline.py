"""`duologue offline`: a recording through a model, in one process and virtual time, with every stage boundary kept."""

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from duologue.boundaries import Boundaries
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.memory import MemoryBus
from duologue.bus.transport import Message
from duologue.inprocess import InProcess
from duologue.models import manifest, split_options
from duologue.virtual import run_virtual

AHEAD_S = 2.0
"""Input is fed at most so far ahead of the output, so that no backlog bound is met."""
STALL_S = 3600.0


class OfflineError(RuntimeError):
    """The session ended before all of the input was answered."""


def observe(boundaries: Boundaries, bus: MemoryBus) -> None:
    """Shows it everything that passes a stage boundary, as the bus carries it."""

    def take(message: Message) -> None:
        if subjects.is_inbox(message.subject):
            for envelope in m.decode(message.data, m.Bundle).units:
                boundaries.take(envelope)

    bus.observe(take)


class Recorder:
    """The client of an offline session."""

    def __init__(self) -> None:
        self.samples: list[bytes] = []
        self.failure = ""
        self.moved = asyncio.Event()
        self.ended = asyncio.Event()
        self.started = False

    def send(self, event: Any) -> None:
        name = type(event).__name__
        if name == "OutputAudioDelta":
            self.samples.append(event.delta)
        elif name == "SessionStarted":
            self.started = True
        elif name == "ErrorEvent":
            self.failure = self.failure or f"{event.error.code}: {event.error.message}"
        self.moved.set()

    def end(self, code: int, reason: str) -> None:
        self.ended.set()
        self.moved.set()

    async def wait(self) -> None:
        """Returns when something has come."""
        self.moved.clear()
        await self.moved.wait()


async def _run(
    model: str, pcm: npt.NDArray[np.int16], options: Mapping[str, Any], seed: int | None
) -> dict[str, Any]:
    live = options.get("live", {})
    worker, session = split_options(manifest(model), {k: v for k, v in options.items() if k != "live"})
    config_of = import_module("duologue_api.live.config").check
    async with InProcess(model, session_options=session, worker_options=worker, seed=seed) as deployment:
        boundaries = Boundaries(deployment.manifest)
        observe(boundaries, deployment.bus)
        client = Recorder()
        root = deployment.pod.connect(client)
        root.start(config_of({"model": model, **live}, deployment.pod.models()), None, native=True)
        unit = deployment.manifest.unit_samples
        ahead = round(AHEAD_S / deployment.manifest.unit_s)
        for at in range(0, len(pcm), unit):
            while len(client.samples) + ahead < at // unit and not client.ended.is_set():
                await client.wait()
            root.append(pcm[at : at + unit].astype("<i2").tobytes(), None)
        while not client.started and not client.ended.is_set():
            await client.wait()
        while len(client.samples) < len(pcm) // unit and not client.ended.is_set():
            await client.wait()
        if not client.ended.is_set():
            root.request_close(None)
        await client.ended.wait()
        root.disconnected()
        if client.failure or deployment.fatal:
            raise OfflineError(client.failure or deployment.fatal[0])
        arrays = boundaries.arrays()
        arrays["pcm16"] = np.frombuffer(b"".join(client.samples), "<i2").astype(np.int16)
        return {"arrays": arrays, "records": boundaries.records()}


def run(
    model: str, pcm: npt.NDArray[np.int16], options: Mapping[str, Any] | None = None, seed: int | None = None
) -> dict[str, Any]:
    """Runs `pcm` (int16 [samples] at the model's input rate) through `model`.

    `options`: the model's options, of a session or of a worker; `live`: further fields of `session.start`.  Returns
    `arrays` (name → array; `pcm16` is the output, int16 at the output rate, whole units) and `records` (one dict a
    unit).  Raises `OfflineError`, `BadOption`.
    """
    return run_virtual(_run(model, pcm, options or {}, seed), limit_s=STALL_S + 10 * len(pcm) / 8000)
