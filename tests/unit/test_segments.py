"""Ledgers as the store keeps them: split under a message's limit, and read back whoever wrote them."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue.audio.formats import FORMATS, PCM_16K, PCMA, PCMU, Format
from duologue.audio.streams import InputStream
from duologue.bus.messages import LEDGER, WIRE, Decided, Heard, Malformed, encode
from duologue.session import segments
from duologue.session.capture import Capture
from duologue.session.segments import (
    AudioSegment,
    Found,
    Kept,
    LedgerSegment,
    NewerLedger,
    Said,
    SpeechSegment,
    TooLarge,
    gaps,
    read,
    read_back,
)

pytestmark = pytest.mark.unit

FORM = ("audio/pcm", 24_000)
STORED = bytes.fromhex(
    "95a66c656467657201010592928"
    "2a36c6c6d93000000a8636f6e74726f6c739193a56d75746564cd2580c082a7656e636f64657205a36c6c6d00"
    "9281a4726f6f74a47368656480"
)
"""A ledger of version 1 as it was written then: unit 5 with a record of the llm and a control, unit 6 shed."""


def kept(unit: int, size: int = 3840) -> Kept:
    audio = random.Random(unit).randbytes(size)
    said = Said(audio[::-1], f"{unit}", (Heard("a", unit, unit + 1),))
    return Kept(unit, [audio, 7], Decided({"llm": [1, unit, 0]}, {"llm": 0}), said)


def found(values: list[bytes], root_epoch: int = 1) -> list[Found]:
    return [Found(root_epoch, number, read(value)) for number, value in enumerate(values)]


ALONE = [(1, 0, "api.a")]


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(12_000, 100_000))
def test_what_is_written_is_read_back_in_values_under_the_limit(units: set[int], limit: int) -> None:
    taken = [kept(unit) for unit in sorted(units)]
    values = [
        *segments.decisions(taken, limit),
        *segments.inputs(taken, FORM, 1920, limit),
        *segments.outputs(taken, 24_000, limit),
    ]
    assert max(map(len, values)) <= limit
    back = read_back(found(values), ALONE)
    assert back.decided == {each.unit: each.decided for each in taken}
    assert {unit: heard.pieces for unit, heard in back.heard.items()} == {e.unit: e.heard for e in taken}
    assert back.said == {each.unit: each.said for each in taken}
    assert {heard.form for heard in back.heard.values()} == {FORM}


def test_a_value_names_its_first_sample() -> None:
    [first, second] = [read(value) for value in segments.inputs([kept(4), kept(9)], FORM, 1927)]
    assert isinstance(first, AudioSegment)
    assert isinstance(second, AudioSegment)
    assert (first.first, first.sample, second.first, second.sample) == (4, 4 * 1927, 9, 9 * 1927)
    whole = read_back(found([*segments.inputs([kept(4), kept(5)], FORM, 1927)]), ALONE)
    assert (whole.heard[4].sample, whole.heard[5].sample) == (4 * 1927, 5 * 1927)


def test_a_unit_that_no_value_can_hold_is_named() -> None:
    with pytest.raises(TooLarge, match="unit 3 has"):
        list(segments.inputs([kept(2, 10), kept(3, 5000)], FORM, 1920, limit=4000))


def test_input_that_was_never_answered_has_no_record() -> None:
    tail = Kept(8, [b"\1\0"])
    assert list(segments.decisions([tail])) == []
    assert list(segments.outputs([tail], 24_000)) == []
    assert len(list(segments.inputs([tail], FORM, 1920))) == 1


# ---------------------------------------------------------------- versions


def test_a_stored_ledger_of_version_1_is_read() -> None:
    unit = {"llm": [0, 0, 0], "controls": [["muted", 9600, None]]}
    assert read(STORED) == LedgerSegment(
        1, 1, 5, [Decided(unit, {"encoder": 5, "llm": 0}), Decided({"root": "shed"}, {})]
    )


def test_a_later_version_is_refused_and_what_later_ones_append_is_skipped() -> None:
    with pytest.raises(NewerLedger, match=f"version {LEDGER + 1}"):
        read(encode(LedgerSegment(WIRE, LEDGER + 1, 0, [])))
    assert read(STORED[:1].replace(b"\x95", b"\x96") + STORED[1:] + b"\x01") == read(STORED)


@pytest.mark.parametrize("value", [b"", b"\x01", STORED[:-1], encode(Said())])
def test_what_is_no_segment_is_malformed(value: bytes) -> None:
    with pytest.raises(Malformed):
        read(value)


# ---------------------------------------------------------------- several roots


@st.composite
def histories(
    draw: st.DrawFn,
) -> tuple[list[Found], list[tuple[int, int, str]], dict[int, str], dict[int, set[int]]]:
    """What roots that follow each other leave behind: each takes over at a unit before its predecessor's end, decides
    anew from there, and writes now and then also what it adopted; a superseded one goes on for a while, deciding and
    writing what nobody hears.  Some writes are lost, some done twice, all in any order.

    Returns the segments, the history, the truth by unit, and by unit the root epochs whose writing of the truth arrived."""
    truth: dict[int, str] = {}
    arrived: dict[int, set[int]] = {}
    everything: list[Found] = []
    epochs: list[tuple[int, int, str]] = []
    numbers = iter(range(10_000))
    end = 0

    def write(root_epoch: int, units: dict[int, str], counts: bool) -> None:
        for first, stop in segments.runs(units):
            cut = sorted({first, stop, *draw(st.lists(st.integers(first, stop), max_size=3))})
            for a, b in pairwise(cut):
                part = [Decided({"llm": units[unit]}, {}) for unit in range(a, b)]
                copies = draw(st.sampled_from([0, 1, 1, 1, 2]))
                segment = LedgerSegment(WIRE, LEDGER, a, part)
                everything.extend(Found(root_epoch, next(numbers), segment) for _ in range(copies))
                if copies and counts:
                    for unit in range(a, b):
                        arrived.setdefault(unit, set()).add(root_epoch)

    epoch = 0
    for _ in range(draw(st.integers(1, 5))):
        epoch += draw(st.integers(1, 3))
        first = draw(st.integers(max(0, end - 6), end))
        if epochs and draw(st.booleans()):  # the predecessor has not noticed yet
            zombie = dict.fromkeys(range(first, end + 5), f"zombie {epochs[-1][0]}")
            write(epochs[-1][0], zombie, counts=False)
        for unit in range(first, end):
            arrived.pop(unit, None)
            del truth[unit]
        epochs.append((epoch, first, f"api.{epoch}"))
        if draw(st.booleans()):  # after a wiped store
            write(epoch, {unit: truth[unit] for unit in range(max(0, first - 8), first)}, counts=True)
        end = first + draw(st.integers(0, 10))
        mine = dict.fromkeys(range(first, end), f"root {epoch}")
        truth.update(mine)
        write(epoch, mine, counts=True)
    if draw(st.booleans()):  # one that never got the record
        write(epoch + 1, dict.fromkeys(range(end + 3), "nobody"), counts=False)
    return draw(st.permutations(everything)), epochs, truth, arrived


@given(histories())
def test_every_unit_is_the_one_that_was_heard_or_a_gap(
    history: tuple[list[Found], list[tuple[int, int, str]], dict[int, str], dict[int, set[int]]],
) -> None:
    everything, epochs, truth, arrived = history
    back = read_back(everything, epochs).decided
    assert {unit: decided.records["llm"] for unit, decided in back.items()} == {
        unit: truth[unit] for unit in truth if arrived.get(unit)
    }
    missing = {unit for first, end in gaps(back, 0, len(truth)) for unit in range(first, end)}
    assert missing == {unit for unit in truth if not arrived.get(unit)}


def test_gaps_are_stretches() -> None:
    assert gaps({3, 4, 7}, 1, 10) == [(1, 3), (5, 7), (8, 10)]
    assert gaps({0, 1}, 0, 2) == []


def test_a_context_written_anew_does_not_hide_the_clients_own_audio() -> None:
    [first] = segments.inputs([kept(0)], ("audio/pcmu", 8000), 640)
    [again] = segments.inputs([kept(0), kept(1)], FORM, 1920)
    back = read_back([Found(1, 9, read(again)), Found(1, 2, read(first))], ALONE)
    assert (back.heard[0].form, back.heard[1].form) == (("audio/pcmu", 8000), FORM)


# ---------------------------------------------------------------- capture


@given(st.sampled_from(FORMATS), st.data())
def test_what_is_captured_sounds_as_what_was_pushed(form: Format, data: st.DataObject) -> None:
    """However it is cut, muted or silent: an input stream makes the same units of it."""
    unit = form.rate * 80 // 1000
    live, again, capture = (
        InputStream(form, 24_000, 1920),
        InputStream(form, 24_000, 1920),
        Capture(form, unit),
    )
    heard: list[bytes] = []
    for size, muted, silent in data.draw(
        st.lists(st.tuples(st.integers(1, 2000), st.booleans(), st.booleans()), max_size=12)
    ):
        part = (
            bytes(form.sample_bytes * size)
            if silent
            else random.Random(size).randbytes(form.sample_bytes * size)
        )
        heard += live.push(part, silent=muted)
        capture.push(part, silent=muted)
    whole, part_units = divmod(live.samples, unit)
    taken = [capture.take(number) for number in range(whole)]
    rest = capture.rest()
    assert sorted(rest) == ([whole] if part_units else [])
    back: list[bytes] = []
    for pieces in [*taken, *rest.values()]:
        for piece in pieces:
            muted = isinstance(piece, int)
            audio = bytes(piece * form.sample_bytes) if isinstance(piece, int) else piece
            back += again.push(audio, silent=muted)
    assert back + again.flush() == heard + live.flush()


@pytest.mark.parametrize(("form", "zero"), [(PCM_16K, b"\0\0"), (PCMU, b"\xff"), (PCMU, b"\x7f")])
def test_silence_is_a_marker(form: Format, zero: bytes) -> None:
    capture = Capture(form, 100)
    capture.push(zero * 150)
    assert (capture.take(0), capture.take(1)) == ([100], [50])


def test_what_was_muted_is_not_kept_even_where_the_format_has_no_zero() -> None:
    capture = Capture(PCMA, 4)
    capture.push(b"ab")
    capture.push(b"secret", silent=True)
    assert (capture.take(0), capture.take(1)) == ([b"ab", 2], [4])


def test_taking_forgets_what_came_before() -> None:
    capture = Capture(PCMU, 2)
    capture.push(b"abcdef")
    assert capture.take(1) == [b"cd"]
    assert capture.take(0) == []
    assert capture.rest() == {2: [b"ef"]}


def test_a_session_kept_with_output_says_what_it_was() -> None:
    [segment] = [read(value) for value in segments.outputs([kept(2)], 16_000)]
    assert segment == SpeechSegment(WIRE, LEDGER, 2, 16_000, [kept(2).said])
