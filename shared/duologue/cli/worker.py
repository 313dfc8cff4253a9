"""`duologue worker STAGE`: one stage of one model, as in a pod."""

import importlib

from duologue import lifeline
from duologue.cli import loop
from duologue.cli.options import check_stage, parse_options
from duologue.settings import NATS_URL, Settings, of_model


def worker(settings: Settings) -> int:
    """Run one stage of one model."""
    lifeline.watch()
    check_stage(settings.stage or "")
    service = importlib.import_module("duologue.stage.worker")
    ours = service.WorkerSettings(
        stage=settings.stage,
        model=settings.model,
        nats_url=settings.nats or NATS_URL,
        options={**of_model(settings, settings.model or ""), **parse_options(settings.option)},
        places=settings.places,
        memory_bytes=settings.memory_bytes,
        utilisation=settings.utilisation,
        metrics_port=settings.metrics_port,
        metrics_host=settings.metrics_host,
        drain_s=settings.drain_s,
        gather_s=None if settings.gather_ms is None else settings.gather_ms / 1000,
        ring_bytes=settings.ring_bytes,
        otlp_endpoint=settings.otlp_endpoint,
        trace_ratio=settings.trace_ratio,
        announce=settings.announce,
    )
    code: int = loop.run(service.run(ours))
    return code
