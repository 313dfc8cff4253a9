"""A deployment in memory and virtual time whose workers are struck by faults, with sessions whose every decision can be
told from any other: what the talker draws never repeats, so that a unit that was decided twice shows as a difference."""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from duologue.bus.memory import DELIVER, DROP, LATENCY_S, Fate, MemoryBus, Passage
from duologue.inprocess import InProcess
from duologue.models import STAGES
from duologue.stage.shell import Shell, ShellSettings
from duologue.testing import parrot_reference
from duologue.testing.signals import bursts
from duologue_talker import parrot as talker
from recorder import Recorder, config

UNIT = 1920
RESPAWN_S = 0.5
"""A supervisor starts another worker so long after one ended."""
FORGOTTEN_S = 5.0
"""By then an owner whose close was lost has asked whether it is wanted."""


@dataclass
class Session:
    client: Recorder
    root: Any
    pcm16: Any
    seen: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Records of each unit, as the root got to know them."""


class Struck:
    """`transports` of workers are known by their names to the bus's fate."""

    def __init__(self, deployment: InProcess, options: Mapping[str, Any], seed: int) -> None:
        self.deployment, self.options = deployment, options
        self.rng = random.Random(seed)
        self.sessions: list[Session] = []
        self.dead: set[str] = set()
        self.frozen: dict[str, float] = {}
        """Name → until when nothing reaches or leaves it, though nothing is lost."""
        self.cut: dict[str, float] = {}
        """Name → until when nothing passes between it and the pod."""
        self.lossy: tuple[float, float] = (0.0, 0.0)
        """Share of all messages that is lost, until when."""
        self.slow: tuple[float, float] = (0.0, 0.0)
        """Seconds that a message may take, until when."""
        self.respawn = True
        deployment.bus.fate = self._fate

    # -- faults

    def living(self, stage: str = "") -> list[Shell]:
        return [
            shell
            for shell in self.deployment.shells
            if name_of(shell) not in self.dead and stage in ("", shell.stage)
        ]

    def owning(self, stage: str = "") -> list[Shell]:
        return [shell for shell in self.living(stage) if shell.owners] or self.living(stage)

    def kill(self, shell: Shell) -> None:
        """As `kill -9` does: no goodbye, what it had under way to the bus arrives or not."""
        if name_of(shell) in self.dead:
            return
        self.dead.add(name_of(shell))
        shell._transport.blink(math.inf)
        for timer in shell._timers.values():
            timer.cancel()
        shell._exchange._ticker.cancel()
        shell._tenancy.stop()
        if self.respawn:
            asyncio.get_running_loop().call_later(RESPAWN_S, self._spawn, shell.stage)

    def freeze(self, shell: Shell, seconds: float) -> None:
        self.frozen[name_of(shell)] = asyncio.get_running_loop().time() + seconds

    def partition(self, shell: Shell, seconds: float) -> None:
        """Between it and the pod; the other workers still hear it."""
        self.cut[name_of(shell)] = asyncio.get_running_loop().time() + seconds

    def slow_down(self, shell: Shell, step_s: float, steps: int = 1 << 30) -> None:
        """So many of its next steps take so much longer."""
        step, engine, left = shell.model.step, shell._engine, steps

        def slow(batch: Any) -> Any:
            nonlocal left
            left -= 1
            engine.sleep(step_s if left >= 0 else 0.0)
            return step(batch)

        shell.model.step = slow  # type: ignore[method-assign]

    def hang(self, shell: Shell) -> None:
        """Its next step never ends; the process notices and exits."""
        self.slow_down(shell, 1e6)

    def empty_rings(self, shell: Shell) -> None:
        for owner in shell.owners.values():
            for ring in owner.endpoint.rings.values():
                while ring.start < min(ring.end, ring.sent) and all(
                    outlet.acked > ring.start
                    for outlets in owner.endpoint.outlets.values()
                    for outlet in outlets
                ):
                    ring.bytes -= ring._kept.pop(ring.start).size
                    ring.start += 1

    def _spawn(self, stage: str) -> None:
        task = asyncio.get_running_loop().create_task(self.deployment.add_worker(stage))
        task.add_done_callback(lambda done: self.watch(done.result()))

    def watch(self, shell: Shell) -> None:
        """A worker that ends itself is dead."""
        for holder in (shell, shell._ticks):
            holder._fatal = lambda why: self.kill(shell)

    def _fate(self, passage: Passage) -> Fate:
        now = asyncio.get_running_loop().time()
        ends = passage.sender, passage.receiver
        if any(self.cut.get(end, 0) > now for end in ends) and any(end.startswith("api") for end in ends):
            return DROP
        share, until = self.lossy
        if now < until and self.rng.random() < share:
            return DROP
        thaw = max(self.frozen.get(end, 0.0) for end in ends) - now
        delay = LATENCY_S
        if now < self.slow[1]:
            delay += self.rng.random() ** 4 * self.slow[0]
        if thaw > 0 or delay > LATENCY_S:
            return Fate((max(thaw, 0) + delay,))
        return DELIVER

    # -- sessions

    async def session(self, pcm16: Any) -> Session:
        client = Recorder()
        root = self.deployment.pod.connect(client)
        root.start(config(self.deployment.pod), None)
        await client.until(lambda: client.started)
        session = Session(client, root, pcm16)
        learn = root.ledger.learn

        def learned(unit: int, records: Mapping[str, Any], horizons: Mapping[str, int]) -> None:
            session.seen.setdefault(unit, {}).update(records)
            learn(unit, records, horizons)

        root.ledger.learn = learned
        self.sessions.append(session)
        return session

    async def talk(self, session: Session, pace_s: float = 0.08) -> None:
        data = session.pcm16.tobytes()
        for start in range(0, len(data), 2 * UNIT):
            session.root.append(data[start : start + 2 * UNIT], None)
            await asyncio.sleep(pace_s)

    async def finish(self) -> None:
        """All answers come, and are exact; nothing is left of the sessions."""
        for session in self.sessions:
            units = len(session.pcm16) // UNIT
            await session.client.until(
                lambda session=session, units=units: (
                    len(session.client.units) >= units or session.client.ended is not None
                )
            )
            self.assert_exact(session)
            session.root.request_close(None)
        for session in self.sessions:
            await session.client.until(lambda session=session: session.client.ended is not None)
            assert session.client.ended == (1000, "close_requested")
        until = asyncio.get_running_loop().time() + FORGOTTEN_S
        while (left := self.left()) and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.1)
        assert left == [], "places that nobody gave back"

    def left(self) -> list[tuple[str, Any]]:
        """Owners that still hold a place."""
        return [(shell.address, owner.epoch) for shell in self.living() for owner in shell.owners.values()]

    def assert_exact(self, session: Session) -> None:
        client = session.client
        assert (client.errors, client.ended) == ([], None)
        units = len(session.pcm16) // UNIT
        assert len(client.units) == units == session.root.units_out
        with mock.patch.object(
            parrot_reference, "_draw", lambda seed, unit: session.seen[unit].get("talker", math.nan)
        ):
            answer = parrot_reference.reference(session.pcm16, 11, **self.options)
        wrong = [
            unit
            for unit in range(units)
            if client.units[unit] != answer.pcm16[UNIT * unit : UNIT * (unit + 1)].tobytes()
        ]
        assert wrong == [], f"units {wrong} are not what the ledger says"
        assert client.text == "".join(answer.texts)
        for unit, expected in enumerate(answer.records):
            assert session.seen[unit]["llm"] == expected["llm"], f"record of unit {unit}"


