"""The supervisor with small processes of its own: deaths, giving up, ends in order, and nothing left behind."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from duologue.supervisor import GaveUp, Guard, Ready, Spec, StartFailed, Supervisor

pytestmark = pytest.mark.faults

READY = """echo '{"ready": true, "url": "http://127.0.0.1:7"}'"""


def shell(name: str, script: str, rank: int = 0) -> Spec:
    return Spec(name, lambda _: ["/bin/sh", "-c", script], rank)


class Log:
    """What was reported, and a way to wait for a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def __call__(self, name: str, line: str) -> None:
        self.lines.append(f"{name}: {line}")
        self._more.set()

    async def seen(self, text: str, times: int = 1) -> None:
        async with asyncio.timeout(20):
            while sum(line.count(text) for line in self.lines) < times:
                self._more.clear()
                await self._more.wait()


@contextlib.asynccontextmanager
async def supervised(
    specs: Sequence[Spec], log: Log | None = None, grace_s: float = 10.0
) -> AsyncIterator[Supervisor]:
    async with Guard() as guard:
        supervisor = Supervisor(specs, guard, log or Log(), grace_s=grace_s)
        try:
            yield supervisor
        finally:
            await supervisor.stop()


def alive(pid: int) -> bool:
    """Whether it runs; a zombie, whose parent has not looked yet, does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        pass
    if sys.platform == "linux":
        return False
    return subprocess.run(["ps", "-p", str(pid)], capture_output=True).returncode == 0


def wait_gone(pids: Sequence[int]) -> None:
    until = time.monotonic() + 20
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < until, f"{left} still run"
        time.sleep(0.02)


def test_starts_all_and_ends_them_in_order(tmp_path: Path) -> None:
    ended = tmp_path / "ended"

    def careful(name: str, rank: int) -> Spec:
        return shell(
            name, f"trap 'echo {name} >> {ended}; exit 0' TERM; {READY}; while :; do sleep 0.02; done", rank
        )

    async def scenario() -> list[int]:
        async with supervised([careful("worker", 1), careful("api", 0), careful("other", 1)]) as supervisor:
            await supervisor.start(20)
            assert [child.ready for child in supervisor.children] == [
                {"ready": True, "url": "http://127.0.0.1:7"}
            ] * 3
            pids = [child.pid for child in supervisor.children if child.pid]
            assert all(map(alive, pids))
            return pids

    pids = asyncio.run(scenario())
    assert not any(map(alive, pids))
    first, *rest = ended.read_text().split()
    assert first == "api"
    assert sorted(rest) == ["other", "worker"]


def test_what_comes_before_the_others_is_ready_before_they_start(tmp_path: Path) -> None:
    mark = tmp_path / "ready"
    first = Spec("first", lambda _: ["/bin/sh", "-c", f"touch {mark}; {READY}; exec sleep 60"], before=True)
    looks = shell("other", f'test -e {mark} && echo "it was there"; {READY}; exec sleep 60')

    async def scenario() -> None:
        log = Log()
        async with supervised([looks, first], log) as supervisor:
            await supervisor.start(20)
            await log.seen("other: it was there")

    asyncio.run(scenario())


def test_the_others_do_not_start_without_it() -> None:
    async def scenario() -> None:
        never = Spec("first", lambda _: ["/bin/sh", "-c", "exec sleep 60"], before=True)
        async with supervised([shell("other", f"{READY}; exec sleep 60"), never]) as supervisor:
            with pytest.raises(StartFailed, match=r"not ready within 0\.1 s: other, first"):
                await supervisor.start(0.1)
            assert [child.pid is None for child in supervisor.children] == [True, False]

    asyncio.run(scenario())


def test_a_dead_process_is_started_anew_with_what_it_said_first() -> None:
    given: list[Ready | None] = []

    def command(first: Ready | None) -> Sequence[str]:
        given.append(first)
        return ["/bin/sh", "-c", f"{READY}; echo born; exec sleep 60"]

    async def scenario() -> None:
        log = Log()
        async with supervised([Spec("one", command)], log) as supervisor:
            await supervisor.start(20)
            [child] = supervisor.children
            before = child.pid
            assert before is not None
            await log.seen("born")
            os.kill(before, signal.SIGKILL)
            await log.seen("one was ended by SIGKILL; starting it anew")
            await log.seen("born", times=2)
            assert child.pid not in (None, before)
            assert child.pid is not None
            assert alive(child.pid)

    asyncio.run(scenario())
    assert given[0] is None
    assert given[1] is not None
    assert given[1]["url"] == "http://127.0.0.1:7"


def test_gives_up_on_one_that_dies_again_and_again(tmp_path: Path) -> None:
    lives = tmp_path / "lives"

    async def scenario() -> None:
        script = f"echo x >> {lives}; {READY}; echo 'the disk is full' >&2; exit 3"
        async with supervised([shell("bad", script), shell("good", f"{READY}; exec sleep 60")]) as supervisor:
            await supervisor.start(20)
            async with asyncio.timeout(30):
                await supervisor.run()

    with pytest.raises(GaveUp, match=r"(?s)bad ended with exit code 3, 5 times in 10 s.*the disk is full"):
        asyncio.run(scenario())
    assert lives.read_text().split() == ["x"] * 5


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo noise >&2; echo 'duologue: port 7 is taken' >&2; exit 1", "bad: port 7 is taken$"),
        ("exit 0", "bad ended with exit code 0$"),
    ],
)
def test_a_process_that_never_was_ready_fails_the_start(script: str, says: str) -> None:
    log = Log()

    async def scenario() -> None:
        async with supervised([shell("slow", "exec sleep 60"), shell("bad", script)], log) as supervisor:
            await supervisor.start(20)

    with pytest.raises(StartFailed, match=says):
        asyncio.run(scenario())
    assert not any("duologue: " in line for line in log.lines), "the last words are told once, with the death"


def test_not_in_time_and_not_there() -> None:
    async def scenario(spec: Spec, timeout_s: float) -> None:
        async with supervised([spec]) as supervisor:
            await supervisor.start(timeout_s)

    with pytest.raises(StartFailed, match=r"not ready within 0\.05 s: slow"):
        asyncio.run(scenario(shell("slow", "exec sleep 60"), 0.05))
    with pytest.raises(StartFailed, match="absent"):
        asyncio.run(scenario(Spec("absent", lambda _: ["/absent/program"]), 20))


def test_one_that_does_not_want_to_end_is_killed() -> None:
    async def scenario() -> int:
        log = Log()
        stubborn = shell("stubborn", f"trap '' TERM; {READY}; while :; do sleep 0.02; done")
        async with supervised([stubborn], log, grace_s=0.1) as supervisor:
            await supervisor.start(20)
            pid = supervisor.children[0].pid
            assert pid is not None
        assert "stubborn: did not end within 0.1 s" in log.lines
        return pid

    assert not alive(asyncio.run(scenario()))


def test_long_lines_and_noise_go_through() -> None:
    async def scenario() -> list[str]:
        log = Log()
        script = f"head -c 100000 /dev/zero | tr '\\0' a >&2; echo >&2; echo no json; {READY}; echo later; exec sleep 60"
        async with supervised([shell("loud", script)], log) as supervisor:
            await supervisor.start(20)
            await log.seen("later")
            await log.seen("a", times=100000)
        return log.lines

    lines = asyncio.run(scenario())
    assert "loud: no json" in lines
    assert all(len(line) < 40000 for line in lines)


DRIVER = """
import asyncio, json, sys
from duologue.supervisor import Guard, Spec, Supervisor

