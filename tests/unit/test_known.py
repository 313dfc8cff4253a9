"""What is known of a session's units."""

import pytest

from duologue.bus.delivery import Emission, Ring
from duologue.bus.messages import Audio, Decided
from duologue.models import CHAIN
from duologue.session.known import Known
from duologue.session.ledger import Contradiction, Ledger

pytestmark = pytest.mark.unit


def test_a_decision_is_known_where_the_horizon_is() -> None:
    known = Known()
    known.learn(3, {"llm": [1]}, {"llm": 0})
    known.learn(4, {}, {"llm": 1})
    known.learn(5, {"llm": [2]}, {})
    assert [known.knows(unit, "llm") for unit in (3, 4, 5, 6)] == [True, True, False, False]
    assert known.undecided("llm", 3) == 5
    assert [known.record(unit, "llm") for unit in (3, 4, 6)] == [[1], None, None]


def test_what_several_say_of_a_unit_is_put_together() -> None:
    known = Known()
    known.learn(3, {"llm": [1]}, {"encoder": 2, "llm": 0})
    known.learn(3, {"talker": 0.5}, {"talker": 1})
    assert known.since(3) == {3: Decided({"llm": [1], "talker": 0.5}, {"encoder": 2, "llm": 0, "talker": 1})}
    assert known.records(0, frozenset({"talker"})) == {3: {"talker": 0.5}}
    assert known.records(4, frozenset({"talker"})) == {}
    assert known.contradicts(3, {"llm": [1], "codec": 1}) == []
    assert known.contradicts(3, {"llm": [9]}) == ["llm"]


def test_an_output_depends_on_what_its_stage_said_before_it() -> None:
    known = Known()
    for unit in (3, 4):
        known.learn(unit, {}, {"codec": unit - 1})
    assert known.begin("codec", 5) == 3
    assert known.begin("codec", 4) == 2
    assert known.begin("codec", 9) == 3, "older than it need be, but never too young"
    assert known.begin("codec", 3) == 0, "of nothing before is anything known"
    assert known.begin("codec", 0) == 0


def test_what_is_forgotten_is_not_learnt_again() -> None:
    known = Known()
    for unit in range(6):
        known.learn(unit, {}, {"codec": unit})
    known.forget(4)
    known.learn(2, {}, {"codec": 2})
    assert (sorted(known), known.oldest, len(known)) == ([4, 5], 4, 2)
    known.forget(1)
    assert known.oldest == 4


def ledger(units: int) -> Ledger:
    ring = Ring(0, 1 << 20)
    kept = Ledger(CHAIN, ring)
    reach = {"encoder": 3, "llm": 5, "talker": 2, "codec": 1}
    for unit in range(units):
        ring.add(Emission(unit, Audio(), {}))
        horizons = {stage: max(0, unit + 1 - units_) for stage, units_ in reach.items()}
        kept.learn(unit, {"llm": [unit]}, horizons)
    return kept


def test_the_ledger_reaches_as_far_back_as_all_stages_together() -> None:
    kept = ledger(30)
    kept.advance(20)
    assert kept.oldest == 20 - 3 - 5 - 2 - 1
    kept.advance(15)
    assert kept.oldest == 9, "it does not grow back"


def test_two_records_of_a_unit_are_a_bug() -> None:
    kept = ledger(3)
    kept.gather({1: Decided({"llm": [1], "talker": 0.5}, {"talker": 0})})
    with pytest.raises(Contradiction, match="unit 1 has two records of talker"):
        kept.gather({1: Decided({"llm": [1], "talker": 0.25}, {})})
    assert kept.known.record(1, "talker") == 0.5


def test_the_ledger_tells_its_audio() -> None:
    assert ledger(3).bytes == 3 * 120
