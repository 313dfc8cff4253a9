"""The processes of a deployment on this machine, and what is told about them."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from duologue.models import deal_options, manifest, split_options
from duologue.settings import settings_of
from duologue.supervisor import Child, Ready, Spec

API_RANK, WORKER_RANK, TAP_RANK = 0, 1, 2
"""The APIs end first: their sessions' ends free the workers, which then have nothing to drain; the tap sees all that."""
API_DRAIN_S, DRAIN_S = 0.5, 5.0
"""The sessions of an API that ends have nowhere to go here."""


@dataclass(frozen=True)
class UpSettings:
    """`workers` are those of each model.  `nats_url` joins a server that runs already.  `keys` empty: open, on loopback
    as always.  With `port` 0 each API pod takes any port, else they take `port`, `port` + 1, …  Every stage boundary is
    written to `tap_dir`, by a process that takes `tap_mib` of memory for those sessions that are not over yet."""

    models: tuple[str, ...]
    port: int = 8700
    workers: Mapping[str, int] = field(default_factory=dict)
    api_pods: int = 1
    seed: int | None = None
    takeover_reserve: int | Literal["auto"] = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    nats_url: str | None = None
    data_dir: Path | None = None
    tap_dir: Path | None = None
    tap_mib: int = 512
    start_timeout_s: float = 120.0
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of all processes beyond this one's."""
    keep_ledger: bool = False


def specs(settings: UpSettings, nats_url: str) -> list[Spec]:
    """All processes but NATS.  Keys and NATS credentials go by environment, where other users can't see them.
    Raises `UnknownModel`, `BadOption`."""
    manifests = {model: manifest(model) for model in settings.models}
    dealt = deal_options(
        {id: partial(split_options, found) for id, found in manifests.items()}, settings.options
    )
    program = [sys.executable, "-m", "duologue"]
    # What `up` was itself given by environment is not meant for those it starts.
    meant_for_up = dict.fromkeys(("DUO_CONFIG", "DUO_OPTION", "DUO_KEYS_FILE", "DUO_NO_AUTH", "DUO_KEY"), "")
    env = {**settings.env, **meant_for_up, "DUO_NATS": nats_url}
    found = []
    if settings.tap_dir is not None:
        # A process of its own: a slow disk must hurt no session.
        command = [
            *program,
            "tap",
            "--write",
            str(settings.tap_dir.resolve()),
            "--tap-mib",
            str(settings.tap_mib),
        ]
        # Nor what a tap that prints would be given.
        unset = {row.env: "" for row in settings_of("tap") if row.key != "nats"}
        found.append(Spec("tap", _always([*command, "--announce"]), TAP_RANK, {**env, **unset}, before=True))
    for_sessions: dict[str, Any] = {}
    for model, options in dealt.items():
        for_workers, of_sessions = split_options(manifests[model], options)
        for_sessions |= of_sessions
        family = f"{model}-" if len(manifests) > 1 else ""
        for stage, count in settings.workers.items():
            command = [*program, "worker", stage, "--model", model, "--announce", "--metrics-port", "0"]
            command += ["--drain-s", f"{DRAIN_S:g}", *_as_flags(for_workers)]
            for number in range(1, count + 1):
                found.append(Spec(f"{family}{stage}-{number}", _always(command), WORKER_RANK, env))
    for pod in range(settings.api_pods):
        command = [*program, "api", *(word for model in manifests for word in ("--model", model))]
        command += ["--announce", "--host", "127.0.0.1", "--drain-s", f"{API_DRAIN_S:g}"]
        command += [*_as_flags(for_sessions), "--takeover-reserve", str(settings.takeover_reserve)]
        command += ["--seed", str(settings.seed)] if settings.seed is not None else []
        command += ["--keep-ledger"] if settings.keep_ledger else []
        command += [] if settings.keys else ["--no-auth"]
        port = settings.port + pod if settings.port else 0
        of_api = {**env, "DUO_KEY": " ".join(settings.keys)}
        found.append(Spec(f"api-{pod + 1}", _at_port(command, port), API_RANK, of_api))
    return found


class Server(Protocol):
    """What is told of the embedded nats-server."""

    @property
    def pid(self) -> int: ...


@dataclass(frozen=True)
class Deployment:
    """What runs, once it is ready."""

    nats_url: str
    nats: Server | None
    """That of our own."""
    children: Sequence[Child]

    @property
    def nats_pid(self) -> int | None:
        """Of its present life, or the last."""
        return self.nats.pid if self.nats is not None else None

    def summary(self) -> dict[str, Any]:
        """The JSON object of `duologue up --json`."""
        apis = [child for child in self.children if child.spec.rank == API_RANK]
        workers = [child for child in self.children if child.spec.rank == WORKER_RANK]
        urls = [str((child.ready or {})["url"]) for child in apis]
        live = [f"{url.replace('http', 'ws', 1)}/v1/live/sessions" for url in urls]
        return {
            "url": urls[0],
            "live_url": live[0],
            "live_urls": live,
            "nats_url": self.nats_url,
            "nats_pid": self.nats_pid,
            "api_pids": [child.pid for child in apis],
            "workers": [_worker(child) for child in workers],
        }


def _always(command: Sequence[str]) -> Callable[[Ready | None], Sequence[str]]:
    return lambda _: command


def _at_port(command: Sequence[str], port: int) -> Callable[[Ready | None], Sequence[str]]:
    """One that was given any port gets the same again, since clients know it."""

    def with_port(first: Ready | None) -> Sequence[str]:
        taken = int(str(first["url"]).rpartition(":")[2]) if first else port
        return [*command, "--port", str(taken)]

    return with_port


def _as_flags(options: Mapping[str, Any]) -> list[str]:
    flags = []
    for name, value in options.items():
        flags += ["--option", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    return flags


def _worker(child: Child) -> dict[str, Any]:
    said = child.ready or {}
    stage, _, worker = str(said["address"]).partition(".")
    known = {name: said.get(name) for name in ("model", "metrics_url")}
    return {"stage": stage, "worker": worker, "pid": child.pid, **known}