async def main():
    async with Guard() as guard:
        commands = json.loads(sys.argv[1])
        specs = [Spec(str(n), (lambda c: lambda _: c)(c)) for n, c in enumerate(commands)]
        supervisor = Supervisor(specs, guard, lambda *_: None)
        await supervisor.start(20)
        print(json.dumps([guard.pid, *(child.pid for child in supervisor.children)]), flush=True)
        await supervisor.run()

asyncio.run(main())
"""

CHILDREN: dict[str, Callable[[], list[str]]] = {
    "deaf": lambda: ["/bin/sh", "-c", f"trap '' TERM; {READY}; while :; do sleep 0.02; done"],
    "stopped": lambda: ["/bin/sh", "-c", f"{READY}; kill -STOP $$"],
    "watching": lambda: [
        sys.executable,
        "-c",
        "import time; from duologue import lifeline; lifeline.watch()\n"
        "print('{\"ready\": true}', flush=True); time.sleep(60)",
    ],
}


def test_a_killed_supervisor_leaves_nothing() -> None:
    commands = [make() for make in CHILDREN.values()]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(commands)], stdout=subprocess.PIPE
    ) as driver:
        assert driver.stdout is not None
        pids = json.loads(driver.stdout.readline())
        assert len(pids) == 1 + len(CHILDREN)
        assert all(map(alive, pids))
        driver.kill()
    wait_gone(pids)


def test_the_lifeline_alone_ends_a_process() -> None:
    for watched in ("1", "0"):
        with subprocess.Popen(
            CHILDREN["watching"](),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "DUO_WATCH_STDIN": watched},
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b'{"ready": true}\n'
            process.stdin.close()
            if watched == "1":
                assert process.wait(20) == -signal.SIGTERM
            else:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.3)
                process.kill()