def name_of(shell: Shell) -> str:
    """As the bus's fate knows it."""
    return str(shell._transport.name)


def speech(seed: int, units: int) -> Any:
    rng = random.Random(seed)
    parts: list[tuple[float, bool]] = []
    while sum(length for length, _ in parts) < units * 0.08:
        parts += [(rng.choice([0.2, 0.8, 1.3]), True), (rng.choice([0.3, 0.9, 2.5]), False)]
    return bursts(parts, seed)[: units * UNIT]


@asynccontextmanager
async def struck(
    *,
    seed: int = 0,
    loop: bool = False,
    context_units: int = 4096,
    workers: int = 2,
    ring_bytes: int = 16 << 20,
    worker_options: Mapping[str, Any] | None = None,
    respawn: bool = True,
    settings: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
) -> AsyncIterator[Struck]:
    options = {"loop": loop, "context_units": context_units}
    draws = random.Random(seed)
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(talker, "draw", side_effect=lambda *_: draws.random()))
        async with InProcess(
            "parrot",
            session_options=options,
            worker_options=worker_options or {"batch_ms": 1.0},
            limits=limits,
            seed=11,
            bus=MemoryBus(),
            workers=dict.fromkeys(STAGES, workers),
            settings=ShellSettings(ring_bytes=ring_bytes, **(settings or {})),
        ) as deployment:
            struck = Struck(deployment, options, seed)
            struck.respawn = respawn
            for shell in deployment.shells:
                struck.watch(shell)
            await asyncio.sleep(1.2)
            yield struck
            struck.respawn = False
