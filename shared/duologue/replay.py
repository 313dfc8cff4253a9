"""`duologue sessions replay`: a recorded session once more, in one process and virtual time, and what is different.

Model and options are those of the recording; workers, batches and the moments at which units come are others.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import Message
from duologue.inprocess import InProcess
from duologue.models import manifest
from duologue.offline import AHEAD_S, OfflineError, Recorder
from duologue.session.recording import Recording
from duologue.session.segments import Said
from duologue.virtual import run_virtual

ROOT_KEYS = ("root", "controls")
"""Records of the session's old root: what was shed, and when the input was muted; a replay hears the outcome."""
LIMIT_S = 7 * 86_400.0


@dataclass
class Replayed:
    """What a replay made of one session, by unit."""

    said: dict[int, Said] = field(default_factory=dict)
    records: dict[int, dict[str, Any]] = field(default_factory=dict)

    def take(self, envelope: m.Envelope) -> None:
        self.said[envelope.unit] = Said.of(envelope)
        self.records[envelope.unit] = envelope.records

    def differs(self, recording: Recording) -> list[str]:
        """What is not as it was recorded, and in which unit first."""
        missing = [unit for unit in range(recording.units) if unit not in self.said]
        kinds: dict[str, list[int]] = {"answer": missing, "record": [], "audio": [], "text": [], "heard": []}
        for unit in set(range(recording.units)).difference(missing):
            ours = self.said[unit]
            theirs = recording.said.get(unit, ours)  # a recording without output differs in none
            if _decided(self.records[unit]) != _decided(recording.decided[unit].records):
                kinds["record"].append(unit)
            for what, same in (
                ("audio", ours.pcm == theirs.pcm),
                ("text", ours.text == theirs.text),
                ("heard", ours.heard == theirs.heard),
            ):
                if not same:
                    kinds[what].append(unit)
        return [
            f"{what} of {len(units)} units, the first {min(units)}" for what, units in kinds.items() if units
        ]


def _decided(records: Mapping[str, Any]) -> bytes:
    """As they travel: on the way lists and tuples become one."""
    there = {key: record for key, record in sorted(records.items()) if key not in ROOT_KEYS}
    return m.encode(m.Decided(there, {}))


def run(
    recording: Recording,
    *,
    workers: Mapping[str, int] | None = None,
    alongside: int = 0,
    worker_options: Mapping[str, Any] | None = None,
) -> list[Replayed]:
    """Replays it under so many workers of each stage, in `alongside` more sessions at the same time, each a bit later
    than the one before.  Raises `OfflineError` where a session ends early."""
    return run_virtual(_run(recording, workers or {}, alongside, worker_options or {}), limit_s=LIMIT_S)


async def _run(
    recording: Recording, workers: Mapping[str, int], alongside: int, worker_options: Mapping[str, Any]
) -> list[Replayed]:
    record = recording.record
    units = recording.heard(manifest(record.model))[: recording.units]
    async with InProcess(
        record.model,
        recorded=record.options,
        worker_options=worker_options,
        workers=workers,
        seed=record.seed,
    ) as deployment:
        found: dict[str, Replayed] = {}
        deployment.bus.observe(lambda message: _observe(message, found))
        config_of = import_module("duologue_api.live.config").check
        unit_s = deployment.manifest.unit_s

        async def one(number: int) -> Replayed:
            # Sessions never come at the same phase, and not at the same distance either.
            await asyncio.sleep(number * unit_s * (0.37 + number))
            client = Recorder()
            root = deployment.pod.connect(client)
            found[root.sid] = replayed = Replayed()
            root.start(config_of({"model": record.model}, deployment.pod.models()), None, native=True)
            ahead = max(2, round(AHEAD_S / unit_s))
            for number, pcm in enumerate(units):
                while len(client.samples) + ahead <= number and not client.ended.is_set():
                    await client.wait()
                root.append(pcm, None)
            while not client.ended.is_set() and len(client.samples) < len(units):
                await client.wait()
            if not client.ended.is_set():
                root.request_close(None)
            await client.ended.wait()
            root.disconnected()
            if client.failure or deployment.fatal:
                raise OfflineError(client.failure or deployment.fatal[0])
            return replayed

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number)) for number in range(1 + alongside)]
        return [task.result() for task in tasks]


def _observe(message: Message, found: Mapping[str, Replayed]) -> None:
    if (
        subjects.is_inbox(message.subject)
        and subjects.role_of(subjects.address_of(message.subject)) == subjects.API
    ):
        for envelope in m.decode(message.data, m.Bundle).units:
            if envelope.sid in found:
                found[envelope.sid].take(envelope)
