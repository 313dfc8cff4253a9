"""`duologue api`: the HTTP and WebSocket edge with its session roots, as in a pod."""

import errno
import importlib
import ipaddress
from typing import Annotated

import typer

from duologue import lifeline
from duologue.cli import loop
from duologue.cli.failure import Failure
from duologue.cli.options import (
    NATS_URL,
    PORT,
    Announce,
    Keys,
    KeysFile,
    Nats,
    Options,
    Seed,
    given,
    parse_options,
    read_keys,
)
from duologue.models import manifest, models


def api(
    host: Annotated[str, typer.Option(envvar="DUO_HOST", help="Interface to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="DUO_PORT", min=0, max=65535, help="0: any port.")] = PORT,
    nats: Nats = NATS_URL,
    model: Annotated[
        list[str] | None,
        typer.Option(envvar="DUO_MODEL", help="Serve this model; repeatable.  Default: all there are."),
    ] = None,
    key: Keys = None,
    keys_file: KeysFile = None,
    no_auth: Annotated[
        bool,
        typer.Option("--no-auth", envvar="DUO_NO_AUTH", help="Serve anybody on this machine without a key."),
    ] = False,
    option: Options = None,
    seed: Seed = None,
    start_timeout_s: Annotated[
        float | None,
        typer.Option(
            envvar="DUO_START_TIMEOUT_S", min=1, help="How long a client may wait with session.start."
        ),
    ] = None,
    lifetime_s: Annotated[
        float | None, typer.Option(envvar="DUO_LIFETIME_S", min=1, help="A session ends after so long.")
    ] = None,
    input_backlog_s: Annotated[
        float | None, typer.Option(envvar="DUO_INPUT_BACKLOG_S", min=0.1, help="Input that may wait.")
    ] = None,
    input_backlog_policy: Annotated[
        str | None,
        typer.Option(
            envvar="DUO_INPUT_BACKLOG_POLICY", help="Of what is beyond: drop_oldest, or close the session."
        ),
    ] = None,
    output_backlog_s: Annotated[
        float | None,
        typer.Option(envvar="DUO_OUTPUT_BACKLOG_S", min=0.1, help="Output held for a slow reader."),
    ] = None,
    output_backlog_close_s: Annotated[
        float | None,
        typer.Option(envvar="DUO_OUTPUT_BACKLOG_CLOSE_S", min=0, help="A reader so long behind is closed."),
    ] = None,
    drain_s: Annotated[
        float | None,
        typer.Option(envvar="DUO_DRAIN_S", min=0, help="After SIGTERM, time for sessions to end."),
    ] = None,
    gather_ms: Annotated[
        float | None, typer.Option(envvar="DUO_GATHER_MS", min=0, help="Wait of a bundle for more units.")
    ] = None,
    announce: Announce = True,
) -> int:
    """Run the API: the Live protocol's edge."""
    lifeline.watch()
    keys = read_keys(key, keys_file)
    check_access(keys, no_auth, host)
    if input_backlog_policy not in (None, "drop_oldest", "close"):
        raise typer.BadParameter(
            f"{input_backlog_policy!r} is neither drop_oldest nor close", param_hint="--input-backlog-policy"
        )
    served = tuple(dict.fromkeys(model or models()))
    for name in served:
        manifest(name)
    service = importlib.import_module("duologue_api.service")
    settings = service.ApiSettings(
        host=host,
        port=port,
        nats_url=nats,
        models=served,
        keys=keys,
        options=parse_options(option),
        announce=announce,
        **given(
            seed=seed,
            start_timeout_s=start_timeout_s,
            lifetime_s=lifetime_s,
            input_backlog_s=input_backlog_s,
            input_backlog_policy=input_backlog_policy,
            output_backlog_s=output_backlog_s,
            output_backlog_close_s=output_backlog_close_s,
            drain_s=drain_s,
            gather_s=None if gather_ms is None else gather_ms / 1000,
        ),
    )
    try:
        code: int = loop.run(service.run(settings))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Failure(f"port {port} of {host} is taken: choose another --port") from None
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
