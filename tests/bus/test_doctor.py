"""The doctor against real servers: alone, with workers, without JetStream, and where nothing runs."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.rig import raw, until
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.checkup import round_trip
from duologue.bus.connection import MAX_PAYLOAD
from duologue.bus.nats import NatsTransport
from duologue.bus.server import EmbeddedServer, find_binary
from duologue.doctor.check import Check, State
from duologue.doctor.deployment import deployed
from duologue.models import STAGES, manifest
from duologue.stage.engine import InlineEngine
from duologue.stage.loading import load
from duologue.stage.shell import Shell, ShellSettings
from duologue_api.pod import Pod

pytestmark = pytest.mark.bus

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("DUO_")}


def doctor(*arguments: str) -> tuple[int, dict[str, Check], str]:
    """As a user calls it: exit code, checks by name, all output."""
    command = [sys.executable, "-m", "duologue", "doctor", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert done.stderr == ""
    told = json.loads(done.stdout)
    checks = {c["check"]: Check(c["check"], State(c["state"]), c["says"], c["todo"]) for c in told["checks"]}
    assert told["ok"] is (done.returncode == 0)
    return done.returncode, checks, done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def everybody(url: str, places: int) -> AsyncIterator[None]:
    """A worker of each stage, and a pod."""
    loop = asyncio.get_running_loop()
    found = manifest("parrot")
    transports = [NatsTransport(url, name=name) for name in (*STAGES, "api")]
    for transport in transports:
        await transport.connect()
    shells = []
    for stage, transport in zip(STAGES, transports, strict=False):
        engine = InlineEngine(loop)
        model = load(stage, "parrot", {**found.worker_options({}), "sleep": engine.sleep})
        settings = ShellSettings(places=places)
        shells.append(
            Shell(
                stage, found, model, transport, engine, clock=loop.time, settings=settings, fatal=pytest.fail
            )
        )
    pod = Pod(transports[-1], {"parrot": found}, options={"parrot": {}}, clock=loop.time)
    for process in (*shells, pod):
        await process.start()
    try:
        await until(lambda: not pod.roster.lacking("parrot"))
        yield
    finally:
        for process in (*shells, pod):
            await process.stop()
        for transport in transports:
            await transport.close()


def test_a_deployment_in_order() -> None:
    async def main() -> tuple[int, dict[str, Check], str]:
        async with EmbeddedServer() as server, everybody(server.url, places=7):
            told = await asyncio.to_thread(doctor, "--nats", server.url, "--model", "parrot")
            async with raw(server.url) as client:
                left = [stream.config.name for stream in await client.jetstream().streams_info()]
        assert left == [], "the scratch bucket is gone"
        assert server.url.split("@")[0].split(":")[-1] not in told[2], "no credentials"
        return told

    code, checks, _ = asyncio.run(main())
    assert code == 0
    assert [*checks] == [
        *(
            "python",
            "packages",
            "nats-server",
            "nats",
            "store",
            "clock",
            "workers",
            "durability",
            "versions",
            "models",
            "memory",
        )
    ]
    assert {name: check.state for name, check in checks.items() if check.state is not State.OK} == {}
    assert checks["nats"].says.endswith(f"JetStream on, messages up to {MAX_PAYLOAD >> 10} KiB")
    for stage in STAGES:
        assert f"1 {stage} (7 places free, 0 sessions)" in checks["workers"].says
    assert "api pods: 1" in checks["workers"].says


def test_a_server_with_nobody_there_and_with_strangers() -> None:
    async def main() -> tuple[list[Check], list[Check]]:
        async with EmbeddedServer() as server:
            alone = await deployed(server.url, True)
            async with raw(server.url) as client:
                stranger = m.Heartbeat(m.WIRE + 1, m.LEDGER, "llm.llm-1", m.READY, {})

                async def tell() -> None:
                    while True:
                        await client.publish(subjects.heartbeat("llm.llm-1"), m.encode(stranger))
                        await client.publish(subjects.heartbeat("llm.llm-2"), b"\xc1")
                        await asyncio.sleep(0.05)

                telling = asyncio.create_task(tell())
                strangers = await deployed(server.url, True)
                telling.cancel()
        return alone, strangers

    alone, strangers = ({check.name: check for check in checks} for checks in asyncio.run(main()))
    assert (alone["workers"].state, alone["workers"].says) == (State.WARN, "nobody is there")
    assert {check.state for name, check in alone.items() if name != "workers"} == {State.OK}
    assert strangers["versions"].state is State.FAIL
    assert (
        f"there also wire {m.WIRE + 1} and ledger {m.LEDGER}, 1 that can't be read"
        in strangers["versions"].says
    )


def test_the_clock_is_compared_with_the_server_s(server: EmbeddedServer) -> None:
    async def main() -> tuple[float, float]:
        transport = NatsTransport(server.url, name="clock")
        await transport.connect()
        try:
            ours = await round_trip(transport, "duo_doctor_test")
            slow = await round_trip(transport, "duo_doctor_slow", wall=lambda: time.time() - 100)
        finally:
            await transport.close()
        return ours.ahead_s, slow.ahead_s

    ours, slow = asyncio.run(main())
    assert abs(ours) < 10, "the same machine"
    assert slow - ours == pytest.approx(100, abs=10)


def test_a_server_without_jetstream_fails(tmp_path: Path) -> None:
    async def main() -> list[Check]:
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            find_binary(), "-a", "127.0.0.1", "-p", str(port), stderr=asyncio.subprocess.DEVNULL, cwd=tmp_path
        )
        try:
            async with asyncio.timeout(20):
                while True:
                    try:
                        async with raw(f"nats://127.0.0.1:{port}"):
                            break
                    except OSError:
                        await asyncio.sleep(0.02)
            return await deployed(f"nats://127.0.0.1:{port}", True)
        finally:
            process.terminate()
            await process.wait()

    [nats, *others] = asyncio.run(main())
    assert (nats.name, nats.state) == ("nats", State.FAIL)
    assert "JetStream off" in nats.says
    assert [check.name for check in others] == ["workers", "durability", "versions"], (
        "there is no store to try"
    )


def test_nothing_runs() -> None:
    """A failure only for who says that something should run there."""
    url = f"nats://u:s3cret@127.0.0.1:{free_port()}"
    code, checks, out = doctor("--nats", url)
    assert (code, checks["nats"].state) == (1, State.FAIL)
    assert checks["nats"].says.startswith("no NATS server at nats://127.0.0.1:")
    assert "s3cret" not in out
    assert "store" not in checks
    [nats] = asyncio.run(deployed(url, False))
    assert (nats.state, "duologue up" in nats.todo) == (State.WARN, True)


def test_wrong_credentials_fail(server: EmbeddedServer) -> None:
    url = f"nats://somebody:else@{server.url.partition('@')[2]}"
    [nats] = asyncio.run(deployed(url, True))
    assert (nats.state, "refuses these credentials" in nats.says) == (State.FAIL, True)
    assert (nats.says[-1], nats.todo) == (")", ""), "the cause has a colon, too"


def test_what_is_no_address_fails_whole() -> None:
    [nats] = asyncio.run(deployed("nats://127.0.0.1:99999", True))
    assert "connect url option" in nats.says
    assert nats.todo.startswith("start one with")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_process_without_standard_streams(closed: str) -> None:
    """Incident: with its standard output closed, a command was aborted by libuv, since a socket had got number 1."""
    command = f'exec "{sys.executable}" -m duologue doctor --model parrot {closed}'
    ended = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert b"Error" not in ended.stderr
