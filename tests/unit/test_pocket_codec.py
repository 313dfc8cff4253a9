"""The pocket model's codec: clauses to units, with a synthesiser whose samples are known."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from duologue.bus.messages import Codes, Condition, Speech, Start, Tensor
from duologue.draws import generator
from duologue.models import ROOT
from duologue.stage.background import Background
from duologue.stage.model import Result, SessionError, Unit
from duologue_codec.pocket import AHEAD, FADE, MOST_BYTES, Codec, load
from duologue_codec.pocket_clause import CLAUSE_PAUSE, SENTENCE_PAUSE, WORD_PAUSE
from duologue_codec.pocket_hibari import FRAME, GAIN, MARGIN, PEAK, levelled, trimmed
from duologue_talker.pocket import Talker, word_bytes
from pocket_units import UNIT, Run, condition, left_of, opened, samples, say, spell, stepped

pytestmark = pytest.mark.unit

PHONEME = 500
"""Samples of each of the synthesiser's phonemes."""


def synthesise(ids: npt.NDArray[np.int64], noise: np.random.Generator) -> npt.NDArray[np.float32]:
    """Loud noise about a level of the phoneme's own."""
    level = np.repeat(ids / 256, PHONEME)
    return (level + 0.1 * noise.random(len(level))).astype(np.float32)


def inline() -> Codec:
    return Codec(synthesise, Background("synthesis", inline=True))


