"""Whole deployments in virtual time, with sessions that arrive until one is refused."""

import random
from pathlib import Path
from typing import Any

import pytest

import second_model
from duologue import telemetry
from duologue.inprocess import InProcess
from duologue.stage.shell import ShellSettings
from duologue.testing.paced import Outcome, PacedSession, arrive, hold
from duologue.virtual import run_virtual
from duologue_api.port import ModelStatus

pytestmark = pytest.mark.unit

UNIT_S = 0.08


def arriving(options: dict[str, Any], limits: dict[str, Any], every_s: float = 0.5, **others: Any) -> Outcome:
    settings = ShellSettings(**{"probe": True, "places": 100, **others.pop("settings", {})})
    rng = random.Random(7)
    phases_s = [rng.uniform(0, UNIT_S) for _ in range(100)]

    async def main() -> Outcome:
        async with InProcess(
            "parrot", worker_options=options, settings=settings, limits=limits, **others
        ) as deployment:
            outcome = await arrive(deployment, phases_s, every_s, 0.8, 1.6)
            assert deployment.fatal == []
            return outcome

    return run_virtual(main())


def refused_at_once(outcome: Outcome) -> bool:
    assert outcome.refusal is not None
    code, close_code, after_s = outcome.refusal
    return (code, close_code) == ("session_limit_reached", 1013) and after_s <= 0.1


@pytest.mark.parametrize(
    ("options", "sessions"),
    [({"row_ms": 3.0}, range(8, 13)), ({"batch_ms": 9.0, "row_ms": 1.0}, range(5, 10))],
)
def test_time_bounds_the_sessions_and_no_unit_is_late(options: dict[str, float], sessions: range) -> None:
    """What the bounds are worth against the true capacity, `duologue bench admission` tells."""
    outcome = arriving(options, {"takeover_reserve": 0})
    assert outcome.sessions in sessions
    assert refused_at_once(outcome)
    assert outcome.units >= 19 * outcome.sessions
    assert outcome.late == 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"row_ms": 2.0}, {"batch_ms": 6.0, "row_ms": 1.0}])
def test_a_burst_gets_no_further_than_sessions_one_by_one(options: dict[str, float]) -> None:
    """All within half a second, before any of them has been stepped."""
    slowly = arriving(options, {"takeover_reserve": 0})
    burst = arriving(options, {"takeover_reserve": 0}, every_s=0.005)
    assert 2 <= burst.sessions <= slowly.sessions
    assert refused_at_once(burst)
    assert burst.late == 0


@pytest.mark.parametrize(("utilisation", "deadline_units"), [(0.85, 1.0), (100.0, 100.0)])
def test_beyond_the_bounds_units_are_late(utilisation: float, deadline_units: float) -> None:
    """That none are within them is no accident: the same sessions, had they all been let in."""
    settings = ShellSettings(places=100, probe=True, utilisation=utilisation)

    async def main() -> Outcome:
        async with InProcess(
            "parrot",
            worker_options={"row_ms": 3.0},
            settings=settings,
            limits={"deadline_units": deadline_units},
        ) as deployment:
            return await hold(deployment, [0.004 * n for n in range(20)], 0.8, 1.6)

    if deadline_units == 1.0:
        with pytest.raises(RuntimeError, match="sessions could not start"):
            run_virtual(main())
    else:
        outcome = run_virtual(main())
        assert outcome.sessions == 20
        assert outcome.late_share > 0.1


def test_memory_bounds_the_sessions() -> None:
    memory = {"fixed_bytes": 100, "session_bytes": 30}
    outcome = arriving(memory, {"takeover_reserve": 0}, every_s=0.1, settings={"memory_bytes": 459})
    assert outcome.sessions == 11
    assert refused_at_once(outcome)


@pytest.mark.parametrize(
    ("reserve", "workers", "sessions"),
    [("auto", 1, 6), ("auto", 2, 6), ("auto", 3, 12), (0, 2, 12), (4, 2, 8)],
)
def test_the_reserve_is_kept(reserve: Any, workers: int, sessions: int) -> None:
    before = telemetry.REFUSED.labels("session_limit_reached")._value.get()
    outcome = arriving(
        {},
        {"takeover_reserve": reserve},
        every_s=0.1,
        settings={"places": 6},
        workers=dict.fromkeys(("encoder", "llm", "talker", "codec"), workers),
    )
    assert outcome.sessions == sessions
    assert refused_at_once(outcome)
    assert telemetry.REFUSED.labels("session_limit_reached")._value.get() == before + 1


def test_models_do_not_share_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(second_model.install(tmp_path))

    async def main() -> None:
        settings = ShellSettings(places=2)
        async with InProcess("parrot", settings=settings, others=["budgie"]) as deployment:
            sessions = {
                model: [PacedSession(deployment, 0.01 * n, model) for n in range(3)]
                for model in ("parrot", "budgie")
            }
            started = {model: [await each.start() for each in of] for model, of in sessions.items()}
            assert started == {model: [True, True, False] for model in sessions}
            for model, of in sessions.items():
                await of[0].leave()
                again = PacedSession(deployment, 0.0, model)
                assert await again.start(), "a place of its own model is free"
                await again.leave()
                assert of[0].counted(0.0)[1] == 0

    run_virtual(main())


def test_each_model_is_ready_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(second_model.install(tmp_path))

    async def main() -> None:
        async with InProcess("parrot", others=["budgie"]) as deployment:
            pod = deployment.pod

            def ready() -> dict[str, bool]:
                found: list[ModelStatus] = pod.models()
                return {model.id: model.ready for model in found}

            assert ready() == {"parrot": True, "budgie": True}
            staying = PacedSession(deployment, 0.0, "parrot")
            assert await staying.start()
            for shell in deployment.shells:
                if shell.manifest.id == "budgie" and shell.stage == "talker":
                    await shell.stop()
            await deployment._until(lambda: not ready()["budgie"])
            assert ready() == {"parrot": True, "budgie": False}
            assert pod.ready() == (True, "budgie has no talker worker")
            turned_away = PacedSession(deployment, 0.0, "budgie")
            assert not await turned_away.start()
            assert turned_away.refusal is not None
            assert turned_away.refusal.code == "model_unavailable"
            await staying.leave()
            assert staying.counted(0.0)[0] > 5
            assert staying.counted(0.0)[1] == 0

    run_virtual(main())
