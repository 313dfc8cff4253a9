"""Keeps a set of local processes alive and leaves none behind."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from duologue import lifeline

Ready = Mapping[str, Any]
"""The JSON object that a process prints on its standard output once it is ready."""
Report = Callable[[str, str], None]
"""Takes (name of a process, a line about or from it)."""

LAST_WORDS = "duologue: "
"""A line on standard error that begins so is why a process ends; it is told with its death."""
DEATHS, DEATHS_S = 5, 10.0
"""So many deaths in so many seconds are no accident any more."""
LINE_BYTES = 16384


class StartFailed(Exception):
    """A process ended before it was ever ready, or was not ready in time."""


class GaveUp(Exception):
    """A process dies again and again."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A process to be kept alive.  `command` gets what the process said when it was first ready, so that one that
    took any port gets the same again.  Processes of a lower `rank` are ended first; one with `before` is ready before
    the others are started."""

    name: str
    command: Callable[[Ready | None], Sequence[str]]
    rank: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    before: bool = False


class Guard:
    """The process that ends the others should this one be killed: an async context manager, to be left when all
    of them are gone."""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "duologue.lifeline",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def add(self, pid: int) -> None:
        self._tell(f"+{pid}\n")

    def remove(self, pid: int) -> None:
        self._tell(f"-{pid}\n")

    def _tell(self, line: str) -> None:
        # Such a line is far below PIPE_BUF and goes out at once.
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())


class Child:
    """One process of a `Spec`, over all its lives."""

    def __init__(self, spec: Spec, guard: Guard, report: Report) -> None:
        self.spec = spec
        self.ready: Ready | None = None
        """What the present, or the last, life said when it was ready."""
        self.first_ready = asyncio.Event()
        self._first: Ready | None = None
        self._guard = guard
        self._report = report
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._tail: deque[str] = deque(maxlen=20)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def keep(self) -> None:
        """Runs the process anew whenever it dies, until `stop`.  Raises `StartFailed`, `GaveUp`."""
        now = asyncio.get_running_loop().time
        deaths: deque[float] = deque(maxlen=DEATHS)
        while not self._stopping:
            self._tail.clear()
            code = await self._live()
            if self._stopping:
                return
            if self._first is None and code >= 0:
                raise StartFailed(self._why(code))
            deaths.append(now())
            recent = sum(deaths[-1] - at <= DEATHS_S for at in deaths)
            if recent == DEATHS:
                lines = "\n".join(f"  {line}" for line in self._tail)
                raise GaveUp(f"{self._why(code)}, {DEATHS} times in {DEATHS_S:g} s; its last lines:\n{lines}")
            self._report(self.spec.name, f"{self._why(code)}; starting it anew")
            await asyncio.sleep(0 if recent == 1 else 0.05 * 2**recent)

    async def stop(self, grace_s: float) -> None:
        """Ends the process; kills it when it is not gone after `grace_s`."""
        self._stopping = True
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            self._report(self.spec.name, f"did not end within {grace_s:g} s")
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        self._stopping = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _live(self) -> int:
        """One life; returns the exit code, negative for a signal."""
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self.spec.command(self._first),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self.spec.env, lifeline.ENV: "1"},
                # The terminal's Ctrl-C is for the supervisor, which ends the others in order.
                start_new_session=True,
            )
        except OSError as error:
            raise StartFailed(f"{self.spec.name}: {error}") from None
        self._guard.add(process.pid)
        if self._stopping:
            # `stop` came while the process was being made, and so could not ask it to end.
            self.kill()
        assert process.stdout is not None
        assert process.stderr is not None
        pumps = asyncio.gather(self._read_output(process.stdout), self._read_errors(process.stderr))
        try:
            code = await process.wait()
            self._guard.remove(process.pid)
            # What a process of its own inherited may stay open; the end is not worth more waiting than this.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await pumps
        finally:
            pumps.cancel()
        return code

    async def _read_output(self, stream: asyncio.StreamReader) -> None:
        ready = False
        async for line in _lines(stream):
            said = None if ready else _ready(line)
            if said is None:
                self._report(self.spec.name, line)
                continue
            ready, self.ready = True, said
            self._first = self._first or said
            self.first_ready.set()

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            self._tail.append(line)
            if not line.startswith(LAST_WORDS):
                self._report(self.spec.name, line)

    def _why(self, code: int) -> str:
        for line in reversed(self._tail):
            if line.startswith(LAST_WORDS):
                return f"{self.spec.name}: {line.removeprefix(LAST_WORDS)}"
        return f"{self.spec.name} {_ending(code)}"


class Supervisor:
    """Starts all `specs`, keeps them alive, ends them in order of rank."""

    def __init__(self, specs: Iterable[Spec], guard: Guard, report: Report, *, grace_s: float = 10.0) -> None:
        self.children = [Child(spec, guard, report) for spec in specs]
        self._grace_s = grace_s
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self, timeout_s: float) -> None:
        """Returns when all are ready.  Raises `StartFailed`, `GaveUp`; `stop` is due then, too."""
        until = asyncio.get_running_loop().time() + timeout_s
        for before in (True, False):
            if not await self._start(
                [child for child in self.children if child.spec.before is before], until
            ):
                late = ", ".join(child.spec.name for child in self.children if not child.first_ready.is_set())
                raise StartFailed(f"not ready within {timeout_s:g} s: {late}")

    async def _start(self, children: Sequence[Child], until: float) -> bool:
        """Whether all `children` are ready in time."""
        self._keepers += [asyncio.create_task(child.keep()) for child in children]
        ready = asyncio.create_task(_all_ready(children))
        left_s = max(0.0, until - asyncio.get_running_loop().time())
        try:
            done, _ = await asyncio.wait(
                {ready, *self._keepers}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ready.cancel()
        for keeper in self._keepers:
            if keeper in done:
                keeper.result()
        return ready in done

    async def run(self) -> None:
        """Keeps them alive until cancelled.  Raises `GaveUp`."""
        # Not `gather`, which would cancel the keepers, too; they read what the processes say while they end.
        done, _ = await asyncio.wait(self._keepers, return_when=asyncio.FIRST_EXCEPTION)
        for keeper in done:
            keeper.result()

    async def stop(self) -> None:
        """Ends all; none is left when this returns."""
        for rank in sorted({child.spec.rank for child in self.children}):
            of_rank = [child for child in self.children if child.spec.rank == rank]
            await asyncio.gather(*(child.stop(self._grace_s) for child in of_rank))
        await asyncio.gather(*self._keepers, return_exceptions=True)

    def kill(self) -> None:
        """Makes a `stop` under way return at once."""
        for child in self.children:
            child.kill()


async def _all_ready(children: Sequence[Child]) -> None:
    await asyncio.gather(*(child.first_ready.wait() for child in children))


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines as they come, over-long ones in pieces."""
    rest = b""
    while data := await stream.read(LINE_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) >= LINE_BYTES:
            lines, rest = [*lines, rest], b""
        for line in lines:
            yield line.decode(errors="replace").rstrip()
    if rest:
        yield rest.decode(errors="replace").rstrip()


def _ready(line: str) -> Ready | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and said.get("ready") is True else None


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
