"""What a benchmark returns, and what makes its figures comparable: many rounds, interleaved, and the machine told.

A benchmark is a module `benchmarks/<name>.py` with `run(rounds: int) -> Figures`.
"""

import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity over all rounds, in `unit`.  `target` is the value that we want to reach or stay below, where
    there is one; which of both the benchmark says."""

    median: float
    min: float
    max: float
    unit: str
    target: float | None = None

    @classmethod
    def of(cls, rounds: Sequence[float], unit: str, target: float | None = None) -> "Figure":
        """From one value a round.  Raises `ValueError` without any."""
        if not rounds:
            raise ValueError("a figure without a round")
        return cls(statistics.median(rounds), min(rounds), max(rounds), unit, target)


Figures = Mapping[str, Figure]
"""Key → figure; a key is in lower case with underscores and keeps its meaning over versions."""


def interleaved(rounds: int, cases: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """One result a round for each case.  Every round runs all cases, each time beginning with another one, so that a
    machine that gets slower meanwhile does so for all of them."""
    names = list(cases)
    results: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            results[name].append(cases[name]())
    return results


def report(name: str, figures: Figures, rounds: int, now: datetime) -> dict[str, Any]:
    """The JSON object of a benchmark."""
    return {
        "name": name,
        "date": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "rounds": rounds,
        "figures": {key: asdict(figure) for key, figure in figures.items()},
    }


def machine() -> str:
    """Processor, usable cores, system and Python, for people to read."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} {platform.machine()}"
    return f"{_processor()}, {cores} cores, {system}, Python {platform.python_version()}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
        found = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=True
        )
        return found.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return platform.processor() or "unknown processor"