def codes(text: str = "", *, stop: bool = False, more: int = 0) -> Codes:
    """One clause, as the talker makes it, of phonemes as many as letters."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    if text:
        spelling, said = spell(text), text.encode()
        arrays["clauses"] = np.array([[len(spelling.ids), len(said)]], np.int64)
        arrays["phonemes"] = spelling.ids
        arrays["text"] = np.frombuffer(said, np.uint8)
        arrays["words"] = np.array(list(zip(spelling.starts, word_bytes(text), strict=True)), np.int64)
    if stop:
        arrays["stop"] = np.array(1, np.uint8)
    if more:
        arrays["more"] = np.array(more, np.int64)
    return Codes.of(arrays) if arrays else Codes()


def run(codec: Codec, told: dict[int, Codes], units: int, seed: int = 1) -> Run:
    state = opened(codec, Start(seed))
    done = Run()
    for number in range(units):
        done.results.append(stepped(codec, state, Unit(number, {"talker": told.get(number, Codes())})))
        done.horizons.append((0, codec.horizon(state)))
    return done


def sound(text: str, came: int, index: int = 0, seed: int = 1) -> npt.NDArray[np.int16]:
    speech = synthesise(spell(text).ids, generator(seed, came, "codec", index))
    return np.rint(speech * 32767).astype(np.int16)


def test_a_clause_in_units() -> None:
    done = run(inline(), {1: codes("abcdefghij kl")}, 6)
    expected = np.concatenate([np.zeros(UNIT, np.int16), sound("abcdefghij kl", 1)])
    pcm = done.pcm16
    assert pcm[: len(expected)].tolist() == expected.tolist()
    assert not pcm[len(expected) :].any()
    assert done.texts == ["", "abcdefghij", "", " kl", "", ""]
    assert [result.record for result in done.results] == [[], [[1, 0, 0]], [], [], [], []]
    assert done.left == [0, 6000 - UNIT, 6000 - 2 * UNIT, 6000 - 3 * UNIT, 0, 0]
    backs = [result.out["llm"] for result in done.results]
    assert backs[0] == backs[5] == Speech(), "silent, and nothing left"
    assert not backs[4].marker, "the last of it, though nothing is left"
    assert [
        b"" if back.marker or "text" not in back.tensors else back.tensors["text"].data for back in backs
    ] == [text.encode() for text in done.texts]


@pytest.mark.parametrize(
    ("text", "pause"),
    [("ab.", SENTENCE_PAUSE), ("ab?”", SENTENCE_PAUSE), ("ab,", CLAUSE_PAUSE), ("ab", WORD_PAUSE)],
)
def test_pauses_between_clauses(text: str, pause: int) -> None:
    pcm = run(inline(), {0: codes(text), 1: codes(" cd")}, 9).pcm16
    first, second = sound(text, 0), sound(" cd", 1)
    assert pcm[: len(first)].tolist() == first.tolist()
    begin = len(first) + pause
    assert not pcm[len(first) : begin].any()
    assert pcm[begin : begin + len(second)].tolist() == second.tolist()
    assert not pcm[begin + len(second) :].any()


def test_a_clause_after_the_pause_begins_with_its_unit() -> None:
    done = run(inline(), {0: codes("ab."), 7: codes("cd")}, 9)
    assert done.results[7].record == [[7, 0, 0]]
    # The pause ends in unit 4, the one after the second clause in unit 8.
    assert [codec for _, codec in done.horizons] == [0, 0, 0, 0, 5, 6, 7, 7, 9]


def test_left_is_never_nothing_while_something_waits() -> None:
    told = {0: codes("ab", more=50), 1: codes(" 🙂.", more=4), 2: codes(" cd. ef. gh.")}
    done = run(inline(), told, 40)
    assert done.left[0] >= 50 * 1000
    assert done.text == "ab 🙂. cd. ef. gh."
    for number, left in enumerate(done.left):
        assert left > 0 or not any(done.texts[number + 1 :])
        assert left > 0 or not done.pcm16[(number + 1) * UNIT :].any()
    assert done.left[-1] == 0


def test_what_has_no_sound_is_told_when_its_turn_comes() -> None:
    done = run(inline(), {0: codes("abcdefgh,"), 1: codes(" ☺!"), 2: codes(" ok")}, 12)
    assert done.text == "abcdefgh, ☺! ok"
    at = next(number for number, text in enumerate(done.texts) if "☺" in text)
    assert at == (8 * PHONEME + CLAUSE_PAUSE) // UNIT
    assert done.texts[at] == " ☺! ok", "and delays nothing"


def test_stop_fades_out_within_its_unit_and_drops_the_rest() -> None:
    told = {0: codes("abcdefghijkl"), 1: codes(" never said."), 2: codes(stop=True)}
    done = run(inline(), told, 6)
    whole = sound("abcdefghijkl", 0)
    pcm = done.pcm16
    assert pcm[: 2 * UNIT].tolist() == whole[: 2 * UNIT].tolist()
    faded = pcm[2 * UNIT :][:FADE].astype(float) / whole[2 * UNIT : 2 * UNIT + FADE]
    assert faded[0] == pytest.approx(1, abs=0.02)
    assert (np.diff(faded) <= 0.002).all()
    assert abs(faded[-1]) < 0.01
    assert not pcm[2 * UNIT + FADE :].any()
    assert done.text == "abcdefghijkl"
    assert done.left[2:] == [0, 0, 0, 0]
    assert done.horizons[2] == (0, 3)


def test_a_new_answer_in_the_unit_of_the_stop() -> None:
    done = run(inline(), {0: codes("abcdefghijkl."), 2: codes("new", stop=True)}, 6)
    assert done.results[2].record == [[2, 0, FADE]]
    new = sound("new", 2)
    assert done.pcm16[2 * UNIT + FADE :][: len(new)].tolist() == new.tolist()
    assert done.text == "abcdefghijkl.new"


def test_the_same_seed_gives_the_same_samples_and_another_one_others() -> None:
    told = {0: codes("ab."), 3: codes("ab.")}
    one, same, other = (run(inline(), told, 10, seed) for seed in (1, 1, 2))
    assert one.pcm16.tolist() == same.pcm16.tolist() != other.pcm16.tolist()
    loud = np.flatnonzero(one.pcm16)
    again = one.pcm16[loud[np.flatnonzero(np.diff(loud) > 1000)[0] + 1] :][: 2 * PHONEME]
    assert again.tolist() != one.pcm16[: 2 * PHONEME].tolist(), "the noise is not that of the clause before"


def test_clauses_that_wait_are_bounded() -> None:
    codec = inline()
    state = opened(codec)
    clause = "a" * 1000 + "."
    for number in range(60):
        stepped(codec, state, Unit(number, {"talker": codes(clause)}))
    assert sum(each.text_bytes for each in state.waiting) <= MOST_BYTES
    assert len(state.waiting) == MOST_BYTES // len(clause)


def test_an_heir_drops_what_was_not_taken() -> None:
    """A clause beyond what may wait was dropped, but an heir that knows nothing of what waited then has taken it."""
    codec = inline()
    long = "a" * 1000 + "."
    units, state = [], opened(codec)
    for number in range(40):
        inputs = {"talker": codes(long)}
        units.append(Unit(number, inputs, stepped(codec, state, Unit(number, inputs)).record))
    dropped = [n for n in range(40) if n not in {clause.came for clause in state.waiting} and n > 0]
    assert dropped
    heir = opened(codec, Start(1, begin=40), units[dropped[0] - 1 :])
    begin = [[39, 0, 0]]
    result = stepped(codec, heir, Unit(40, {"talker": Codes()}, begin))
    assert result.record == begin
    assert not heir.waiting


# ---------------------------------------------------------------- with a thread


class Held:
    """A synthesiser that waits until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.entered = threading.Semaphore(0)
        self.calls: list[int] = []

    def __call__(self, ids: npt.NDArray[np.int64], noise: np.random.Generator) -> npt.NDArray[np.float32]:
        self.calls.append(len(ids))
        self.entered.release()
        assert self.go.wait(20)
        return synthesise(ids, noise)


