"""Who begins where, for every set of stages that may die, at every distance between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue.bus.messages import Standing
from duologue.models import CHAIN, ROOT, STAGES, Edge
from duologue.session.known import Known
from duologue.session.succession import Lost, plan

pytestmark = pytest.mark.unit

LOOP = (*CHAIN, Edge("talker", "llm", main=False, lag=1, record_like=True))
BACK = (*CHAIN, Edge("codec", "llm", main=False, lag=2))
OUTPUT = 40
"""The root has the outputs before it."""

edges_of = st.sampled_from([CHAIN, LOOP, BACK])
reaches = st.fixed_dictionaries({stage: st.integers(0, 8) for stage in STAGES})
aheads = st.fixed_dictionaries({stage: st.integers(0, 4) for stage in STAGES})
dead = st.sets(st.sampled_from(STAGES), min_size=1)


def standing(stage: str, edges: tuple[Edge, ...], units: dict[str, int], kept: int) -> Standing:
    """An owner that has accepted all that there is, and keeps units from `kept` on."""
    accepted = {edge.src: units[edge.src] for edge in edges if edge.dst == stage}
    return Standing(
        stage, (1, 1), units[stage], accepted, {edge.dst: kept for edge in edges if edge.src == stage}
    )


def known_of(reach: dict[str, int], units: dict[str, int]) -> Known:
    known = Known()
    for stage, end in units.items():
        for unit in range(end):
            if stage != ROOT:
                known.learn(unit, {}, {stage: max(0, unit + 1 - reach[stage])})
    return known


def advances(ahead: dict[str, int]) -> dict[str, int]:
    """Next unit of each stage, the codec `ahead` of the root, the talker of the codec, and so on."""
    units, unit = {}, OUTPUT
    for stage in reversed(STAGES):
        unit += ahead[stage]
        units[stage] = unit
    return {**units, ROOT: unit}


@given(edges_of, reaches, aheads, dead)
def test_every_heir_begins_where_what_is_wanted_of_it_begins_to_depend_on_it(
    edges: tuple[Edge, ...], reach: dict[str, int], ahead: dict[str, int], dead: set[str]
) -> None:
    units = advances(ahead)
    known = known_of(reach, units)
    living = {stage: standing(stage, edges, units, 0) for stage in STAGES if stage not in dead}
    planned = plan(edges, known, OUTPUT, 0, living)
    assert set(planned.begin) == dead
    assert planned.holes == frozenset()
    for edge in edges:
        wanted = planned.wanted[edge.src, edge.dst]
        if edge.dst == ROOT:
            assert wanted == OUTPUT
        elif edge.dst in living:
            assert wanted == living[edge.dst].next[edge.src]
        elif edge.record_like:
            assert known.undecided(edge.src, OUTPUT) <= wanted
        else:
            assert wanted == max(0, planned.begin[edge.dst] - edge.lag)
        if edge.src in dead:
            assert planned.begin[edge.src] <= max(0, wanted - reach[edge.src])
    for stage, begin in planned.begin.items():
        outputs = [planned.wanted[edge.src, edge.dst] for edge in edges if edge.src == stage]
        assert begin == max(0, min(outputs) - reach[stage]), "no older than it must be"


@given(edges_of, reaches, aheads, dead, st.integers(0, OUTPUT))
def test_a_living_stage_that_keeps_too_little_is_a_hole(
    edges: tuple[Edge, ...], reach: dict[str, int], ahead: dict[str, int], dead: set[str], kept: int
) -> None:
    units = advances(ahead)
    living = {stage: standing(stage, edges, units, kept) for stage in STAGES if stage not in dead}
    planned = plan(edges, known_of(reach, units), OUTPUT, 0, living)
    short = {src for (src, _), unit in planned.wanted.items() if src in living and unit < kept}
    assert planned.holes == short


def test_a_ledger_that_no_longer_reaches_back_is_an_end() -> None:
    reach, units = dict.fromkeys(STAGES, 4), advances(dict.fromkeys(STAGES, 0))
    with pytest.raises(Lost, match="unit 24 is needed and kept from 25 on"):
        plan(CHAIN, known_of(reach, units), OUTPUT, 25, {})
    assert plan(CHAIN, known_of(reach, units), OUTPUT, 24, {}).begin["encoder"] == 24
