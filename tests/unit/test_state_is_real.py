"""The stages' states are what makes the output: swapped in mid-session for fresh ones, or for one made of less than the
ledger, the output differs.  Without this, tests of takeover would pass for a model half that keeps no state."""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from duologue.bus.messages import Start
from duologue.inprocess import InProcess
from duologue.models import STAGES
from duologue.stage.model import History, Unit
from duologue.testing.parrot_reference import Reference, reference
from duologue.testing.signals import bursts
from duologue.virtual import run_virtual
from recorder import Recorder, config

pytestmark = pytest.mark.unit

SEED = 11
UNIT = 3840
SWAP = 14
"""The unit before which a state is swapped: the parrot speaks, and so does the caller."""


@cache
def said() -> npt.NDArray[np.int16]:
    """Half a second of speech, its answer, which is interrupted by speech, and a pause in which that is answered."""
    return bursts([(0.48, True), (0.56, False), (0.48, True), (1.6, False)], 5)


@cache
def expected() -> Reference:
    return reference(said(), SEED)


Swap = Callable[[Any, Any, list[Any]], Any]
"""(model half, its owner, the records so far) → the state to go on with."""


async def converse(stage: str | None, swap: Swap) -> bytes:
    """What the client hears; the owner of `stage` goes on with another state from unit `SWAP` on."""
    async with InProcess("parrot", seed=SEED) as deployment:
        client = Recorder()
        root = deployment.pod.connect(client)
        root.start(config(deployment.pod), None)
        await client.until(lambda: client.started)
        data = said().tobytes()
        for unit in range(len(data) // UNIT):
            if unit == SWAP and stage is not None:
                await client.until(lambda: len(client.units) == SWAP)
                (owner,) = deployment.shell(stage).owners.values()
                assert owner.unit == SWAP
                records = [record.get(stage) for record in expected().records[:SWAP]]
                owner.state = swap(deployment.shell(stage).model, owner, records)
            root.append(data[unit * UNIT : (unit + 1) * UNIT], None)
            await asyncio.sleep(0.08)
        await client.until(lambda: len(client.units) == len(data) // UNIT)
        root.request_close(None)
        await client.until(lambda: client.ended is not None)
        assert client.errors == []
        assert not deployment.fatal
        return b"".join(client.units)


def opened(model: Any, start: Start, history: History) -> Any:
    *_, state = model.open(start, history)
    return state


def fresh(model: Any, owner: Any, records: list[Any]) -> Any:
    return opened(model, Start(SEED, owner.start.options, begin=SWAP), History())


def from_records(model: Any, owner: Any, records: list[Any]) -> Any:
    """Forced through the decisions, but without the features that were heard."""
    assert any(records)
    units = [Unit(number, {}, record) for number, record in enumerate(records)]
    return opened(model, Start(SEED, owner.start.options, begin=SWAP), History(units))


def the_same(model: Any, owner: Any, records: list[Any]) -> Any:
    return owner.state


def test_the_swap_falls_where_every_state_matters() -> None:
    records = expected().records
    assert "talker" in records[SWAP - 1]
    assert "talker" in records[SWAP]
    assert np.abs(said()[SWAP * 1920 - 100 : SWAP * 1920]).max() > 1000, "the caller speaks"


@pytest.mark.parametrize("stage", [None, *STAGES])
def test_without_a_swap_the_output_is_the_references(stage: str | None) -> None:
    assert run_virtual(converse(stage, the_same)) == expected().pcm16.tobytes()


@pytest.mark.parametrize(
    ("stage", "swap"),
    [*((stage, fresh) for stage in STAGES), ("llm", from_records)],
    ids=[*(f"fresh-{stage}" for stage in STAGES), "llm-from-records"],
)
def test_with_another_state_it_is_not(stage: str, swap: Swap) -> None:
    heard = run_virtual(converse(stage, swap))
    correct = expected().pcm16.tobytes()
    assert heard[: SWAP * UNIT] == correct[: SWAP * UNIT]
    assert len(heard) == len(correct)
    assert heard != correct
