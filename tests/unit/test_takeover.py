"""Owners are replaced while their session goes on: one test for each interleaving that CONTINUITY §3 speaks of."""

import asyncio

import pytest

from duologue.models import STAGES
from duologue.virtual import run_virtual
from struck import speech, struck

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_owner_is_replaced(stage: str, loop: bool) -> None:
    async def main() -> None:
        async with struck(loop=loop) as it:
            session = await it.session(speech(3, 60))
            talking = asyncio.create_task(it.talk(session))
            await asyncio.sleep(2.0)
            [owner] = it.owning(stage)
            it.kill(owner)
            await talking
            await it.finish()

    run_virtual(main(), limit_s=120.0)
