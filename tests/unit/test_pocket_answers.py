"""Around the pocket model's answerers: which one is chosen, how tokens become clauses, when an answer is given up."""

import importlib.util
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue.models import BadOption
from duologue.models.pocket import worker_options
from duologue.stage.background import Background
from duologue_llm.answers import Part, Question
from duologue_llm.answers.call import GAP_S, MOST_READY, MOST_S, SORRY, SORRY_AMID, Call, Take
from duologue_llm.answers.chat import Chat
from duologue_llm.answers.choice import choose
from duologue_llm.answers.clauses import LEAST_CHARACTERS, MOST_CHARACTERS, Clauses, speakable
from duologue_llm.answers.local import CONTEXT_CHARACTERS, INSTRUCTIONS, chat_messages
from duologue_llm.answers.rules import Rules

pytestmark = pytest.mark.unit

NOW = datetime(2026, 12, 1, 15, 4, tzinfo=UTC)
WHY = Question((("user", "Why?"),))


# ---------------------------------------------------------------- which one


def test_options_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str, package: str | None = None) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", nothing)
    assert isinstance(choose(worker_options({})), Rules)
    assert isinstance(choose(worker_options({"llm": "none"})), Rules)
    assert isinstance(choose(worker_options({"chat_url": "http://127.0.0.1:9/v1"})), Chat)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ImportError, match=r"duologue\[pocket\]"):
        choose(worker_options({"chat_url": "http://127.0.0.1:9/v1"}))
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ImportError, match=r"duologue\[pocket-llm\]"):
        choose(worker_options({"llm": "some.gguf"}))


def test_a_chat_url_is_one() -> None:
    with pytest.raises(BadOption, match="chat_url must be an http"):
        worker_options({"chat_url": "127.0.0.1:11434"})


def test_rules_tell_the_time_of_the_clock_that_they_are_given() -> None:
    rules = choose({"clock": lambda: NOW})
    assert (
        rules.ask(Question((("user", "What time is it?"),))).poll().text
        == "It is three oh four in the afternoon."
    )
    assert choose({}).ask(Question((("user", "What time is it?"),))).poll().text.startswith("It is ")


# ---------------------------------------------------------------- clauses


def clauses(*deltas: str) -> list[str]:
    cutter = Clauses()
    return [piece for piece in [*map(cutter.feed, deltas), cutter.rest()] if piece]


def test_a_long_run_of_dots_is_read_at_once() -> None:
    began = time.process_time()
    assert clauses("So" + "." * 20_000 + "x") == ["So" + "." * 20_000 + "x"]
    assert time.process_time() - began < 1, "it took 12 s"
    assert clauses('Wait... "No!" he said... and... ', "so") == ['Wait... "No!" he said... and... ', "so"]


def test_clauses_leave_as_soon_as_they_are_whole() -> None:
    assert clauses("One", ". ", "Two!", " Three") == ["One. ", "Two! ", "Three"]
    assert clauses("It costs 3.", "50, no", " more.") == ["It costs 3.50, no more."]
    short, longer = "So, ", "Of all the things there are, "
    assert len(short) < LEAST_CHARACTERS <= len(longer)
    assert clauses(short + longer + "this") == [short + longer, "this"]
    assert clauses(short, "this") == [short + "this"]
    assert clauses("- One\n- Tw", "o\n") == ["- One\n", "- Two\n"]


def test_what_has_no_punctuation_is_cut_at_a_space() -> None:
    pieces = clauses(*["word "] * 100)
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= MOST_CHARACTERS + len("word ")
    assert "".join(pieces).split() == ["word"] * 100


def test_what_nobody_can_say_is_left_out() -> None:
    assert speakable("**Bold** and `code` 😀️, naïve") == "Bold and code , naïve"
    assert speakable("A bell\x07, \x1b]0;a title\x07\nand\x00 nothing") == "A bell, 0;a title\nand nothing"
    assert "".join(clauses("<thi", "nk>Let me see. ", "Hm.</th", "ink>\n", "Yes.")).strip() == "Yes."
    assert "".join(clauses("<3 is a heart.")) == "3 is a heart."
    assert clauses("<th") == ["th"]
    assert clauses("<think>never said") == []


