"""What a drill has to say: one JSON object, or a table."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from duologue.drill.rounds import UNDISTURBED, Round, Stretch
from duologue.drill.verdict import Finding, Wrong

COUNTS: Mapping[str, Wrong] = {
    "lost": Wrong.LOST,
    "repeated": Wrong.REPEATED,
    "reordered": Wrong.REORDERED,
    "wrong": Wrong.SAMPLES,
    "text": Wrong.TEXT,
    "shed": Wrong.SHED,
}
"""Name in the report → what is counted, in units."""
HEADINGS = {"repeated": "re-\npeated", "reordered": "re-\nordered"}
"""So that a line has room on a terminal."""


def report(rounds: Sequence[Round], about: Mapping[str, Any]) -> dict[str, Any]:
    """`about` is told first.  `ok`: nothing was lost or wrong, and no session ended that nobody had asked to end."""
    stretches = [stretch for each in rounds for stretch in each.stretches]
    kinds = dict.fromkeys(stretch.fault for stretch in stretches)
    rows = [_row(kind, [each for each in stretches if each.fault == kind]) for kind in kinds]
    total = {
        "sessions": sum(each.sessions for each in rounds),
        "units": sum(each.units for each in rounds),
        **_wrong(stretches),
        "notices": dict(sum((each.notices for each in rounds), Counter[str]())),
    }
    ok = not any(total[name] for name in (*COUNTS, "samples", "ended"))
    return {**about, "faults": rows, "total": total, "ok": ok}


def _row(fault: str, stretches: Sequence[Stretch]) -> dict[str, Any]:
    """`gap_ms` is of the sessions that were moved, where any was and it is known, else of all."""
    watched = all(each.moved is not None for each in stretches)
    moved = sum(len(each.moved or ()) for each in stretches)
    gaps_s = [
        gap
        for each in stretches
        for sid, gap in each.gaps_s.items()
        if not moved or sid in (each.moved or set())
    ]
    return {
        "fault": fault,
        "times": len(stretches),
        "struck": dict(Counter(name for each in stretches for name in each.struck)),
        **_wrong(stretches),
        "moved": moved if watched else None,
        "gap_ms": _quantiles([1000 * gap for gap in gaps_s]),
        "why_ended": dict(Counter(why for each in stretches for why in each.ended)),
    }


def _wrong(stretches: Iterable[Stretch]) -> dict[str, int]:
    findings: list[Finding] = [finding for each in stretches for finding in each.findings]
    counts = Counter(finding.wrong for finding in findings)
    return {
        **{name: counts[wrong] for name, wrong in COUNTS.items()},
        "samples": sum(finding.samples for finding in findings),
        "ended": sum(len(each.ended) for each in stretches),
    }


def _quantiles(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    p50, p99 = np.percentile(values, [50, 99])
    return {"p50": round(float(p50), 1), "p99": round(float(p99), 1), "max": round(max(values), 1)}


# ---------------------------------------------------------------- for people


def table(said: Mapping[str, Any]) -> Table:
    """The same, a line a fault."""
    found = Table(box=None, caption=_caption(said), caption_justify="left", padding=(0, 1, 0, 0))
    found.add_column("fault", no_wrap=True)
    for name in ("moved", *COUNTS, "ended"):
        found.add_column(HEADINGS.get(name, name), justify="right")
    found.add_column("gap, ms\np50/p99/max", justify="right", no_wrap=True)
    for row in said["faults"]:
        found.add_row(
            row["fault"] if row["times"] == 1 else f"{row['times']} x {row['fault']}",
            "-" if row["moved"] is None else str(row["moved"]),
            *(_count(row[name]) for name in (*COUNTS, "ended")),
            "/".join(f"{value:.0f}" for value in (row["gap_ms"] or {}).values()) or "-",
        )
    total = said["total"]
    found.add_row("total", "", *(_count(total[name]) for name in (*COUNTS, "ended")), "")
    return found


def _count(number: int) -> str:
    return f"[bold red]{number}[/]" if number else "0"


def _caption(said: Mapping[str, Any]) -> str:
    total = said["total"]
    parts = [f"{total['sessions']} sessions, {total['units']} units"]
    if total["notices"]:
        parts.append("notices: " + ", ".join(f"{count} {code}" for code, count in total["notices"].items()))
    if said["ok"]:
        parts.append("nothing was lost, and every sample is right")
    else:
        parts.append(f"{total['samples']} samples are wrong" if total["samples"] else "not all went well")
    if any(row["fault"] == UNDISTURBED and any(row[name] for name in COUNTS) for row in said["faults"]):
        parts.append("wrong before the first fault: are --seed and --option those of the deployment?")
    return "; ".join(parts)
