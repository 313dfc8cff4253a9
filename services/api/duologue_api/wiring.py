"""From a session's owners to each one's part of the route: pure functions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from duologue.bus.messages import Epoch, Inflow, Outflow, Told, Wiring
from duologue.models import Edge


class Place(NamedTuple):
    """Where an end of an edge is, and under which epoch."""

    address: str
    epoch: Epoch


def wiring(
    end: str,
    edges: Sequence[Edge],
    places: Mapping[str, Place],
    version: tuple[int, int],
    go: bool,
    wanted: Mapping[tuple[str, str], int] = {},
) -> Wiring:
    """The part of the route that concerns `end` (a stage, or the root).  `wanted` is the first unit that goes over each
    edge (source, destination), 0 where it says nothing."""
    inflows = {
        edge.src: Inflow([(places[edge.src].epoch, 0)], wanted.get((edge.src, end), 0))
        for edge in edges
        if edge.dst == end
    }
    outflows = {
        edge.dst: [Outflow(*places[edge.dst], wanted.get((end, edge.dst), 0))]
        for edge in edges
        if edge.src == end
    }
    return Wiring(version, go, inflows, outflows, told(places))


def told(places: Mapping[str, Place]) -> Told:
    """The session's route as everyone is told it."""
    return {stage: [(place.address, place.epoch, 0)] for stage, place in places.items() if stage != "root"}
