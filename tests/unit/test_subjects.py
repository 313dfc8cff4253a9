"""Subjects: what is built can be taken apart again, and nothing smuggles a token in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duologue.bus import subjects
from duologue.bus.subjects import BadToken, matches

pytestmark = pytest.mark.unit

ROLES = ("encoder", "llm", "talker", "codec", "api")
TO_AN_ADDRESS = (
    subjects.inbox,
    subjects.acks,
    subjects.claims,
    subjects.control,
    subjects.heartbeat,
)


@pytest.mark.parametrize("role", ROLES)
def test_an_address_is_new_each_time_and_names_its_role(role: str) -> None:
    addresses = {subjects.new_address(role) for _ in range(100)}
    assert len(addresses) == 100
    for address in addresses:
        assert subjects.role_of(address) == role
        assert len(address.split(".")) == 2


@pytest.mark.parametrize("subject_of", TO_AN_ADDRESS)
@pytest.mark.parametrize("role", ROLES)
def test_a_subject_tells_its_address(subject_of: object, role: str) -> None:
    address = subjects.new_address(role)
    assert callable(subject_of)
    subject = subject_of(address)
    assert subjects.address_of(subject) == address
    assert len(subject.split(".")) == 5
    assert subject.startswith(f"{subjects.ROOT}.")
    assert matches(subjects.everything(), subject)


def test_kinds_of_subjects_do_not_meet() -> None:
    address = subjects.new_address("llm")
    built = {subject_of(address) for subject_of in TO_AN_ADDRESS}
    assert len(built) == len(TO_AN_ADDRESS)
    heard = {subject for subject in built if matches(subjects.heartbeats(), subject)}
    assert heard == {subjects.heartbeat(address)}
    assert {subject for subject in built if subjects.is_inbox(subject)} == {subjects.inbox(address)}


def test_events_are_under_the_root_too() -> None:
    event = subjects.event("opened", "live_abc")
    assert event == f"{subjects.ROOT}.ev.opened.live_abc"
    assert matches(subjects.everything(), event)
    assert not matches(subjects.heartbeats(), event)


BAD = ["", ".", "a.b", "*", ">", "a*", "a b", "a\r\nPUB x 0", "a\tb", "a\n"]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_single_token_is_refused(text: str) -> None:
    for attempt in (
        lambda: subjects.token(text),
        lambda: subjects.new_address(text),
        lambda: subjects.event(text, "live_abc"),
        lambda: subjects.event("opened", text),
    ):
        with pytest.raises(BadToken):
            attempt()


@settings(deadline=None)
@given(st.text(max_size=12))
def test_a_token_stays_one_token(text: str) -> None:
    try:
        accepted = subjects.token(text)
    except BadToken:
        return
    assert accepted == text
    subject = subjects.event("kind", accepted)
    assert len(subject.split(".")) == 5
    assert not set(subject) & set(" \t\r\n*>")  # what separates words of NATS's protocol, and its wildcards
