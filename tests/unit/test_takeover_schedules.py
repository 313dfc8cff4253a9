"""Owners die, hang, freeze, are cut off, lose messages and rings at random moments, several at once: the real pod, root,
shells and parrot over the bus in memory.  Whatever happens, each unit is answered exactly once, in order, and with the
very samples that follow from the decisions of which the root was told."""

import asyncio
import os
import random
from collections.abc import Sequence

import pytest

from duologue.virtual import run_virtual
from struck import Struck, speech, struck

pytestmark = pytest.mark.unit

QUICK, MANY = 20, 320
"""`SCHEDULES=5000` runs more of them."""
FAULTS = (
    "kill",
    "kill",
    "kill several",
    "kill stage",
    "kill all",
    "freeze",
    "freeze",
    "hang",
    "cut",
    "cut",
    "loss",
    "slow steps",
    "slow steps",
    "slow",
    "rings",
    "blink",
    "blink pod",
)


def strike(it: Struck, fault: str, rng: random.Random) -> None:
    now = asyncio.get_running_loop().time()
    owners = it.owning()
    if not owners:
        return
    victim = rng.choice(owners)
    match fault:
        case "kill":
            it.kill(victim)
        case "kill several" | "kill all":
            share = 1.0 if fault == "kill all" else 0.6
            for each in [each for each in owners if rng.random() < share]:
                later = rng.choice([0.0, rng.uniform(0.0, 1.5)])
                asyncio.get_running_loop().call_later(later, it.kill, each)
        case "kill stage":
            for each in it.living(victim.stage):
                it.kill(each)
        case "freeze":
            it.freeze(victim, rng.choice([rng.uniform(0.05, 0.7), rng.uniform(0.7, 4.0)]))
        case "hang":
            it.hang(victim)
        case "cut":
            it.partition(victim, rng.uniform(0.3, 2.5))
        case "loss":
            it.lossy = rng.choice([0.05, 0.3]), now + rng.uniform(0.1, 1.5)
        case "slow steps":
            it.slow_down(victim, rng.uniform(0.1, 0.4), rng.randint(2, 8))
        case "slow":
            it.slow = rng.uniform(0.02, 0.4), now + rng.uniform(0.5, 3.0)
        case "rings":
            for each in owners:
                it.empty_rings(each)
        case "blink":
            victim._transport.blink(rng.uniform(0.03, 0.5))
        case "blink pod":
            it.deployment.pod.transport.blink(rng.uniform(0.03, 0.5))


async def play(seed: int, faults: Sequence[str] = FAULTS) -> None:
    rng = random.Random(seed)
    async with struck(
        seed=seed,
        loop=rng.random() < 0.5,
        context_units=rng.choice([16, 30, 4096]),
        workers=rng.choice([1, 2, 2, 3]),
        ring_bytes=rng.choice([1000, 200_000, 16 << 20]),
        worker_options={"batch_ms": rng.choice([0.5, 3.0, 15.0]), "open_ms": rng.choice([0.0, 30.0, 250.0])},
    ) as it:
        units = rng.randint(26, 40)
        sessions = [await it.session(speech(seed + each, units)) for each in range(rng.choice([1, 1, 2]))]
        talking = [asyncio.create_task(it.talk(session)) for session in sessions]
        begun = asyncio.get_running_loop().time()
        for _ in range(rng.choice([1, 2, 3, 5])):
            at = begun + rng.uniform(0.2, units * 0.08)
            for _ in range(rng.choice([1, 1, 2])):
                fault, later = rng.choice(faults), rng.choice([0.0, rng.uniform(0.0, 0.4)])
                asyncio.get_running_loop().call_at(at + later, strike, it, fault, rng)
        await asyncio.gather(*talking)
        await it.finish()


def run(seeds: range) -> None:
    for seed in seeds:
        try:
            run_virtual(play(seed), limit_s=120.0)
        except BaseException as error:
            error.add_note(f"schedule {seed}")
            raise


def test_some_schedules() -> None:
    run(range(QUICK))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_schedules() -> None:
    run(range(QUICK, int(os.environ.get("SCHEDULES", MANY))))
