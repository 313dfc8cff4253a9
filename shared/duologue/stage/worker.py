"""A stage worker as a process: `duologue worker STAGE`."""

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import structlog
from prometheus_client import start_http_server

from duologue import telemetry
from duologue.bus import subjects
from duologue.bus.nats import NatsTransport
from duologue.bus.tape import Taped
from duologue.memory import sessions_budget
from duologue.models import manifest
from duologue.stage.engine import ThreadEngine
from duologue.stage.loading import load
from duologue.stage.shell import Shell, ShellSettings
from duologue.tracing import TracingSettings, open_tracing

EXIT_ENGINE_DEATH = 70
"""sysexits.h EX_SOFTWARE: the model failed or hung; sessions here are lost to this process."""
EXIT_BUS_CLOSED = 69
"""EX_UNAVAILABLE: the bus closed the connection for good."""

log = structlog.get_logger()


@dataclass(frozen=True)
class WorkerSettings:
    """`options` are the model's worker options (see its manifest); `metrics_port` 0 takes any, None serves none."""

    stage: str
    model: str
    nats_url: str
    options: dict[str, Any] = field(default_factory=dict)
    places: int = 64
    memory_bytes: int | None = None
    """None: what is free when the model is loaded, less a margin."""
    utilisation: float = 0.85
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    drain_s: float = 10.0
    gather_s: float | None = None
    ring_bytes: int = 16 << 20
    otlp_endpoint: str = ""
    trace_ratio: float = 0.01
    announce: bool = False


async def run(settings: WorkerSettings) -> int:
    """Serves until SIGTERM and the drain, or a fatal error.  Returns the exit code."""
    loop = asyncio.get_running_loop()
    found = manifest(settings.model)
    options = found.worker_options(settings.options)
    address = subjects.new_address(settings.stage)
    tracing = open_tracing(
        TracingSettings(settings.otlp_endpoint, settings.trace_ratio),
        service=f"duologue-{settings.stage}",
        instance=address,
        clock=time.monotonic,
    )
    engine = ThreadEngine(loop)
    model = await loop.run_in_executor(
        None, load, settings.stage, settings.model, {**options, "sleep": engine.sleep}
    )
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int, why: str) -> None:
        if not ended.done():
            log.error("worker ends", stage=settings.stage, why=why, code=code)
            ended.set_result(code)

    nats = NatsTransport(
        settings.nats_url, name=f"duologue-{settings.stage}", on_closed=lambda why: end(EXIT_BUS_CLOSED, why)
    )
    telemetry.CONNECTIONS.watch(nats.stats)
    transport = Taped(nats, clock=time.monotonic)
    await transport.connect()
    memory_bytes = settings.memory_bytes
    if memory_bytes is None:
        each = model.footprint()
        budget = sessions_budget(each.free_bytes)
        memory_bytes = None if budget is None else each.fixed_bytes + budget
    shell = Shell(
        settings.stage,
        found,
        model,
        transport,
        engine,
        clock=time.monotonic,
        settings=ShellSettings(
            places=settings.places,
            gather_s=settings.gather_s,
            ring_bytes=settings.ring_bytes,
            memory_bytes=memory_bytes,
            utilisation=settings.utilisation,
            probe=True,
        ),
        fatal=lambda why: end(EXIT_ENGINE_DEATH, why),
        address=address,
        tracing=tracing,
    )
    await shell.start()
    metrics_url = None
    if settings.metrics_port is not None:
        server, _ = start_http_server(settings.metrics_port, settings.metrics_host)
        metrics_url = f"http://{settings.metrics_host}:{server.server_port}/metrics"
    if settings.announce:
        ready = {"ready": True, "role": settings.stage, "model": settings.model, "address": shell.address}
        print(json.dumps({**ready, "metrics_url": metrics_url}), flush=True)
    log.info("worker ready", worker=shell.address, model=settings.model, places=shell.places)

    draining: asyncio.Task[None] | None = None

    async def drained() -> None:
        shell.drain()
        try:
            await asyncio.wait_for(shell.empty.wait(), settings.drain_s)
        except TimeoutError:
            log.warning("drain ended with sessions left", worker=shell.address, sessions=len(shell.owners))
        if not ended.done():
            ended.set_result(0)

    def on_signal() -> None:
        nonlocal draining
        if draining is None:
            draining = asyncio.create_task(drained())
        elif not ended.done():
            ended.set_result(0)

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, on_signal)
    code = await ended
    if code == EXIT_ENGINE_DEATH:
        # The model thread may hang in foreign code, which no interpreter shutdown survives.
        sys.stderr.flush()
        os._exit(code)
    await shell.stop()
    await transport.close()
    tracing.close()
    return code
