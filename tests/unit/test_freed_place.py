"""Incident: on a full deployment a client that closed its session and came back at once was refused, since the pod heard
of the free place only with the next heartbeat."""

import asyncio

import pytest

from duologue.inprocess import InProcess
from duologue.stage.shell import ShellSettings
from duologue.virtual import run_virtual
from recorder import Recorder, config

pytestmark = pytest.mark.unit


async def visit(deployment: InProcess, goodbye: str) -> None:
    """A session in the only place, and another that finds none."""
    client = Recorder()
    session = deployment.pod.connect(client)
    session.start(config(deployment.pod), None)
    if goodbye != "vanishes while it starts":
        await client.until(lambda: client.started or client.ended is not None)
        assert client.started, client.errors
        await turned_away(deployment)
    if goodbye == "closes":
        session.request_close(None)
        await client.until(lambda: client.ended is not None)
    session.disconnected()


async def turned_away(deployment: InProcess) -> None:
    client = Recorder()
    session = deployment.pod.connect(client)
    session.start(config(deployment.pod), None)
    await client.until(lambda: client.ended is not None)
    assert [error.code for error in client.errors] == ["session_limit_reached"]
    session.disconnected()


@pytest.mark.parametrize("goodbye", ["closes", "vanishes", "vanishes while it starts"])
def test_the_place_of_who_left_is_free_at_once(goodbye: str) -> None:
    async def scenario() -> None:
        async with InProcess("parrot", settings=ShellSettings(places=1)) as deployment:
            for number in range(50):
                await visit(deployment, goodbye)
                # At once, and at any time between two heartbeats.
                await asyncio.sleep(0.013 * (number % 2))
            assert not deployment.fatal

    run_virtual(scenario(), limit_s=60)