def settle(state: Any) -> None:
    """Waits for what is being synthesised."""
    for clause in list(state.waiting)[:AHEAD]:
        if clause.speech is not None:
            clause.speech.result(20)


def test_a_slow_synthesiser_delays_no_step_and_its_clause_begins_when_it_is_ready() -> None:
    held = Held()
    codec = Codec(held, Background("synthesis"))
    slow, other = opened(codec), opened(codec)
    records = []
    for number in range(5):
        results = codec.step(
            [
                (slow, Unit(number, {"talker": codes("ab.") if number == 0 else Codes()})),
                (other, Unit(number, {"talker": Codes()})),
            ]
        )
        assert not any(isinstance(result, SessionError) for result in results)
        records.append(results[0].record)
        assert left_of(results[0].out["llm"]) > 0
        assert results[0].out[ROOT].marker
    assert records == [[]] * 5, "it was asked, and silent, while the synthesiser held"
    held.go.set()
    settle(slow)
    result = stepped(codec, slow, Unit(5, {"talker": Codes()}))
    assert result.record == [[0, 0, 0]]
    assert samples(result.out[ROOT])[: 2 * PHONEME].tolist() == sound("ab.", 0)[:UNIT].tolist()


def test_clauses_are_prepared_ahead_but_not_all() -> None:
    held = Held()
    codec = Codec(held, Background("synthesis"))
    state = opened(codec)
    for number in range(6):
        stepped(codec, state, Unit(number, {"talker": codes("a" * (number + 1))}))
    held.go.set()
    settle(state)
    assert held.calls == [1, 2]


def test_what_is_stopped_is_not_synthesised() -> None:
    held = Held()
    codec = Codec(held, Background("synthesis"))
    state = opened(codec)
    stepped(codec, state, Unit(0, {"talker": codes("a")}))
    assert held.entered.acquire(timeout=10)
    stepped(codec, state, Unit(1, {"talker": codes("bb")}))
    stepped(codec, state, Unit(2, {"talker": codes("ccc", stop=True)}))
    held.go.set()
    settle(state)
    assert held.calls == [1, 3]
    result = stepped(codec, state, Unit(3, {"talker": Codes()}))
    assert (result.record, result.text) == ([[2, 0, 0]], "ccc")


def test_a_synthesiser_that_fails_ends_its_session_alone() -> None:
    def fails(ids: npt.NDArray[np.int64], noise: np.random.Generator) -> npt.NDArray[np.float32]:
        if len(ids) == 13:
            raise RuntimeError("text that must not be in the log")
        return synthesise(ids, noise)

    codec = Codec(fails, Background("synthesis", inline=True))
    good, bad = opened(codec), opened(codec)
    results = codec.step(
        [(bad, Unit(0, {"talker": codes("x" * 13)})), (good, Unit(0, {"talker": codes("ok")}))]
    )
    assert isinstance(results[0], SessionError)
    assert "text" not in str(results[0])
    assert not isinstance(results[1], SessionError)


# ---------------------------------------------------------------- fold

TOLD = {
    1: codes("ab,"),
    2: codes(" cdefgh."),
    4: codes(" ☺"),
    5: codes(" ij"),
    14: codes("no more"),
    17: codes("kl mn", stop=True),
    22: codes("op."),
    30: codes("end"),
}
UNITS = 36


