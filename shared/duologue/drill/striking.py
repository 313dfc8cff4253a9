"""Faults done to the processes of a deployment on this machine."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path

from duologue.bus.subjects import role_of
from duologue.drill.fault import Act, Fault
from duologue.models import STAGES
from duologue.processes import Deployment
from duologue.supervisor import Child

SIGNALS = {Act.KILL: signal.SIGKILL, Act.TERM: signal.SIGTERM}
WHOLE_S = 30.0
LOOK_S = 0.02


class NotWhole(Exception):
    """What a fault ended did not come back."""


class Striker:
    """Strikes one process of each role that a fault names, drawn at random; `whole` waits until all are there again.
    `hang_dir` is the parrot's option."""

    def __init__(self, deployment: Deployment, rng: random.Random, hang_dir: Path) -> None:
        self._deployment, self._rng, self._hang_dir = deployment, rng, hang_dir
        self._lives: dict[Child, object] = {}
        """What those that were ended had said when they were ready."""
        self._dead_nats: int | None = None

    async def strike(self, fault: Fault) -> list[str]:
        """The names of those struck, once it is over."""
        if fault.act in (Act.RESTART, Act.BLIP):
            return await self._strike_nats(fault)
        struck = [self._rng.choice(self._of(role)) for role in fault.roles or (self._rng.choice(STAGES),)]
        if fault.act is Act.STOP:
            await _stopped([child.pid for child in struck if child.pid is not None], fault.seconds)
        else:
            for child in struck:
                self._lives[child] = child.ready
                if fault.act is Act.HANG:
                    (self._hang_dir / str(child.pid)).touch()
                else:
                    _signal(child.pid, SIGNALS[fault.act])
        return [child.spec.name for child in struck]

    async def whole(self) -> None:
        """Returns when everything that was ended is ready again.  Raises `NotWhole`."""
        try:
            async with asyncio.timeout(WHOLE_S):
                while self._missing():  # noqa: ASYNC110 (nobody announces it)
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise NotWhole(f"not back after {WHOLE_S:g} s: {', '.join(self._missing())}") from None
        self._lives.clear()

    def _missing(self) -> list[str]:
        found = [child.spec.name for child, said in self._lives.items() if child.ready is said]
        nats = self._dead_nats is not None and self._deployment.nats_pid == self._dead_nats
        return [*found, *(["nats"] if nats else [])]

    def _of(self, role: str) -> list[Child]:
        return [
            child
            for child in self._deployment.children
            if child.ready is not None and role_of(str(child.ready.get("address", ""))) == role
        ]

    async def _strike_nats(self, fault: Fault) -> list[str]:
        pid = self._deployment.nats_pid
        assert pid is not None
        if fault.act is Act.BLIP:
            await _stopped([pid], fault.seconds)
        else:
            self._dead_nats = pid
            _signal(pid, signal.SIGKILL)
        return ["nats"]


async def _stopped(pids: Sequence[int], seconds: float) -> None:
    """They stand still for so long; what ended meanwhile is not told."""
    for pid in pids:
        _signal(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        for pid in pids:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
