"""Who begins where: from what is known of a session to the first unit of each heir.  Pure functions (CONTINUITY §3.2)."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from duologue.bus.messages import Standing
from duologue.models import ROOT, STAGES, Edge
from duologue.session.known import Known

Next = Mapping[str, Mapping[str, int]]
"""For each end that lives, the root among them: by source, the first unit that it has not accepted."""


class Plan(NamedTuple):
    """`begin` is each heir's first unit; `wanted` the first unit that goes over each edge (source, destination).
    `holes` are living stages that can't send again what is wanted of them: they have to be replaced as well."""

    begin: Mapping[str, int]
    wanted: Mapping[tuple[str, str], int]
    holes: frozenset[str]


class Lost(Exception):
    """The ledger no longer reaches back far enough."""


def plan(
    edges: Sequence[Edge],
    known: Known,
    output: int,
    kept: int,
    standings: Mapping[str, Standing],
) -> Plan:
    """`output` is the next unit that the root wants, `kept` the first whose audio it has, `standings` how the stages that
    live stand; the others are replaced.  Raises `Lost`."""
    living = {stage: standing.next for stage, standing in standings.items()} | {ROOT: {"codec": output}}
    replaced = [stage for stage in STAGES if stage not in standings]
    begin = begins(edges, known, replaced, living)
    wanted = {(edge.src, edge.dst): _wanted(edge, known, begin, living) for edge in edges}
    if wanted[ROOT, "encoder"] < kept:
        raise Lost(f"audio of unit {wanted[ROOT, 'encoder']} is needed and kept from {kept} on")
    holes = {
        src
        for (src, dst), unit in wanted.items()
        if src in standings and unit < min(standings[src].kept.get(dst, unit), standings[src].unit)
    }
    return Plan(begin, wanted, frozenset(holes))


def begins(edges: Sequence[Edge], known: Known, replaced: Collection[str], living: Next) -> dict[str, int]:
    """The first unit of each heir: where all that its destinations want from it begins to depend on it.  A model may have
    edges that lead back, so that what an heir wants can concern one that was dealt with before; it only ever gets older,
    until nothing changes."""
    begin: dict[str, int] = {}
    while True:
        before = dict(begin)
        for stage in reversed(STAGES):
            if stage in replaced:
                outputs = [edge for edge in edges if edge.src == stage]
                known_wants = [
                    _wanted(edge, known, begin, living)
                    for edge in outputs
                    if edge.dst in living or edge.dst in begin
                ]
                begin[stage] = known.begin(stage, min(known_wants))
        if begin == before:
            return begin


def _wanted(edge: Edge, known: Known, begin: Mapping[str, int], living: Next) -> int:
    """The first unit of the edge that its destination wants.  What is record-like is read from records while they are
    known, which they are without a hole from the session's last output on."""
    if edge.dst in living:
        return living[edge.dst][edge.src]
    first = max(0, begin[edge.dst] - edge.lag)
    if edge.record_like:
        return max(first, known.undecided(edge.src, living[ROOT]["codec"]))
    return first
