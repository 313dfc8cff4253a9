"""`make demo`, as a newcomer runs it, and Ctrl-C: nothing is left."""

import os
import re
import secrets
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from deployment import DUOLOGUE, END_S, MARK, READY_S, clean_environment, marked, wait_free, wait_gone

pytestmark = pytest.mark.e2e

REPO = Path(__file__).resolve().parents[2]
MAKE = ("make", "--no-print-directory", "demo", "PORT=0")


def is_set_up() -> bool:
    """Whether make would start at once; setting up takes a network and minutes, and is none of this test's business."""
    stamp = REPO / ".venv/.pocket"
    return stamp.exists() and stamp.stat().st_mtime >= (REPO / "pyproject.toml").stat().st_mtime


def command() -> Sequence[str]:
    """`make demo`, or where that would set things up first, what it runs then."""
    if is_set_up():
        return MAKE
    recipe = subprocess.run([*MAKE, "-n"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    program, *arguments = shlex.split(recipe.splitlines()[-1].removeprefix("exec "))
    assert program == ".venv/bin/duologue"
    return [*DUOLOGUE, *arguments]


@contextmanager
def running(mark: str) -> Iterator["subprocess.Popen[str]"]:
    """The command in a process group of its own, as a shell gives it one; killed when the test did not end it."""
    with subprocess.Popen(
        command(),
        cwd=REPO,
        env={**clean_environment(), MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        timer = threading.Timer(READY_S + END_S, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            wait_gone(mark, 0 if process.returncode else 5)


def test_ctrl_c_leaves_nothing() -> None:
    mark = secrets.token_hex(8)
    with running(mark) as process:
        assert process.stdout is not None
        shown = ""
        for line in process.stdout:
            shown += line
            if "Ctrl-C" in line:
                break
        url = re.search(r"http://127\.0\.0\.1:\d+", shown)
        assert url is not None, shown
        assert "pocket" in shown
        os.killpg(process.pid, signal.SIGINT)
        # make ends by the signal that it got, once what it started has ended.
        assert process.wait(END_S) in (0, 130, -signal.SIGINT)
        assert marked(mark) == []
        wait_free(url[0])
