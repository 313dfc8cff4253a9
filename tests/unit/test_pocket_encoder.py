"""The pocket model's encoder with a voice detector and a recogniser that do what a test says.

A unit of sound is `word` or 0: the detector takes what is not 0 for voice, and the recogniser spells each word that
lasts for some units.
"""

import copy
import threading
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duologue.bus.messages import Audio, Start, Tensor
from duologue.models.pocket import UNIT_SAMPLES
from duologue.stage.model import History, Result, SessionError, Unit
from duologue_encoder.pocket import SETTLE, Encoder, State
from duologue_encoder.pocket_hearing import HANGOVER, PREROLL
from duologue_encoder.pocket_turn import ENDS, LONG, LONGEST, LONGEST_TURN, NO_WORDS

pytestmark = pytest.mark.unit

NOISE = 99
"""A sound that is taken for voice, but has no words."""


class Detector:
    def hear(self, batch: Sequence[tuple[Any, np.ndarray]]) -> list[list[float]]:
        return [[0.9] if pcm.any() else [0.1] for _, pcm in batch]


class Recogniser:
    """Words are `w<number>`; with `full_stop` a sentence."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.texts: list[str] = []
        self.full_stop = "."
        self.threads: set[int] = set()
        self.may_go = threading.Event()
        self.may_go.set()
        self.busy = threading.Event()

    def __call__(self, pcm: np.ndarray) -> str:
        self.threads.add(threading.get_ident())
        self.busy.set()
        self.may_go.wait(20)
        units = pcm.reshape(-1, UNIT_SAMPLES)[:, 0].tolist()
        self.heard.append(len(units))
        said = [f"w{word}" for word, _ in groupby(units) if word not in (0, NOISE)]
        self.texts.append(" ".join(said) + (self.full_stop if said else ""))
        return self.texts[-1]


class Talk:
    """A session, stepped unit by unit."""

    def __init__(self, inline: bool = True) -> None:
        self.recogniser = Recogniser()
        self.encoder = Encoder(Detector(), self.recogniser, inline=inline)  # type: ignore[arg-type]
        self.state = self.opened(History(), 0)
        self.units: list[Unit] = []
        self.results: list[Result] = []

    def opened(self, history: History, begin: int) -> State:
        *_, state = self.encoder.open(Start(7, begin=begin), history)
        assert state is not None
        return state

    def say(self, *words: int) -> "Talk":
        for word in words:
            self.units.append(Unit(len(self.units), {"root": sound(word)}))
            self.results.append(step(self.encoder, self.state, self.units[-1]))
        return self

    def history(self, first: int, end: int) -> History:
        known = zip(self.units[first:end], self.results[first:end], strict=True)
        return History([Unit(unit.number, unit.inputs, result.record) for unit, result in known])

    @property
    def texts(self) -> list[tuple[str, int, int, int]]:
        """(text, first unit, end, in which unit) of each turn."""
        found = []
        for unit, result in enumerate(self.results):
            arrays = result.out["llm"].arrays()
            if "text" in arrays:
                found.append((bytes(arrays["text"]).decode(), *arrays["span"].tolist(), unit))
        return found

    @property
    def speech(self) -> list[int]:
        return [unit for unit, result in enumerate(self.results) if "speech" in result.out["llm"].arrays()]

    @property
    def heard(self) -> list[tuple[str, int, int, int]]:
        return [(h.text, h.first, h.end, u) for u, result in enumerate(self.results) for h in result.heard]


def sound(word: int) -> Audio:
    return Audio.of({"pcm": np.full(UNIT_SAMPLES, word, np.int16)}) if word else Audio()


def step(encoder: Encoder, state: State, unit: Unit) -> Result:
    (result,) = encoder.step([(state, unit)])
    assert isinstance(result, Result), result
    return result


def plain(state: State) -> Any:
    """All of a state that is the fold of its records and sounds."""
    kept = {unit: pcm.tolist()[:1] for unit, pcm in state.sound.items() if unit >= state.hearing.needs}
    return copy.deepcopy(state.hearing), kept


QUIET = [0] * 30
PAUSED = ENDS[True] - 1
"""Units of silence that no turn ends with."""


def test_a_sentence_is_a_turn_once_it_is_over() -> None:
    talk = Talk().say(*[0] * 10, *[1] * 5, *[2] * 5, *QUIET)
    last = 19
    assert talk.texts == [("w1 w2.", 10 - PREROLL, last + 1, last + ENDS[True])]
    assert talk.speech == list(range(10, last + HANGOVER))
    assert all(isinstance(result.record[0], int) for result in talk.results)


@pytest.mark.parametrize(("stop", "complete"), [("", None), (" and", False)])
def test_what_sounds_unfinished_is_waited_for(stop: str, complete: bool | None) -> None:
    talk = Talk()
    talk.recogniser.full_stop = stop
    talk.say(*[0] * 10, *[1] * 10, *[0] * (ENDS[complete] - 1))
    assert talk.texts == []
    talk.say(*[2] * 5, *QUIET)
    assert [text for text, *_ in talk.texts] == [f"w1 w2{stop}"]


def test_what_has_no_words_is_no_turn() -> None:
    talk = Talk().say(*[0] * 10, *[NOISE] * 10, *QUIET)
    assert talk.speech != []
    assert (talk.texts, talk.heard) == ([], [])
    assert talk.state.hearing.turn is None
    assert talk.speech[-1] < 19 + NO_WORDS


def test_words_are_told_while_the_speaker_goes_on_and_each_once() -> None:
    said = [word for word in range(1, 21) for _ in range(4)]
    talk = Talk().say(*[0] * 5, *said, *QUIET)
    texts = [text for text, *_ in talk.heard]
    assert "".join(texts) == "".join(f" w{word}" for word in range(1, 21)) + "."
    early = [unit for *_, unit in talk.heard if unit < 5 + len(said)]
    assert len(early) > 10
    # Every 800 ms clients have a word.
    gaps = np.diff(early)
    assert gaps.max() <= 10
    spans = [(first, end) for _, first, end, _ in talk.heard]
    assert all(first < end for first, end in spans)
    assert [first for first, _ in spans] == sorted(first for first, _ in spans)
    assert spans[0][0] >= 5
    assert spans[-1][1] <= 5 + len(said)
    assert all(end <= unit + 1 for _, _, end, unit in talk.heard)


def test_long_speech_is_cut_in_a_pause() -> None:
    said = [word for word in range(1, 31) for _ in range(4)]
    talk = Talk().say(*[0] * 5, *said[:80], *[0] * PAUSED, *said[80:], *QUIET)
    assert [text for text, *_ in talk.texts] == [
        " ".join(f"w{word}" for word in range(1, 21)) + ". " + " ".join(f"w{n}" for n in range(21, 31)) + "."
    ]
    assert max(talk.recogniser.heard) < LONG + 20
    assert "".join(text for text, *_ in talk.heard).count(" w") == 30


def test_speech_without_any_pause_is_cut_where_it_is_quietest() -> None:
    said = [1000 + 10 * (at // 4) for at in range(2 * LONGEST)]
    said[120:124] = [3, 3, 3, 3]
    talk = Talk().say(*[0] * 5, *said, *QUIET)
    ((text, *_),) = talk.texts
    assert text.replace(".", "").split() == [f"w{word}" for word, _ in groupby(said)]
    assert max(talk.recogniser.heard) <= LONGEST
    assert len(talk.state.sound) <= PREROLL + 1


def test_a_speech_without_end_is_taken_in_turns() -> None:
    talk = Talk()
    for at in range(2 * LONGEST_TURN):
        talk.say(1000 + at // 4)
        assert len(talk.state.sound) <= LONGEST + 3
    assert [first for _, first, *_ in talk.texts] == [0, pytest.approx(LONGEST_TURN, abs=5)]


def test_a_slow_recogniser_delays_no_unit_and_its_word_is_kept() -> None:
    talk = Talk(inline=False)
    talk.recogniser.may_go.clear()
    talk.say(*[0] * 10, *[1] * 10, *[0] * 100)
    assert talk.texts == []
    assert talk.recogniser.heard == []
    talk.recogniser.may_go.set()
    while not talk.texts:
        talk.say(0)
    ((text, first, end, unit),) = talk.texts
    assert (text, first, end) == ("w1.", 10 - PREROLL, 20)
    assert unit >= 120
    assert talk.recogniser.threads.isdisjoint({threading.get_ident()})

    # What was decided is followed, and nobody is asked again.
    asked = len(talk.recogniser.heard)
    again = talk.opened(History(), 0)
    for unit, result in zip(talk.units, talk.results, strict=True):
        same = step(talk.encoder, again, Unit(unit.number, unit.inputs, result.record))
        assert (same.record, same.heard, same.out) == (result.record, result.heard, result.out)
    assert len(talk.recogniser.heard) == asked
    assert plain(again) == plain(talk.state)


def test_partial_hypotheses_are_made_only_where_nobody_waits() -> None:
    """Else who has ended would wait for those of all who are still speaking."""
    talk = Talk(inline=False)
    talk.recogniser.may_go.clear()
    states = [talk.opened(History(), 0) for _ in range(6)]
    for number in range(40):
        talk.encoder.step([(state, Unit(number, {"root": sound(7)})) for state in states])
    talk.say(*[0] * 5, *[3] * 5, *[0] * 15)
    talk.recogniser.may_go.set()
    assert talk.state.asked is not None
    talk.state.asked[1].result(20)
    # The one that ran, and the one that waited for it, were all.
    assert talk.recogniser.texts[:3] in (["w7.", "w3.", "w7."], ["w7.", "w3."])


def test_a_recogniser_that_was_behind_catches_up_in_pieces() -> None:
    """Once it got all that had come meanwhile in one, for which it took the longer."""
    talk = Talk(inline=False)
    talk.recogniser.may_go.clear()
    said = [1000 + at // 4 for at in range(500)]
    talk.say(*said)
    talk.recogniser.may_go.set()
    while not talk.texts:
        talk.say(0)
    ((text, *_),) = talk.texts
    # A word that is cut in two is told twice.
    assert list(dict.fromkeys(text.replace(".", "").split())) == [f"w{word}" for word in range(1000, 1125)]
    assert max(talk.recogniser.heard) <= LONGEST


def test_who_is_not_recognised_for_a_minute_is_given_up() -> None:
    talk = Talk(inline=False)
    talk.recogniser.may_go.clear()
    (gone,) = [
        result
        for at in range(LONGEST_TURN + LONGEST + 20)
        for result in talk.encoder.step([(talk.state, Unit(at, {"root": sound(int(at < 10))}))])
        if isinstance(result, SessionError)
    ][:1]
    talk.recogniser.may_go.set()
    assert "behind" in str(gone)


def test_words_in_passing_wait_for_those_that_are_to_be_answered() -> None:
    talk = Talk(inline=False)
    talk.recogniser.may_go.clear()
    states = [talk.opened(History(), 0) for _ in range(3)]
    # The first one keeps the recogniser busy, the second goes on speaking, the third has finished a sentence.
    sounds = ([1] * 60, [0] * 20 + [2] * 40, [0] * 40 + [3] * 5 + [0] * 15)
    for number, words in enumerate(zip(*sounds, strict=True)):
        rows = [(s, Unit(number, {"root": sound(w)})) for s, w in zip(states, words, strict=True)]
        talk.encoder.step(rows)
        if any(state.asked is not None for state in states):
            assert talk.recogniser.busy.wait(20)
    assert all(state.asked is not None for state in states)
    talk.recogniser.may_go.set()
    for state in states:
        assert state.asked is not None
        state.asked[1].result(20)
    assert talk.recogniser.texts == ["w1.", "w3.", "w2."]


def test_a_recogniser_that_fails_ends_the_session_alone() -> None:
    def failing(pcm: np.ndarray) -> str:
        if pcm.max() == 1:
            raise RuntimeError("broken")
        return "fine."

    encoder = Encoder(Detector(), failing, inline=True)  # type: ignore[arg-type]
    *_, broken = encoder.open(Start(7), History())
    *_, fine = encoder.open(Start(8), History())
    assert broken is not None
    assert fine is not None
    failed: list[SessionError] = []
    for number in range(40):
        words = (1, 2) if number < 10 else (0, 0)
        rows = [(s, Unit(number, {"root": sound(w)})) for s, w in zip((broken, fine), words, strict=True)]
        results = encoder.step(rows)
        failed += [result for result in results if isinstance(result, SessionError)]
        assert isinstance(results[1], Result)
        if failed:
            break
    assert [str(error) for error in failed] == ["the recogniser failed: RuntimeError"]


@pytest.mark.parametrize(
    "body",
    [
        Audio.of({"pcm": np.zeros(UNIT_SAMPLES - 1, np.int16)}),
        Audio.of({"pcm": np.zeros(UNIT_SAMPLES, np.float32)}),
        Audio(1, {"pcm": Tensor("<i2", (UNIT_SAMPLES,), b"")}),
    ],
)
def test_malformed_sound_ends_its_session_alone(body: Audio) -> None:
    talk = Talk()
    other = talk.opened(History(), 0)
    bad, good = talk.encoder.step(
        [(talk.state, Unit(0, {"root": body})), (other, Unit(0, {"root": Audio()}))]
    )
    assert isinstance(bad, SessionError)
    assert isinstance(good, Result)


@pytest.mark.parametrize("record", [0, [], ["a", 0], [1, 2, 3], {"a": 1}])
def test_a_record_of_somebody_else_is_refused(record: Any) -> None:
    talk = Talk()
    (result,) = talk.encoder.step([(talk.state, Unit(0, {"root": Audio()}, record))])
    assert isinstance(result, SessionError)


def test_a_missing_input_within_the_horizon_is_refused() -> None:
    talk = Talk().say(*[0] * 60)
    units = list(talk.history(0, 60).units)
    units[0] = Unit(0, {}, units[0].record)
    talk.opened(History(units), 60)
    units[59] = Unit(59, {}, units[59].record)
    with pytest.raises(SessionError):
        talk.opened(History(units), 60)


SPEECH = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 2, 3, NOISE]), st.integers(1, 25)), min_size=1, max_size=25
).map(lambda runs: [word for word, count in runs for _ in range(count)])


@given(SPEECH, st.data())
@settings(max_examples=60, deadline=None)
def test_a_state_is_the_fold_of_its_ledger(said: list[int], data: st.DataObject) -> None:
    talk = Talk()
    cut = data.draw(st.integers(0, len(said)))
    talk.say(*said[:cut])
    here, horizon = plain(talk.state), talk.encoder.horizon(talk.state)
    assert horizon <= max(0, cut - SETTLE)
    talk.say(*said[cut:])

    first = data.draw(st.integers(0, horizon))
    asked = len(talk.recogniser.heard)
    heir = talk.opened(talk.history(first, cut), cut)
    assert plain(heir) == here
    assert len(talk.recogniser.heard) == asked, "a fold asks nobody"
    # Forced through the rest it is the same; so is what it sends.
    for unit, result in zip(talk.units[cut:], talk.results[cut:], strict=True):
        same = step(talk.encoder, heir, Unit(unit.number, unit.inputs, result.record))
        assert (same.record, same.heard, same.out) == (result.record, result.heard, result.out)
    assert plain(heir) == plain(talk.state)


@given(SPEECH, st.data())
@settings(max_examples=60, deadline=None)
def test_an_heir_that_is_forced_through_its_horizon_sends_the_same(
    said: list[int], data: st.DataObject
) -> None:
    """As a worker does it that takes over: it opens at the horizon, and is stepped through what is known.  Once it took
    the rest of a turn that it came into for one of its own, and had it answered a second time."""
    talk = Talk()
    wanted = data.draw(st.integers(0, len(said)))
    talk.say(*said[:wanted])
    begin = talk.encoder.horizon(talk.state) if wanted else 0
    talk.say(*said[wanted:])
    records = {number: {"encoder": result.record} for number, result in enumerate(talk.results)}

    *_, heir = talk.encoder.open(Start(7, begin=begin, records=records), History())
    assert heir is not None
    for unit, result in zip(talk.units[begin:], talk.results[begin:], strict=True):
        same = step(talk.encoder, heir, Unit(unit.number, unit.inputs, result.record))
        assert same.record == result.record
        if unit.number >= wanted:
            assert (same.heard, same.out) == (result.heard, result.out)
    if said:
        assert plain(heir) == plain(talk.state)


@given(SPEECH)
@settings(max_examples=40, deadline=None)
def test_nothing_that_was_said_is_lost_or_told_twice(said: list[int]) -> None:
    talk = Talk().say(*said, *[0] * 40)
    assert talk.state.hearing.turn is None
    told = "".join(text for text, *_ in talk.heard).replace(".", "").split()
    turns = " ".join(text for text, *_ in talk.texts).replace(".", "").split()
    assert told == turns
    again = Talk().say(*said, *[0] * 40)
    assert [result.record for result in again.results] == [result.record for result in talk.results]