def lived() -> list[Unit]:
    """Units with the records of a session in which every clause was ready some units late."""
    held = Held()
    held.go.set()
    codec = Codec(held, Background("synthesis"))
    state = opened(codec)
    units = []
    for number in range(UNITS):
        inputs = {"talker": TOLD.get(number, Codes())}
        if number % 3 == 0:
            settle(state)
        result = stepped(codec, state, Unit(number, inputs))
        units.append(Unit(number, inputs, result.record))
    return units


def test_a_record_is_followed_sample_by_sample() -> None:
    units = lived()
    live = opened(inline())
    codec = inline()
    first = [stepped(codec, live, unit) for unit in units]
    for make in (inline, lambda: Codec(synthesise, Background("synthesis"))):
        codec = make()
        state = opened(codec)
        for unit, expected in zip(units, first, strict=True):
            assert stepped(codec, state, unit) == expected
            assert expected.record == unit.record
    assert any(result.record and result.record[0][2] for result in first), "and some began within their unit"


@pytest.fixture(scope="module")
def told() -> tuple[list[Unit], list[Result], list[int]]:
    """The session's units, what it answered in each, and its horizon before each."""
    units, codec = lived(), inline()
    state = opened(codec)
    results, horizons = [], [0]
    for unit in units:
        results.append(stepped(codec, state, unit))
        horizons.append(codec.horizon(state))
    return units, results, horizons


@pytest.mark.parametrize("begin", range(UNITS))
@pytest.mark.parametrize("inlined", [True, False])
def test_a_state_is_what_its_horizon_makes_it(
    told: tuple[list[Unit], list[Result], list[int]], begin: int, inlined: bool
) -> None:
    units, results, horizons = told
    codec = Codec(synthesise, Background("synthesis", inline=inlined))
    state = opened(codec, Start(1, begin=begin), units[horizons[begin] : begin])
    assert codec.horizon(state) == horizons[begin]
    for unit in units[begin:]:
        assert stepped(codec, state, unit) == results[unit.number]


@pytest.mark.parametrize("wanted", range(UNITS))
def test_an_heir_that_is_forced_through_its_horizon_sends_the_same(
    told: tuple[list[Unit], list[Result], list[int]], wanted: int
) -> None:
    """As a worker does it that takes over.  A record that it gave anew would contradict the one that is known."""
    units, results, horizons = told
    codec = inline()
    begin = horizons[wanted]
    state = opened(codec, Start(1, begin=begin))
    for unit in units[begin:]:
        result = stepped(codec, state, unit)
        assert result.record == unit.record
        if unit.number >= wanted:
            assert result == results[unit.number]


@pytest.mark.parametrize(
    "record", ["x", 5, [1], [[0, 0]], [[0, 0, UNIT]], [[0, 0, -1]], [[0, 1, 0]], [[0, 0, 0], [0, 1, 5]]]
)
def test_what_is_no_record_of_it(record: Any) -> None:
    codec = inline()
    (result,) = codec.step([(opened(codec), Unit(0, {"talker": codes("ab")}, record))])
    assert isinstance(result, SessionError)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.pop("text"),
        lambda arrays: arrays.update(words=np.array([[0, 99]], np.int64)),
        lambda arrays: arrays.update(words=np.zeros((0, 2), np.int64)),
        lambda arrays: arrays.update(words=np.array([[0, 0]], np.int64)),
        lambda arrays: arrays.update(clauses=np.array([1, 2, 3], np.int64)),
        lambda arrays: arrays.update(clauses=np.array([[5, 5]], np.int64)),
        lambda arrays: arrays.update(clauses=np.array([[3, 5]], np.int64)),
        lambda arrays: arrays.update(words=np.array([0, 5], np.int64)),
        lambda arrays: arrays.update(text=np.array([0, 5], np.int64)),
        lambda arrays: arrays.update(more=np.array([1, 2])),
        lambda arrays: arrays.update(more=np.array(-1)),
        lambda arrays: arrays.update(more=np.array(0.5)),
    ],
)
def test_codes_that_do_not_add_up(change: Callable[[dict[str, Any]], Any]) -> None:
    arrays = dict(codes("ab cd").arrays())
    change(arrays)
    codec = inline()
    torn = Codes(1, {"text": Tensor("|u1", (9,), b"x")})
    for body in (Codes.of(arrays), torn):
        (result,) = codec.step([(opened(codec), Unit(0, {"talker": body}))])
        assert isinstance(result, SessionError)


