"""An API pod as a process: `duologue api`."""

import asyncio
import json
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog

from duologue import telemetry
from duologue.bus import subjects
from duologue.bus.nats import NatsTransport
from duologue.bus.tape import Taped
from duologue.models import deal_options, manifest
from duologue.session.retention import Retention
from duologue.tracing import TracingSettings, open_tracing
from duologue_api.app import create_app
from duologue_api.house import DROP_OLDEST, BacklogPolicy, Limits
from duologue_api.pod import Pod
from duologue_api.server import make_server

EXIT_BUS_CLOSED = 69
"""sysexits.h EX_UNAVAILABLE: the bus closed the connection for good."""

EXIT_SERVER_ENDED = 70
STOP_S = 6.0
"""For what is still being sent when the server is told to stop."""

log = structlog.get_logger()


@dataclass(frozen=True)
class ApiSettings:
    """`keys` empty: open to whoever can connect.  `options` are session options, for each model those that it knows."""

    host: str
    port: int
    nats_url: str
    models: tuple[str, ...]
    keys: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    lifetime_s: float = 3600.0
    input_backlog_s: float = 5.0
    input_backlog_policy: BacklogPolicy = DROP_OLDEST
    output_backlog_s: float = 5.0
    output_backlog_close_s: float = 30.0
    ledger_bytes: int = 64 << 20
    takeover_reserve: int | Literal["auto"] = "auto"
    deadline_units: float = 1.0
    retention: Retention = field(default_factory=Retention)
    start_timeout_s: float = 60.0
    drain_s: float = 10.0
    gather_s: float | None = None
    otlp_endpoint: str = ""
    trace_ratio: float = 0.01
    announce: bool = False


async def run(settings: ApiSettings) -> int:
    """Serves until SIGTERM and the drain.  Returns the exit code."""
    loop = asyncio.get_running_loop()
    manifests = {model: manifest(model) for model in settings.models}
    dealt = deal_options({id: found.session_options for id, found in manifests.items()}, settings.options)
    options = {model: manifests[model].session_options(of_model) for model, of_model in dealt.items()}
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int, why: str) -> None:
        if not ended.done():
            log.info("api ends", why=why, code=code)
            ended.set_result(code)

    address = subjects.new_address(subjects.API)
    tracing = open_tracing(
        TracingSettings(settings.otlp_endpoint, settings.trace_ratio),
        service="duologue-api",
        instance=address,
        clock=time.monotonic,
    )
    nats = NatsTransport(
        settings.nats_url, name="duologue-api", on_closed=lambda why: end(EXIT_BUS_CLOSED, why)
    )
    telemetry.CONNECTIONS.watch(nats.stats)
    transport = Taped(nats, clock=time.monotonic)
    await transport.connect()
    pod = Pod(
        transport,
        manifests,
        options=options,
        clock=time.monotonic,
        limits=Limits(
            input_backlog_s=settings.input_backlog_s,
            lifetime_s=settings.lifetime_s,
            ledger_bytes=settings.ledger_bytes,
            seed=settings.seed,
            input_backlog_policy=settings.input_backlog_policy,
            takeover_reserve=settings.takeover_reserve,
            deadline_units=settings.deadline_units,
            retention=settings.retention,
        ),
        gather_s=settings.gather_s,
        address=address,
        tracing=tracing,
    )
    await pod.start()
    app = create_app(
        pod,
        keys=settings.keys,
        start_timeout_s=settings.start_timeout_s,
        output_backlog_s=settings.output_backlog_s,
        output_backlog_close_s=settings.output_backlog_close_s,
    )
    server = make_server(app, settings.host, settings.port)
    serving = asyncio.create_task(server.serve())
    serving.add_done_callback(lambda _: end(EXIT_SERVER_ENDED, "the server ended"))
    draining: asyncio.Task[None] | None = None

    async def drained() -> None:
        pod.drain()
        try:
            await asyncio.wait_for(pod.empty.wait(), settings.drain_s)
        except TimeoutError:
            log.warning("drain ended with sessions left", pod=pod.address, sessions=len(pod.roots))
        end(0, "drained")

    def on_signal() -> None:
        nonlocal draining
        if draining is None:
            draining = asyncio.create_task(drained())
        else:
            end(0, "second signal")

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, on_signal)
    url = f"http://{settings.host}:{server.port}"
    log.info("api ready", pod=pod.address, url=url, models=settings.models)
    if settings.announce:
        print(
            json.dumps(
                {"ready": True, "role": "api", "address": pod.address, "url": url, "pid": os.getpid()}
            ),
            flush=True,
        )
    code = await ended
    await pod.stop()
    server.should_exit = True
    await asyncio.wait({serving}, timeout=STOP_S)
    await transport.close()
    tracing.close()
    return code
