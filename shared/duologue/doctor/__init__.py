"""Checks an installation and the deployment around it: `duologue doctor`."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from duologue.doctor.check import Check, State
from duologue.doctor.deployment import deployed
from duologue.doctor.installation import halves, memory, nats_binary, packages, python
from duologue.memory import free_bytes
from duologue.models import models
from duologue.settings import NATS_URL, Settings

__all__ = ["Check", "State", "examine"]


async def examine(
    settings: Settings, options: Mapping[str, Any], *, wall: Callable[[], float] = time.time
) -> list[Check]:
    """All checks.  `options` are the model's, `wall` is the clock in seconds since 1970.  Raises nothing."""
    served = (settings.model,) if settings.model else models()
    local = [python(), packages(), await asyncio.to_thread(nats_binary)]
    there = await deployed(settings.nats or NATS_URL, settings.nats is not None, wall=wall)
    of_models = await asyncio.to_thread(halves, served)
    return [*local, *there, of_models, *memory(served, options, settings.places, free_bytes())]
