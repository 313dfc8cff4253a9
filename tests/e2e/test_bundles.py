"""Sessions share messages: with sixteen of them, a hop between stages carries several units at a time although every
client sends at a moment of its own."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from deployment import Deployment, deployment
from duologue.testing.signals import speechlike
from live_client import LiveSession, converse
from parrot_answers import Settings, assert_exact

pytestmark = pytest.mark.e2e

SETTINGS = Settings(seed=7)
SESSIONS, SECONDS = 16, 6.0
HOPS = (("encoder", "llm"), ("llm", "talker"), ("talker", "codec"), ("codec", "api"))
LEAST_UNITS = 4.0
"""Of a message, on average."""


@pytest.fixture(scope="module")
def served() -> Iterator[Deployment]:
    with deployment(seed=SETTINGS.seed) as served:
        yield served


def sent(served: Deployment) -> dict[tuple[str, str], tuple[float, float]]:
    """Hop → (messages, units) sent so far."""
    found = {}
    for role, to in HOPS:
        metrics = served.metrics(role)
        found[role, to] = (
            metrics.total("duo_bundles_sent_total", role=role, to=to),
            metrics.total("duo_units_sent_total", role=role, to=to),
        )
    return found


def test_sixteen_sessions_share_their_messages(served: Deployment) -> None:
    phases = random.Random(16)
    recordings = [speechlike(SECONDS, seed) for seed in range(SESSIONS)]

    async def scenario() -> list[LiveSession]:
        return await asyncio.gather(
            *(
                converse(
                    served.live_url, recording, chunk_bytes=960, pace=1.0, late_s=phases.uniform(0, 0.08)
                )
                for recording in recordings
            )
        )

    before = sent(served)
    sessions = asyncio.run(scenario())
    after = sent(served)
    for live, recording in zip(sessions, recordings, strict=True):
        assert_exact(live, recording, SETTINGS)
    sizes = {}
    for hop, (messages, units) in after.items():
        assert units - before[hop][1] >= SESSIONS * round(SECONDS / 0.08)
        sizes[" to ".join(hop)] = (units - before[hop][1]) / (messages - before[hop][0])
    print("units a message:", sizes)
    assert min(sizes.values()) >= LEAST_UNITS, sizes
