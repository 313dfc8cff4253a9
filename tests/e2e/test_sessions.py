"""`duologue sessions`, as an operator runs it on a real deployment: what is recorded, listed, shown, exported, replayed."""

import asyncio
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deployment import DUOLOGUE, Deployment, clean_environment, deployment
from duologue.testing.signals import speechlike
from live_client import Pcm, started

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SAID = speechlike(5.5, 41)
"""68 units and a bit."""
UNITS = 69
PATIENCE_S = 90


def sessions(*arguments: str, code: int = 0) -> Any:
    """What it says as JSON."""
    done = run(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def settled(kept: str, left: str, *nats: str) -> None:
    """Returns when all is written and deleted that is, which no client waits for."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        shown = [sessions("show", sid, *nats) for sid in (kept, left)]
        if not any(each["stored"]["duo_audio"]["values"] or each["state"] == "active" for each in shown):
            return


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [*DUOLOGUE, "sessions", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment()
    )


async def talked(served: Deployment, said: Pcm, **fields: Any) -> tuple[str, bytes]:
    """A session's id, and the audio that it got."""
    async with started(served.live_url, **fields) as live:
        assert live.started is not None
        assert live.started["store"] is fields.get("store", False)
        await live.stream(said)
        await live.finish()
        assert live.notices == []
        return live.started["id"], b"".join(live.units)


@pytest.mark.parametrize("loop", [False, True])
def test_a_recorded_session_is_replayed_from_the_store_and_from_a_file(loop: bool, tmp_path: Path) -> None:
    options = {"loop": True} if loop else {}
    with deployment(options=options, arguments=["--workers", "encoder=2,llm=1,talker=2,codec=1"]) as served:

        async def both() -> list[tuple[str, bytes]]:
            return await asyncio.gather(talked(served, SAID, store=True), talked(served, SAID))

        (kept, put_out), (left, _) = asyncio.run(both())
        nats = ["--nats", served.nats_url]
        settled(kept, left, *nats)
        listed = {row["sid"]: row for row in sessions("ls", *nats)}
        assert {sid: (row["state"], row["recorded"], row["units"]) for sid, row in listed.items()} == {
            kept: ("closed", True, UNITS),
            left: ("closed", False, UNITS),
        }
        shown = sessions("show", kept, *nats)
        assert (shown["gaps"], shown["first_unit"], shown["model"]) == ([], 0, "parrot")
        assert [each[:2] for each in shown["root_epochs"]] == [[1, 0]]
        assert sorted(shown["route"]) == ["codec", "encoder", "llm", "talker"]
        assert shown["stored"]["duo_store"]["bytes"] > 100_000
        assert shown["stored"]["duo_audio"] == shown["stored"]["duo_ledger"] == {"values": 0, "bytes": 0}
        told = sessions(
            "replay", kept, *nats, "--workers", "encoder=1,llm=3,talker=1,codec=2", "--alongside", "3"
        )
        assert told == {
            "sid": kept,
            "units": UNITS,
            "units_with_output": UNITS,
            "sessions": 4,
            "equal": True,
            "differs": [[]] * 4,
        }
        assert left in run("replay", left, *nats).stderr
        exported = sessions("export", kept, *nats, "--out", str(tmp_path / "kept.npz"))
        assert exported["units"] == UNITS
        nobody = run("show", "live_nobody", *nats)
        assert (nobody.returncode, "live_nobody" in nobody.stderr, nobody.stderr.count("\n")) == (1, True, 1)
    # The deployment and its store are gone.
    with np.load(tmp_path / "kept.npz") as archive:
        arrays = dict(archive)
    assert np.array_equal(arrays["input16"], SAID)
    assert arrays["output16"].tobytes() == put_out
    assert sessions("replay", str(tmp_path / "kept.npz"))["equal"]
    arrays["output16"][np.flatnonzero(arrays["output16"])[0]] += 1
    np.savez(tmp_path / "other.npz", **arrays)
    told = sessions("replay", str(tmp_path / "other.npz"), "--alongside", "0", code=1)
    assert (told["equal"], len(told["differs"][0])) == (False, 1)
    assert told["differs"][0][0].startswith("audio of 1 units")


def test_a_session_that_lives_is_shown_and_everything_is_kept_where_the_operator_says_so() -> None:
    with deployment(arguments=["--keep-ledger"]) as served:

        async def main() -> None:
            async with started(served.live_url) as live:
                assert live.started is not None
                sid = live.started["id"]
                await live.stream(SAID, pace=1.0)
                nats = ["--nats", served.nats_url]
                shown = await asyncio.to_thread(sessions, "show", sid, *nats)
                assert (shown["state"], shown["recorded"]) == ("active", True)
                assert shown["stored"]["duo_ledger"]["values"] >= 3
                plain = await asyncio.to_thread(run, "ls", *nats)
                assert sid in plain.stdout
                assert "active" in plain.stdout
                await live.finish()
                await asyncio.to_thread(settled, sid, sid, *nats)
                replayed = await asyncio.to_thread(sessions, "replay", sid, *nats)
                assert (replayed["equal"], replayed["units"]) == (True, UNITS)

        asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show"], "SID"),
        (["replay", "nothing.npz"], "nothing.npz"),
        (["forget"], "ls|show|export|replay"),
        ([], "ls|show|export|replay"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
