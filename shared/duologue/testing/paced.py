"""Sessions that stream silence at real time against a pod in memory, and how many of their units are answered late."""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from duologue.inprocess import InProcess

ANSWERS_S = 1.0
"""So long after the last unit answers still count as such."""


class Refusal(NamedTuple):
    code: str
    close_code: int
    after_s: float
    """From `session.start` to the close."""


class Outcome(NamedTuple):
    """`late` of `units` units were answered later than one unit after their last sample, or never."""

    sessions: int
    units: int
    late: int
    refusal: Refusal | None = None

    @property
    def late_share(self) -> float:
        return self.late / self.units if self.units else 0.0


class PacedSession:
    """A client whose units end `phase_s` after each multiple of the unit on the loop's clock."""

    def __init__(self, deployment: InProcess, phase_s: float, model: str = "") -> None:
        self._pod, self._loop = deployment.pod, asyncio.get_running_loop()
        self._manifest = self._pod.manifest(model or deployment.manifest.id)
        self._phase_s = phase_s
        self._due: list[float] = []
        """When the last sample of each unit was there."""
        self._answered: list[float] = []
        self._error = ""
        self.refusal: Refusal | None = None
        self._settled = asyncio.Event()
        self._stop = asyncio.Event()
        self._streaming: asyncio.Task[None] | None = None

    async def start(self) -> bool:
        """Whether the session could start; it streams from then on."""
        models = self._pod.models()
        config = import_module("duologue_api.live.config").check({"model": self._manifest.id}, models)
        self._asked = self._loop.time()
        self._root: Any = self._pod.connect(self)
        self._root.start(config, None)
        await self._settled.wait()
        if self.refusal is None:
            self._streaming = asyncio.create_task(self._stream())
        return self.refusal is None

    async def leave(self) -> None:
        """Ends the streaming, waits for answers under way, and hangs up."""
        self._stop.set()
        if self._streaming is not None:
            await self._streaming
            await asyncio.sleep(ANSWERS_S)
        self._root.disconnected()

    def counted(self, since: float) -> tuple[int, int]:
        """(units, late ones) of those that were complete after `since`."""
        units = late = 0
        for number, due in enumerate(self._due):
            if due >= since:
                units += 1
                answered = self._answered[number] if number < len(self._answered) else float("inf")
                late += answered - due > self._manifest.unit_s
        return units, late

    async def _stream(self) -> None:
        unit_s, silence = self._manifest.unit_s, bytes(2 * self._manifest.unit_samples)
        begin = (self._loop.time() // unit_s + 1) * unit_s + self._phase_s
        while not self._stop.is_set():
            due = begin + (len(self._due) + 1) * unit_s
            await asyncio.sleep(due - self._loop.time())
            self._due.append(due)
            self._root.append(silence, None)

    # Client
    def send(self, event: Any) -> None:
        match type(event).__name__:
            case "OutputAudioDelta":
                self._answered.append(self._loop.time())
            case "SessionStarted":
                self._settled.set()
            case "ErrorEvent":
                self._error = event.error.code

    def end(self, code: int, reason: str) -> None:
        if not self._settled.is_set():
            self.refusal = Refusal(self._error, code, self._loop.time() - self._asked)
        self._settled.set()


async def hold(deployment: InProcess, phases_s: Sequence[float], skip_s: float, seconds: float) -> Outcome:
    """As many sessions as there are phases, all at once; counts `seconds` after `skip_s`."""
    sessions = [PacedSession(deployment, phase_s) for phase_s in phases_s]
    started = await asyncio.gather(*(session.start() for session in sessions))
    if not all(started):
        raise RuntimeError(f"{len(started) - sum(started)} sessions could not start")
    await asyncio.sleep(skip_s)
    return await _count(sessions, seconds)


async def arrive(
    deployment: InProcess, phases_s: Sequence[float], every_s: float, skip_s: float, seconds: float
) -> Outcome:
    """One session after the other until one is refused (or there are no more phases); counts `seconds` with those
    that were admitted, after `skip_s`."""
    sessions: list[PacedSession] = []
    refusal = None
    for phase_s in phases_s:
        session = PacedSession(deployment, phase_s)
        if not await session.start():
            refusal = session.refusal
            await session.leave()
            break
        sessions.append(session)
        await asyncio.sleep(every_s)
    await asyncio.sleep(skip_s)
    return (await _count(sessions, seconds))._replace(refusal=refusal)


async def _count(sessions: Sequence[PacedSession], seconds: float) -> Outcome:
    since = asyncio.get_running_loop().time()
    await asyncio.sleep(seconds)
    await asyncio.gather(*(session.leave() for session in sessions))
    counts = [session.counted(since) for session in sessions]
    return Outcome(len(sessions), sum(units for units, _ in counts), sum(late for _, late in counts))
