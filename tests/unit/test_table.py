"""The root's table of states, walked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue_api.table import TABLE, IllegalStep, Input, State, after

pytestmark = pytest.mark.unit

S, I = State, Input  # noqa: E741
ALL = [(state, what) for state in State for what in Input]


@pytest.mark.parametrize(("state", "what"), TABLE, ids=lambda part: part.value)
def test_a_legal_step_leads_where_the_table_says(state: State, what: Input) -> None:
    assert after(state, what) is TABLE[state, what]


@pytest.mark.parametrize(
    ("state", "what"), [step for step in ALL if step not in TABLE], ids=lambda part: part.value
)
def test_an_illegal_step_names_what_came_and_what_was_expected(state: State, what: Input) -> None:
    with pytest.raises(IllegalStep) as caught:
        after(state, what)
    message = str(caught.value)
    assert f"{what.value!r} came while {state.value}" in message
    came, _, expected = message.partition("; expected: ")
    assert came
    assert expected.split(", ") == [legal.value for each, legal in TABLE if each is state]


def reached(begin: State) -> set[State]:
    found, front = {begin}, [begin]
    while front:
        state = front.pop()
        for what in Input:
            following = TABLE.get((state, what))
            if following is not None and following not in found:
                found.add(following)
                front.append(following)
    return found


def test_every_state_is_reached() -> None:
    assert reached(S.CONNECTING) == set(State)


@pytest.mark.parametrize("state", State)
def test_every_session_can_end(state: State) -> None:
    assert S.CLOSED in reached(state)


def test_the_end_is_the_end() -> None:
    assert reached(S.CLOSED) == {S.CLOSED}


def test_the_client_can_leave_at_any_time() -> None:
    assert {after(state, I.GONE) for state in State} == {S.CLOSED}


def test_nothing_happens_before_the_start() -> None:
    assert {what for what in Input if (S.CONNECTING, what) in TABLE} == {I.START, I.GONE, I.FAILED}


def test_a_session_begins_once_and_is_active_only_once_it_is_opened() -> None:
    assert {state for state, what in TABLE if what is I.START} == {S.CONNECTING}
    into_active = {
        step for step, following in TABLE.items() if following is S.ACTIVE and step[0] is not S.ACTIVE
    }
    assert into_active == {(S.STARTING, I.OPENED), (S.SUSPENDED, I.BACK)}


def test_closing_never_goes_back() -> None:
    assert reached(S.CLOSING) == {S.CLOSING, S.CLOSED}


def test_what_comes_with_audio_changes_no_state() -> None:
    for state, what in TABLE:
        if what in (I.AUDIO, I.UNIT):
            assert after(state, what) is state


@given(st.lists(st.sampled_from(list(Input)), max_size=40))
def test_any_walk_stays_in_the_table(walk: list[Input]) -> None:
    """Illegal inputs raise and leave the state as it is; the end is final."""
    state, ended = S.CONNECTING, False
    for what in walk:
        try:
            following = after(state, what)
        except IllegalStep:
            assert (state, what) not in TABLE
            continue
        assert not ended or following is S.CLOSED
        state, ended = following, ended or following is S.CLOSED
