"""How much memory sessions may take on this machine."""

import re
from pathlib import Path

MARGIN = 0.1
"""Share of what is free that stays so."""


def sessions_budget(free_bytes: int | None) -> int | None:
    """Bytes that sessions may take: of `free_bytes` on the model's own device, or else of what the host has, less a
    margin.  `None` where nobody can tell (the host is no Linux)."""
    free_bytes = available_bytes() if free_bytes is None else free_bytes
    return None if free_bytes is None else int(free_bytes * (1 - MARGIN))


def available_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What processes can still take without swapping, within the limit of the container (cgroup v2)."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    if found is None:
        return None
    of_host = int(found[1]) * 1024
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        if limit == "max":
            return of_host
        # Files that were read and are not in use any more give way.
        cached = re.search(r"^inactive_file (\d+)$", (cgroup / "memory.stat").read_text(), re.MULTILINE)
        used = int((cgroup / "memory.current").read_text()) - (int(cached[1]) if cached else 0)
        return max(0, min(of_host, int(limit) - used))
    except (OSError, ValueError):
        return of_host