# ---------------------------------------------------------------- with the talker


def test_the_transcript_is_the_text_whatever_pieces_it_came_in() -> None:
    text = "Yes. It is so, and it was so before. 🙂 Bye now! Straße. " + "And on, and on. " * 20
    whole = say(Talker(spell), inline(), {0: condition(text, end=True)})
    pieces = {at // 7: condition(text[at : at + 7], end=at + 7 >= len(text)) for at in range(0, len(text), 7)}
    assert whole.text == say(Talker(spell), inline(), pieces).text == text.rstrip()
    assert all(len(said.split()) <= 4 for said in whole.texts), "word by word"


@pytest.mark.slow
def test_ten_thousand_characters() -> None:
    text = ("It goes on, and on, for ever. " * 334)[:10_000]
    done = say(Talker(spell), inline(), {0: condition(text, end=True)})
    assert done.text == text.rstrip()
    assert all(left > 0 for left in done.left[:-20])


def test_after_a_stop_the_transcript_has_what_was_said() -> None:
    told = {0: condition("One two three four five six. Seven eight.", end=True), 4: condition(stop=True)}
    done = say(Talker(spell), inline(), told)
    assert done.text == "One two three four five", "of 21 phonemes 15.4 were said"
    assert not done.pcm16[4 * UNIT + FADE :].any()


def test_nothing_to_say() -> None:
    for text in ("", " ", "\n"):
        done = say(Talker(spell), inline(), {0: condition(text, end=True), 5: Condition()})
        assert not done.pcm16.any()
        assert done.text == ""


# ---------------------------------------------------------------- hibari


def test_silence_around_speech_is_cut_off() -> None:
    speech = np.zeros(24_000, np.float32)
    speech[6_000:12_000] = 0.2
    cut = trimmed(speech)
    kept = (MARGIN + 1) * FRAME
    assert 6_000 + 2 * (kept - FRAME) <= len(cut) <= 6_000 + 2 * kept
    assert (cut == 0.2).sum() == 6_000
    assert cut[0] == cut[-1] == 0
    for silent in (np.zeros(0, np.float32), np.zeros(100, np.float32), np.full(4_000, 0.001, np.float32)):
        assert not len(trimmed(silent))


def test_loud_speech_is_not_clipped() -> None:
    wave = np.sin(np.arange(1000, dtype=np.float32))
    assert np.abs(levelled(0.3 * wave)).max() == pytest.approx(0.3 * GAIN, rel=1e-3)
    assert np.abs(levelled(0.8 * wave)).max() == pytest.approx(PEAK, rel=1e-3)
    assert not len(levelled(np.zeros(0, np.float32)))


@pytest.fixture(scope="module")
def real() -> Any:
    return load({"inline": True})


@pytest.mark.slow
def test_hibari_speaks_alike_each_time(real: Any) -> None:
    from duologue_talker import pocket as talker

    reading = talker.load({})
    text = "Hello there. It is 7:30 pm, 🙂 and Zoë paid $9.99!"
    told = {0: condition(text, end=True)}
    one, again, other = (say(reading, real, told, seed=seed) for seed in (5, 5, 6))
    assert one.text == text
    assert np.array_equal(one.pcm16, again.pcm16)
    assert one.pcm16.shape == other.pcm16.shape, "the noise changes no timing"
    assert not np.array_equal(one.pcm16, other.pcm16)
    peak = np.abs(one.pcm16.astype(int)).max() / 32768
    assert 0.3 < peak < 0.99
    loud = np.flatnonzero(np.abs(one.pcm16.astype(int)) > 500)
    assert loud[0] < 0.08 * 24_000, "no silence before it"
    assert len(one.pcm16) - loud[-1] < 0.5 * 24_000
    assert 3 < len(one.pcm16) / 24_000 < 8


@pytest.mark.parametrize("package", ["hibari", "onnxruntime"])
def test_without_its_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RuntimeError, match=rf"needs {package}: pip install 'duologue\[pocket\]'"):
        load({})
