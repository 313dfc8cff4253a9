"""What is measured of a worker before its first session."""

import asyncio
from typing import Any

import pytest

from duologue.bus import messages as m
from duologue.inprocess import InProcess
from duologue.models import STAGES, manifest
from duologue.stage.engine import InlineEngine
from duologue.stage.loading import load
from duologue.stage.model import Footprint, SessionError
from duologue.stage.probe import PROBE_S, Probe
from duologue.stage.shell import ShellSettings
from duologue.virtual import run_virtual
from scripted import Scripted
from worker import Worker, play

pytestmark = pytest.mark.unit


def probed(stage: str, model: Any, most_rows: int, longest_step_s: float = 0.068, **others: Any) -> Any:
    async def main() -> dict[int, float]:
        engine = InlineEngine(asyncio.get_running_loop())
        half = load(stage, "parrot", {**others, "sleep": engine.sleep}) if model is None else model
        if isinstance(half, Scripted):
            half.sleep = engine.sleep
        clock = asyncio.get_running_loop().time
        return await Probe(stage, manifest("parrot"), half, engine, clock).run(most_rows, longest_step_s)

    return run_virtual(main())


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_of_the_parrot_is_measured(stage: str) -> None:
    found = probed(stage, None, 20, batch_ms=3.0, row_ms=1.0, open_ms=7.0)
    assert found == pytest.approx({rows: 0.003 + 0.001 * rows for rows in (1, 2, 4, 8, 16, 20)})


def test_it_ends_with_the_first_size_that_is_too_slow() -> None:
    assert list(probed("llm", None, 64, row_ms=5.0)) == [1, 2, 4, 8, 16]
    assert list(probed("llm", None, 64, row_ms=100.0)) == [1]


def test_it_takes_no_longer_than_it_may() -> None:
    model = Scripted("encoder", open_s=0.5)
    assert list(probed("encoder", model, 64)) == [1, 2, 4, 8, 16]
    assert len(model.states) * 0.5 > PROBE_S


def test_nothing_is_left_of_it() -> None:
    model = Scripted("encoder", step_s=0.001)
    assert list(probed("encoder", model, 6)) == [1, 2, 4, 6]
    assert [state.closed for state in model.states] == [1] * 6
    assert max(len(names) for (names,) in model.did("step")) == 6


def test_without_a_place_nothing_is_measured() -> None:
    model = Scripted("encoder")
    assert probed("encoder", model, 0) == {}
    assert model.states == []


def test_a_model_that_can_not_open_such_a_session_is_taken_with_care() -> None:
    model = Scripted("encoder")
    model.raises["open"] = SessionError("not without a voice")
    assert probed("encoder", model, 8) == {}

    async def script(worker: Worker) -> None:
        assert worker.shell.places == 2

    play(script, model, probe=True)


def test_a_model_that_can_not_step_such_a_session_is_measured_as_far_as_it_can() -> None:
    model = Scripted("encoder", step_s=0.001)
    model.fails.add((0, 4))
    assert list(probed("encoder", model, 8)) == [1]
    assert all(state.closed for state in model.states)


@pytest.mark.parametrize("what", ["open", "step", "close"])
def test_a_model_that_fails_is_not_served(what: str) -> None:
    model = Scripted("encoder")
    model.raises[what] = ZeroDivisionError("in the model")
    with pytest.raises(ZeroDivisionError):
        probed("encoder", model, 8)


def test_a_worker_is_heard_of_when_it_knows_its_places() -> None:
    async def script(worker: Worker) -> None:
        await asyncio.sleep(0.1)
        at, first = worker.beats[0]
        assert at == pytest.approx(3 * (0.01 + 0.01 + 0.01), abs=0.001), "three sizes, each three times"
        assert first.models == {"parrot": m.Places(4, 0, pytest.approx(0.01), pytest.approx(0.0, abs=1e-9))}
        assert (await worker.claim()).state == m.OPEN

    play(script, Scripted("encoder", step_s=0.01), probe=True, places=4)


def test_only_as_many_as_fit_into_memory_are_tried() -> None:
    model = Scripted("encoder")
    model.bytes = Footprint(fixed_bytes=100, session_bytes=300)

    async def script(worker: Worker) -> None:
        assert worker.shell.places == 3

    play(script, model, probe=True, memory_bytes=1000)
    assert len(model.states) == 3


def test_a_worker_that_is_too_slow_for_one_session_takes_none() -> None:
    async def main() -> None:
        settings = ShellSettings(probe=True)
        async with InProcess("parrot", worker_options={"row_ms": 70.0}, settings=settings) as deployment:
            assert [shell.places for shell in deployment.shells] == [0] * 4

    run_virtual(main())
