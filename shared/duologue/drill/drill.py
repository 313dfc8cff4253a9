"""A whole drill: on a deployment that is started for it, or on one that is there."""

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duologue import allinone
from duologue.bench import machine
from duologue.client import Model, models
from duologue.drill import clients
from duologue.drill.caller import Place
from duologue.drill.fault import ANYWHERE, CLIENTS, Act, Fault
from duologue.drill.moves import watched
from duologue.drill.report import report
from duologue.drill.rounds import Answers, Round, run_round
from duologue.drill.striking import Striker
from duologue.models import split_options
from duologue.models.parrot import MANIFEST
from duologue.processes import Deployment, UpSettings
from duologue.supervisor import Report


class CantStrike(Exception):
    """A fault that needs the processes of a deployment which was not started here."""


class Interrupted(Exception):
    """The drill was asked to end before it was over."""


@dataclass(frozen=True, slots=True)
class DrillSettings:
    faults: Sequence[Fault]
    sessions: int = 12
    every_s: float = 4.0
    rounds: int = 1
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None


async def on_own(
    settings: DrillSettings, up: UpSettings, log: Report, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Starts the deployment `up`, and ends it.  Raises what `allinone.run` raises, `NotWhole`, `Interrupted`."""
    said: dict[str, Any] = {}
    deployed: list[Deployment] = []
    with tempfile.TemporaryDirectory(prefix="duologue-drill-") as hang_dir:

        async def meanwhile() -> None:
            [deployment] = deployed
            urls = urls_of(deployment)
            striker = Striker(deployment, random.Random(settings.seed), Path(hang_dir))
            nats_url = deployment.nats_url
            said.update(await _rounds(settings, urls, nats_url, striker.strike, striker.whole, tell))

        with_hang = replace(up, options={**up.options, "hang_dir": hang_dir})
        await allinone.run(with_hang, log, deployed.append, meanwhile)
    if not said:
        raise Interrupted("the drill was ended before it was over")
    return said


async def on_joined(
    settings: DrillSettings, url: str, nats_url: str | None, tell: Callable[[str], None]
) -> dict[str, Any]:
    """On the deployment at `url`.  Raises `CantStrike`, and what joining it raises."""
    if beyond := [fault.text for fault in settings.faults if fault.act not in ANYWHERE]:
        raise CantStrike(
            f"{', '.join(beyond)}: the processes of a deployment that runs already are out of reach; "
            "without --url a deployment is started that can be struck"
        )

    async def strike(fault: Fault) -> Sequence[str]:
        raise AssertionError(fault)

    async def whole() -> None:
        return

    return await _rounds(settings, [url], nats_url, strike, whole, tell)


async def _rounds(
    settings: DrillSettings,
    urls: Sequence[str],
    nats_url: str | None,
    strike: Callable[[Fault], Awaitable[Sequence[str]]],
    whole: Callable[[], Awaitable[None]],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    await asyncio.to_thread(_check_model, urls[0], settings.key)
    places = [
        Place(urls[number % len(urls)], MANIFEST.id, MANIFEST.unit_s, 2 * MANIFEST.unit_samples, settings.key)
        for number in range(settings.sessions)
    ]

    async def strike_any(fault: Fault) -> Sequence[str]:
        tell(fault.text)
        if fault.act in CLIENTS:
            await clients.disturb(fault, places[0])
            return []
        if fault.act is Act.WAIT:
            await asyncio.sleep(fault.seconds)
            return []
        return await strike(fault)

    _, for_sessions = split_options(MANIFEST, settings.options)
    answers = Answers(settings.seed, **MANIFEST.session_options(for_sessions))
    found: list[Round] = []
    async with watched(nats_url) as moves:
        for number in range(settings.rounds):
            tell(f"round {number + 1} of {settings.rounds}: {settings.sessions} sessions")
            found.append(
                await run_round(
                    places,
                    settings.faults,
                    answers,
                    strike_any,
                    whole,
                    moves,
                    every_s=settings.every_s,
                    number=number,
                )
            )
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rounds": settings.rounds,
        "callers": settings.sessions,
        "options": for_sessions,
    }
    return report(found, about)


def callers(urls: Sequence[str], sessions: int, key: str | None = None) -> list[Place]:
    """Where each of them calls: by turns at every pod."""
    unit_s, unit_bytes = MANIFEST.unit_s, 2 * MANIFEST.unit_samples
    return [
        Place(urls[number % len(urls)], MANIFEST.id, unit_s, unit_bytes, key) for number in range(sessions)
    ]


def urls_of(deployment: Deployment) -> list[str]:
    """Of its API pods."""
    live: list[str] = deployment.summary()["live_urls"]
    return live


def _check_model(url: str, key: str | None) -> Model:
    """Raises `CantStrike` where there is no parrot, beside what `models` raises."""
    for model in models(url, api_key=key):
        if model.id == MANIFEST.id:
            return model
    raise CantStrike(f"{url} does not serve {MANIFEST.id}, whose every sample is known")
