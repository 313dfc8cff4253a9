"""Free memory of this machine, or of the container."""

from pathlib import Path

MARGIN = 0.1
"""Share of what is free that sessions leave."""
UNLIMITED = 1 << 60
"""Control groups of version 1 say "no limit" by a number beyond any memory."""


def free_bytes(root: Path = Path("/")) -> int | None:
    """What can still be had without swapping, within the limit of the control group; `None` where no file says so."""
    found = [*_machine(root / "proc/meminfo")]
    group = root / "sys/fs/cgroup"
    found += _group(group / "memory.max", group / "memory.current")
    found += _group(group / "memory/memory.limit_in_bytes", group / "memory/memory.usage_in_bytes")
    return min(found, default=None)


def sessions_budget(of_device: int | None) -> int | None:
    """Bytes that sessions may take: of what is free on the model's own device, or else here, less a margin.  `None`
    where nobody can tell."""
    free = free_bytes() if of_device is None else of_device
    return None if free is None else int(free * (1 - MARGIN))


def _machine(meminfo: Path) -> list[int]:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def _cached(stat: Path) -> int:
    """Of what the group uses, files that were read and are not in use any more: they give way to sessions."""
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))


def _group(limit: Path, used: Path) -> list[int]:
    try:
        most, now = limit.read_text().strip(), int(used.read_text()) - _cached(used.parent / "memory.stat")
    except (OSError, ValueError):
        return []
    return [max(0, int(most) - now)] if most.isdecimal() and int(most) < UNLIMITED else []
