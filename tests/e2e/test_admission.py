"""Refusals by real processes, and two models that don't get into each other's way."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

import second_model
from deployment import Deployment, deployment, eventually, get
from duologue.testing.signals import speechlike
from live_client import UNIT, LiveSession, connected, converse, started
from parrot_answers import Settings, assert_exact

pytestmark = pytest.mark.e2e

SETTINGS = Settings(seed=7)
PLACES, REFUSALS = 3, 8
REFUSED_S = 0.1
BRIEF = speechlike(2.0, 5)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The parrot and a second model, each with three places a worker."""
    path = [str(second_model.install(tmp_path_factory.mktemp("budgie"))), os.environ.get("PYTHONPATH", "")]
    env = {"DUO_PLACES": str(PLACES), "PYTHONPATH": os.pathsep.join(filter(None, path))}
    with deployment(seed=SETTINGS.seed, env=env, arguments=["--model", second_model.ID]) as served:
        yield served


def ready(served: Deployment) -> dict[str, bool]:
    models: list[dict[str, Any]] = json.loads(get(f"{served.url}/v1/models"))["data"]
    found = {model["id"]: model["duologue"]["ready"] for model in models}
    assert json.loads(get(f"{served.url}/readyz"))["models"] == found
    return found


async def fill(served: Deployment, stack: AsyncExitStack, model: str) -> list[LiveSession]:
    return [await stack.enter_async_context(started(served.live_url, model=model)) for _ in range(PLACES)]


async def refused_s(served: Deployment, model: str) -> float:
    """Seconds from `session.start` to the close of a session that is refused."""
    async with connected(served.live_url) as live:
        began = time.monotonic()
        await live.start(model=model)
        await live.ended()
        took_s = time.monotonic() - began
        assert [error["code"] for error in live.errors] == ["session_limit_reached"]
        assert (live.close_code, live.started) == (1013, None)
        return took_s


def test_a_full_deployment_says_so_at_once_and_each_model_has_places_of_its_own(served: Deployment) -> None:
    def refusals() -> float:
        return served.metrics("api").total("duo_sessions_refused_total", code="session_limit_reached")

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            parrots = await fill(served, stack, "parrot")
            took_s = [await refused_s(served, "parrot") for _ in range(REFUSALS)]
            # What the machine does meanwhile only makes them longer.
            assert min(took_s) <= REFUSED_S, took_s
            # The other model is not full, and then is by itself.
            await fill(served, stack, second_model.ID)
            await refused_s(served, second_model.ID)
            await parrots[0].close()
            again = await converse(served.live_url, BRIEF)
            assert_exact(again, BRIEF, SETTINGS)
            await refused_s(served, second_model.ID)

    before = refusals()
    asyncio.run(scenario())
    assert refusals() - before == REFUSALS + 2


def test_a_model_whose_worker_dies_leaves_the_other_one_alone(served: Deployment) -> None:
    assert ready(served) == {"parrot": True, second_model.ID: True}
    [worker] = [each for each in served.workers if (each.model, each.stage) == (second_model.ID, "llm")]

    recording = speechlike(6.0, 3)

    async def scenario() -> None:
        async with started(served.live_url, model=second_model.ID) as other, started(served.live_url) as live:
            talking = [asyncio.create_task(each.stream(recording, pace=1.0)) for each in (live, other)]
            await live.answered(6 * UNIT)
            os.kill(worker.pid, signal.SIGKILL)
            await asyncio.gather(*talking)
            for each in (live, other):
                await each.finish()
                assert each.errors == []
            assert_exact(live, recording, SETTINGS)
            assert other.samples_out == live.samples_out, "another worker, started anew, went on with it"
        await eventually(lambda: ready(served) == {"parrot": True, second_model.ID: True})
        await converse(served.live_url, BRIEF)

    asyncio.run(scenario())