@given(st.lists(st.text(alphabet="ab ,.\n!", max_size=12), max_size=30))
def test_nothing_is_lost_whatever_the_cuts(deltas: list[str]) -> None:
    text = "".join(deltas)
    assert "".join(clauses(*deltas)).split() == text.split()


# ---------------------------------------------------------------- an answer on a thread


def test_an_answer_without_news_is_given_up_and_one_that_takes_forever() -> None:
    now = [0.0]
    go = threading.Event()
    background = Background("test", 2)

    def hangs(take: Take) -> bool:
        take("Well, this is what I think. ")
        go.wait(30)
        return True

    for wait, polls in ((GAP_S, 1), (MOST_S / 20, 20)):
        call = Call(background, hangs, what="test", clock=lambda: now[0])
        text, until = "", time.monotonic() + 10
        while not text and time.monotonic() < until:
            text = call.poll().text
        assert text == "Well, this is what I think. "
        for at in range(polls):
            assert call.poll() == Part("", False)
            now[0] += wait
            if polls > 1 and at < polls - 1:
                call._gain("", False)
        assert call.poll() == Part(SORRY_AMID, True)
    go.set()


def test_an_answer_that_nobody_takes_is_bounded() -> None:
    """As while the user speaks; an endpoint may go on for ever."""
    taken = []

    def endless(take: Take) -> bool:
        while take("And so on and so on. "):
            taken.append(len(taken))
            assert len(taken) < 10_000
        return False

    call = Call(Background("test", inline=True), endless, what="test")
    part = call.poll()
    assert part.last
    assert len(part.text) <= MOST_READY


def test_an_answer_that_was_cancelled_before_it_began_is_never_thought_of() -> None:
    asked: list[int] = []
    go = threading.Event()
    background = Background("test", 1)

    def first(take: Take) -> bool:
        return go.wait(30)

    def second(take: Take) -> bool:
        asked.append(2)
        return True

    one = Call(background, first, what="test")
    two = Call(background, second, what="test")
    two.cancel()
    go.set()
    three = Call(background, lambda take: take("Three."), what="test")
    until = time.monotonic() + 10
    while not (part := three.poll()).last and time.monotonic() < until:
        time.sleep(0.001)
    assert part == Part("Three.", True)
    assert asked == []
    assert one.poll() == Part(SORRY, True)


def test_half_a_sentence_at_the_end_is_not_said() -> None:
    def cut(take: Take) -> bool:
        take("This is one. And this is")
        return False

    background = Background("test", inline=True)
    assert Call(background, cut, what="test").poll() == Part("This is one. ", True)

    def short(take: Take) -> bool:
        take("Not a")
        return False

    assert Call(background, short, what="test").poll() == Part("Not a", True)


# ---------------------------------------------------------------- the local model's prompt


def test_the_local_model_gets_what_fits() -> None:
    long = "x" * (CONTEXT_CHARACTERS - 72 - 1)
    earlier: Any = (("user", "old"), ("assistant", long), ("developer", "Be nice."), ("user", "And"))
    asked = Question((*earlier, ("user", "y" * 60)), "You are Ada.", "So")
    assert chat_messages(asked) == [
        {"role": "system", "content": f"{INSTRUCTIONS} You are Ada."},
        {"role": "assistant", "content": long},
        {"role": "system", "content": "Be nice."},
        {"role": "user", "content": "And"},
        {"role": "user", "content": "y" * 60},
        {"role": "assistant", "content": "So"},
    ]
    [_, only] = chat_messages(Question((*earlier, ("user", "y" * 9999))))
    assert only == {"role": "user", "content": "y" * CONTEXT_CHARACTERS}


def test_no_weights_are_found_where_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from duologue_llm.answers import local

    package = tmp_path / local.PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert local.packaged() is None
    (package / local.FILE).touch()
    assert local.packaged() == package / local.FILE
