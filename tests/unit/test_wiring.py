"""From a session's owners to each one's part of the route."""

import pytest

from duologue.bus.messages import Inflow, Outflow
from duologue.models import CHAIN, ROOT, STAGES, Edge
from duologue_api.wiring import Place, told, wiring

pytestmark = pytest.mark.unit

PLACES = {end: Place(f"{end}.x", (2, n)) for n, end in enumerate((ROOT, *STAGES))}
LOOP = (*CHAIN, Edge("talker", "llm", main=False, lag=1))


def test_each_end_gets_its_edges() -> None:
    it = wiring("llm", LOOP, PLACES, (2, 3), go=True)
    assert (it.version, it.go) == ((2, 3), True)
    assert it.inflows == {"encoder": Inflow([((2, 1), 0)], 0), "talker": Inflow([((2, 3), 0)], 0)}
    assert it.outflows == {"talker": [Outflow("talker.x", (2, 3), 0)]}
    assert wiring("llm", CHAIN, PLACES, (2, 3), go=False).inflows == {"encoder": Inflow([((2, 1), 0)], 0)}


def test_the_root_is_an_end_like_others() -> None:
    it = wiring(ROOT, LOOP, PLACES, (2, 3), go=True)
    assert it.inflows == {"codec": Inflow([((2, 4), 0)], 0)}
    assert it.outflows == {"encoder": [Outflow("encoder.x", (2, 1), 0)]}


@pytest.mark.parametrize("edges", [CHAIN, LOOP])
def test_what_one_end_sends_another_expects(edges: tuple[Edge, ...]) -> None:
    ends = {end: wiring(end, edges, PLACES, (2, 3), go=True) for end in PLACES}
    for edge in edges:
        (outflow,) = ends[edge.src].outflows[edge.dst]
        assert (outflow.address, outflow.epoch) == PLACES[edge.dst]
        assert ends[edge.dst].inflows[edge.src].entries == [(PLACES[edge.src].epoch, 0)]
    assert sum(len(it.inflows) for it in ends.values()) == len(edges)


def test_everyone_is_told_the_same_route() -> None:
    route = told(PLACES)
    assert route == {stage: [(f"{stage}.x", PLACES[stage].epoch, 0)] for stage in STAGES}
    assert all(wiring(end, CHAIN, PLACES, (2, 3), go=True).told == route for end in PLACES)
