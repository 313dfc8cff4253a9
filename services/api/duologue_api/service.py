"""An API pod as a process: `duologue api`."""

import asyncio
import json
import os
import signal
from dataclasses import dataclass, field
from typing import Any

import structlog

from duologue.bus.nats import NatsTransport
from duologue.models import manifest
from duologue_api.app import create_app
from duologue_api.pod import Pod
from duologue_api.root import Limits
from duologue_api.server import make_server

EXIT_BUS_CLOSED = 69
"""sysexits.h EX_UNAVAILABLE: the bus closed the connection for good."""

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
    limits: Limits = field(default_factory=Limits)
    start_timeout_s: float = 60.0
    drain_s: float = 10.0
    gather_s: float | None = None
    announce: bool = False


async def run(settings: ApiSettings) -> int:
    """Serves until SIGTERM and the drain.  Returns the exit code."""
    loop = asyncio.get_running_loop()
    manifests = {model: manifest(model) for model in settings.models}
    options = {model: found.session_options(settings.options) for model, found in manifests.items()}
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    transport = NatsTransport(
        settings.nats_url, name="duologue-api", on_closed=lambda why: (log.error("bus closed", why=why), end(EXIT_BUS_CLOSED))[1]
    )
    await transport.connect()
    pod = Pod(
        transport, manifests, options=options, clock=loop.time, limits=settings.limits, gather_s=settings.gather_s
    )
    await pod.start()
    app = create_app(pod, keys=settings.keys, start_timeout_s=settings.start_timeout_s)
    server = make_server(app, settings.host, settings.port)
