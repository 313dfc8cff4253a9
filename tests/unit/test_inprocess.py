"""A whole deployment in one process and in virtual time."""

import asyncio

import pytest

from duologue.bus.memory import MemoryBus
from duologue.inprocess import InProcess
from duologue.models import STAGES, BadOption, UnknownModel
from duologue.stage.shell import ShellSettings
from duologue.virtual import run_virtual
from recorder import Recorder, config

pytestmark = pytest.mark.unit


def test_it_is_ready_when_it_is_entered_and_gone_when_it_is_left() -> None:
    async def main() -> None:
        bus = MemoryBus()
        async with InProcess("parrot", bus=bus, workers={"llm": 2}) as deployment:
            assert deployment.pod.ready() == (True, "")
            assert [shell.stage for shell in deployment.shells] == [
                "encoder",
                "llm",
                "llm",
                "talker",
                "codec",
            ]
            assert deployment.shell("llm") is deployment.shells[1]
            assert deployment.bus is bus
        assert not any(transport.connected for transport in deployment.transports)
        assert bus._exact == {}
        seen: list[object] = []
        bus.observe(seen.append)
        await asyncio.sleep(60)
        assert seen == [], "nothing runs on"

    run_virtual(main())


def test_options_and_limits_reach_their_places() -> None:
    async def main() -> None:
        async with InProcess(
            "parrot",
            session_options={"loop": True},
            worker_options={"session_bytes": 100},
            settings=ShellSettings(memory_bytes=300),
            limits={"input_backlog_s": 1.0},
            seed=5,
        ) as deployment:
            assert [shell.places for shell in deployment.shells] == [3] * 4
            assert deployment.pod.limits.input_backlog_s == 1.0
            client = Recorder()
            root = deployment.pod.connect(client)
            root.start(config(deployment.pod), None)
            await client.until(lambda: client.started)
            for shell in deployment.shells:
                (owner,) = shell.owners.values()
                assert owner.start.seed == 5
                assert owner.start.options == {"loop": True, "context_units": 4096}
            assert {len(shell.owners) for shell in deployment.shells} == {1}
            assert len(STAGES) == len(deployment.shells)

    run_virtual(main())


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownModel):
        InProcess("parott")
    with pytest.raises(BadOption):
        InProcess("parrot", session_options={"loup": True})
