"""Free memory of this machine, or of the container."""

from pathlib import Path

UNLIMITED = 1 << 60
"""Control groups of version 1 say "no limit" by a number beyond any memory."""


def free_bytes(root: Path = Path("/")) -> int | None:
    """What can still be had without swapping, within the limit of the control group; `None` where no file says so."""
    found = [*_machine(root / "proc/meminfo")]
    group = root / "sys/fs/cgroup"
    found += _group(group / "memory.max", group / "memory.current")
    found += _group(group / "memory/memory.limit_in_bytes", group / "memory/memory.usage_in_bytes")
    return min(found, default=None)


def _machine(meminfo: Path) -> list[int]:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def _group(limit: Path, used: Path) -> list[int]:
    try:
        most, now = limit.read_text().strip(), int(used.read_text())
    except (OSError, ValueError):
        return []
    return [max(0, int(most) - now)] if most.isdecimal() and int(most) < UNLIMITED else []
