"""The whole deployment on this machine, kept alive: `duologue up`."""

import asyncio
import contextlib
import http.client
import json
import signal
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from duologue.bus.server import EmbeddedServer
from duologue.bus.transport import TransportError
from duologue.processes import API_RANK, Deployment, UpSettings, specs
from duologue.supervisor import DEATHS, DEATHS_S, Child, GaveUp, Guard, Report, StartFailed, Supervisor

GRACE_S = 10.0
NATS_LOOK_S, READY_LOOK_S = 0.1, 0.05


async def run(
    settings: UpSettings,
    report: Report,
    on_ready: Callable[[Deployment], None],
    meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> int:
    """Runs it until SIGTERM, SIGINT or SIGHUP, or until `meanwhile` is done, which begins after `on_ready`; leaves nothing
    behind.  A second signal ends it at once.  Returns the exit code.  Raises `StartFailed`, `GaveUp`, `TransportError`,
    `UnknownModel`, `BadOption`, and what `meanwhile` raises."""
    specs(settings, "")
    stop, hurry = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    async with Guard() as guard:
        nats = _Nats(EmbeddedServer(settings.data_dir), guard, report) if settings.nats_url is None else None
        supervisor: Supervisor | None = None
        try:
            if nats is not None:
                await nats.start()
            nats_url = settings.nats_url or (nats.server.url if nats else "")
            supervisor = Supervisor(specs(settings, nats_url), guard, report, grace_s=GRACE_S)
            if await _until(stop, _start(supervisor, settings.start_timeout_s)):
                on_ready(Deployment(nats_url, nats.server if nats else None, supervisor.children))
                works = [supervisor.run(), *([nats.keep()] if nats is not None else [])]
                await _until(stop, _first(*works, *([meanwhile()] if meanwhile is not None else [])))
        finally:
            await _end(supervisor, nats, hurry)
    return 1 if hurry.is_set() else 0


async def _start(supervisor: Supervisor, timeout_s: float) -> None:
    """Returns when sessions can start.  Raises `StartFailed`, `GaveUp`."""
    until = asyncio.get_running_loop().time() + timeout_s
    await supervisor.start(timeout_s)
    # A process that dies again and again is why the others are not ready.
    await _first(supervisor.run(), _ready(supervisor.children, until))


async def _ready(children: Sequence[Child], until: float) -> None:
    """Returns when every API pod would start a session.  Raises `StartFailed`."""
    for child in children:
        while child.spec.rank == API_RANK:
            why = await asyncio.to_thread(_not_ready, str((child.ready or {})["url"]))
            if not why:
                break
            if asyncio.get_running_loop().time() > until:
                raise StartFailed(f"{child.spec.name} is not ready: {why}")
            await asyncio.sleep(READY_LOOK_S)


def _not_ready(url: str) -> str:
    """Why an API pod would start no session yet; empty when it would."""
    # A proxy of the environment does not reach this machine's loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/readyz", timeout=5) as answer:
            said = json.load(answer)
        # A pod is ready with any of its models, and everything was asked for.
        return "" if all(said["models"].values()) else str(said["reason"])
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:  # it ends just now
        return str(error) or type(error).__name__


class _Nats:
    """Keeps the embedded server alive."""

    def __init__(self, server: EmbeddedServer, guard: Guard, report: Report) -> None:
        self.server = server
        self._guard = guard
        self._report = report

    async def start(self) -> None:
        await self.server.start()
        self._guard.add(self.server.pid)

    async def keep(self) -> None:
        """Until cancelled.  Raises `GaveUp`."""
        now = asyncio.get_running_loop().time
        deaths: deque[float] = deque(maxlen=DEATHS)
        while True:
            await asyncio.sleep(NATS_LOOK_S)
            if self.server.alive:
                continue
            self._guard.remove(self.server.pid)
            deaths.append(now())
            if len(deaths) == DEATHS and deaths[-1] - deaths[0] <= DEATHS_S:
                raise GaveUp(f"nats-server ended {DEATHS} times in {DEATHS_S:g} s")
            self._report("nats", "nats-server ended; starting it anew")
            try:
                await self.start()
            except TransportError as error:
                raise GaveUp(str(error)) from None


async def _first(*works: Coroutine[Any, Any, None]) -> None:
    """Until one of them ends or raises; the others are cancelled."""
    tasks = {asyncio.create_task(work) for work in works}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether `work` was done before `stop`, which cancels it."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


async def _end(supervisor: Supervisor | None, nats: _Nats | None, hurry: asyncio.Event) -> None:
    async def kill() -> None:
        await hurry.wait()
        if supervisor is not None:
            supervisor.kill()

    killer = asyncio.create_task(kill())
    try:
        if supervisor is not None:
            await supervisor.stop()
        if nats is not None:
            with contextlib.suppress(TransportError):
                await nats.server.stop()
    finally:
        killer.cancel()
