"""A whole deployment in one process over the bus in memory: for `duologue offline`, and for tests in virtual time.

It is made of the same pod, roots, shells and model halves as any other; only the transport, the clock and the engine
are others.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from duologue.bus.memory import MemoryBus, MemoryTransport
from duologue.models import STAGES, Manifest, manifest
from duologue.models.manifest import no_prompt
from duologue.stage.engine import InlineEngine
from duologue.stage.loading import load
from duologue.stage.shell import Shell, ShellSettings
from duologue.tracing import UNTRACED, Tracing


class InProcess:
    """One pod, and `workers` shells of each stage (1 by default) for `model` and each of `others`, whose options are
    their defaults, each with its `tracing`.  `recorded` are the options of a session that was recorded, which then every
    session has.  To be used within a running loop:

    async with InProcess("parrot") as deployment:
        session = deployment.pod.connect(client)
    """

    def __init__(
        self,
        model: str,
        *,
        session_options: Mapping[str, Any] | None = None,
        recorded: Mapping[str, Any] | None = None,
        worker_options: Mapping[str, Any] | None = None,
        workers: Mapping[str, int] | None = None,
        settings: ShellSettings | None = None,
        limits: Mapping[str, Any] | None = None,
        seed: int | None = None,
        bus: MemoryBus | None = None,
        gather_s: float | None = None,
        tracing: Callable[[str], Tracing] = lambda service: UNTRACED,
        others: Sequence[str] = (),
    ) -> None:
        self.bus = bus or MemoryBus()
        self.manifest: Manifest = manifest(model)
        self.shells: list[Shell] = []
        self.transports: list[MemoryTransport] = []
        self.fatal: list[str] = []
        given = {model: (session_options or {}, worker_options or {})}
        self._manifests = {each: manifest(each) for each in (model, *others)}
        self._options = {
            each: (found.session_options(sessions), found.worker_options(for_workers))
            for each, found in self._manifests.items()
            for sessions, for_workers in [given.get(each, ({}, {}))]
        }
        if recorded is not None:
            self._manifests[model] = replace(self._manifests[model], prompt=no_prompt)
            self._options[model] = dict(recorded), self._options[model][1]
        self._counts = {stage: (workers or {}).get(stage, 1) for stage in STAGES}
        self._settings = settings or ShellSettings()
        self._limits, self._seed, self._gather_s = dict(limits or {}), seed, gather_s
        self._tracing = tracing

    async def __aenter__(self) -> "InProcess":
        loop = asyncio.get_running_loop()
        api = import_module("duologue_api.pod")
        house = import_module("duologue_api.house")
        for model in self._manifests:
            for stage, count in self._counts.items():
                for _ in range(count):
                    await self.add_worker(stage, model)
        self.pod = api.Pod(
            await self._transport("api"),
            self._manifests,
            options={model: for_sessions for model, (for_sessions, _) in self._options.items()},
            clock=loop.time,
            limits=house.Limits(seed=self._seed, **self._limits),
            gather_s=self._gather_s,
            rng=random.Random(0),
            tracing=self._tracing("api"),
        )
        await self.pod.start()
        await self._until(lambda: not any(map(self.pod.roster.lacking, self._manifests)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pod.stop()
        for shell in self.shells:
            await shell.stop()
        for transport in self.transports:
            await transport.close()

    async def add_worker(self, stage: str, model: str = "") -> Shell:
        """Starts one more worker, of the first model unless another one is named."""
        served = self._manifests[model or self.manifest.id]
        loop = asyncio.get_running_loop()
        engine = InlineEngine(loop)
        half = load(stage, served.id, {**self._options[served.id][1], "sleep": engine.sleep})
        transport = await self._transport(stage)
        shell = Shell(
            stage,
            served,
            half,
            transport,
            engine,
            clock=loop.time,
            settings=self._settings,
            fatal=self.fatal.append,
            tracing=self._tracing(stage),
        )
        await shell.start()
        self.shells.append(shell)
        return shell

    def shell(self, stage: str) -> Shell:
        """The first worker of `stage`."""
        return next(shell for shell in self.shells if shell.stage == stage)

    async def _transport(self, name: str) -> MemoryTransport:
        transport = MemoryTransport(self.bus, f"{name}{len(self.transports)}")
        await transport.connect()
        self.transports.append(transport)
        return transport

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)
