"""`duologue drill` as an operator runs it: a whole deployment proves itself, and one that answers wrongly is found out."""

import json
import subprocess
from typing import Any

import pytest

from deployment import DUOLOGUE, clean_environment, deployment
from duologue.drill.report import COUNTS

pytestmark = pytest.mark.faults

ROOMY = {"DUO_DEADLINE_UNITS": "100"}


def drill(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """(exit code, the one JSON object on standard output, standard error)."""
    done = subprocess.run(
        [*DUOLOGUE, "drill", "--json", *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=110,
    )
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def test_faults_under_load_lose_nothing() -> None:
    faults = ["kill:any", "stop:talker+codec:1.5s", "kill:all"]
    flags = [word for fault in faults for word in ("--fault", fault)]
    code, said, errors = drill("--sessions", "6", "--every", "2.5", "--option", "loop=true", *flags)
    assert (code, said["ok"], errors) == (0, True, "")
    assert [row["fault"] for row in said["faults"]] == ["undisturbed", *faults]
    assert said["total"]["sessions"] == 6
    assert said["total"]["units"] > 6 * 4 * 2.5 / 0.08
    assert {name: said["total"][name] for name in (*COUNTS, "samples", "ended")} == dict.fromkeys(
        (*COUNTS, "samples", "ended"), 0
    )
    # And it was not for want of faults.
    undisturbed, *struck = said["faults"]
    assert undisturbed["moved"] == 0
    assert [len(row["struck"]) for row in struck] == [1, 2, 4]
    assert struck[2]["moved"] > 0


def test_a_hung_step_and_a_restart_of_the_bus_lose_nothing() -> None:
    code, said, errors = drill(
        *("--sessions", "4", "--every", "2", "--fault", "hang:llm", "--fault", "nats:restart"),
        *("--fault", "nats:blip", "--fault", "wait:500ms", "--option", "context_units=24"),
    )
    assert (code, said["ok"], errors) == (0, True, "")
    assert said["options"] == {"context_units": 24}
    undisturbed, hung, restarted, blipped, waited = said["faults"]
    assert hung["moved"] > 0
    assert [sum(row["struck"].values()) for row in (undisturbed, hung, restarted, blipped, waited)] == [
        *(0, 1, 1, 1, 0)
    ]
    # Nobody is moved for what befalls the bus.
    assert [row["moved"] for row in (undisturbed, restarted, blipped, waited)] == [0] * 4


def test_a_session_that_ends_is_told_and_its_caller_calls_again() -> None:
    code, said, errors = drill("--sessions", "2", "--every", "2", "--fault", "kill:api", "--fault", "wait:2s")
    assert (code, said["ok"], errors) == (1, False, "")
    assert (said["total"]["sessions"], said["total"]["ended"]) == (4, 2)
    [why] = said["faults"][1]["why_ended"]
    assert "the connection was lost" in why


def test_a_deployment_that_is_there_is_joined_and_stays() -> None:
    with deployment(env=ROOMY) as served:
        joined = ("--url", served.url, "--sessions", "3", "--every", "1.5")
        clients = ("--fault", "slow-client:2s", "--fault", "fast-client:2s")
        code, said, errors = drill(*joined, "--nats", served.nats_url, *clients)
        assert (code, said["ok"], errors) == (0, True, "")
        assert [row["moved"] for row in said["faults"]] == [0, 0, 0]
        assert served.ready()


def test_answers_that_are_not_those_of_the_parrot_are_found() -> None:
    """Every sample of this deployment is of another seed, as if all had been decided anew."""
    with deployment(seed=8, env=ROOMY) as served:
        joined = ("--url", served.url, "--seed", "7", "--sessions", "2", "--every", "4")
        code, said, _ = drill(*joined, "--fault", "fast-client:1s")
    assert (code, said["ok"]) == (1, False)
    assert said["total"]["wrong"] > 0
    assert said["total"]["samples"] > said["total"]["wrong"]
    assert [said["total"][name] for name in ("lost", "repeated", "reordered", "ended")] == [0] * 4
    assert said["faults"][0]["moved"] is None
