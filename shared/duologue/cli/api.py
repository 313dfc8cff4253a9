"""`duologue api`: the HTTP and WebSocket edge with its session roots, as in a pod."""

import errno
import importlib
import ipaddress

import typer

from duologue import lifeline
from duologue.cli import loop
from duologue.cli.failure import Failure
from duologue.cli.options import parse_options, read_keys
from duologue.models import manifest, models
from duologue.session.retention import Retention
from duologue.settings import NATS_URL, Settings


def api(settings: Settings) -> int:
    """Run the API: the Live protocol's edge."""
    lifeline.watch()
    keys = read_keys(settings.key, settings.keys_file)
    check_access(keys, settings.no_auth, settings.host)
    asked = settings.models or ([settings.model] if settings.model else models())
    served = tuple(dict.fromkeys(asked))
    for name in served:
        manifest(name)
    service = importlib.import_module("duologue_api.service")
    ours = service.ApiSettings(
        host=settings.host,
        port=settings.port,
        nats_url=settings.nats or NATS_URL,
        models=served,
        keys=keys,
        options=parse_options(settings.option),
        seed=settings.seed,
        start_timeout_s=settings.start_timeout_s,
        lifetime_s=settings.lifetime_s,
        input_backlog_s=settings.input_backlog_s,
        input_backlog_policy=settings.input_backlog_policy,
        output_backlog_s=settings.output_backlog_s,
        output_backlog_close_s=settings.output_backlog_close_s,
        ledger_bytes=settings.ledger_bytes,
        takeover_reserve=settings.takeover_reserve,
        deadline_units=settings.deadline_units,
        retention=Retention(
            everything=settings.keep_ledger,
            ledger_age_s=settings.ledger_age_s,
            ledger_bytes=settings.ledger_mib << 20,
            store_age_s=settings.store_age_s,
            store_bytes=settings.store_mib << 20,
        ),
        drain_s=settings.drain_s,
        gather_s=None if settings.gather_ms is None else settings.gather_ms / 1000,
        otlp_endpoint=settings.otlp_endpoint,
        trace_ratio=settings.trace_ratio,
        announce=settings.announce,
    )
    try:
        code: int = loop.run(service.run(ours))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Failure(
                f"port {settings.port} of {settings.host} is taken: choose another --port"
            ) from None
        raise
    return code


def check_access(keys: tuple[str, ...], no_auth: bool, host: str) -> None:
    """An open server is asked for, and listens on loopback only.  Raises `Failure`, `BadParameter`."""
    if keys and no_auth:
        raise typer.BadParameter("there are keys; either they or --no-auth", param_hint="--no-auth")
    if not keys and not no_auth:
        raise Failure("no keys: give --key or --keys-file, or --no-auth for a server open to this machine")
    if no_auth and not _loopback(host):
        raise Failure(f"an open server listens on this machine only, not on {host}: give it keys")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
