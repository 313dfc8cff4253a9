"""The pocket model's llm, talker and codec in their loop, with the real voice: who is interrupted, and what is known of it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import duologue_codec.pocket as codec
import duologue_llm.pocket as llm
import duologue_talker.pocket as talker
from duologue.bus.messages import AnyBody, Features, Start
from duologue.models import ROOT
from duologue.models.pocket import FEEDBACK_UNITS, worker_options
from duologue.stage.model import Unit
from pocket_units import opened, samples, stepped

pytestmark = [pytest.mark.unit, pytest.mark.slow]
pytest.importorskip("hibari", reason="hibari-tts is not installed")

OPTIONS = worker_options({"inline": True, "llm": "none"})
LONG = "Please repeat: one is a start, two is a pair. Three is a crowd, and four is a table. Five is a hand, six is a pack."


@dataclass
class Conversation:
    models: tuple[Any, Any, Any] = field(
        default_factory=lambda: (llm.load(OPTIONS), talker.load(OPTIONS), codec.load(OPTIONS))
    )
    level: list[float] = field(default_factory=list)
    """RMS of each unit of output."""
    transcript: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states = [opened(model, Start(3)) for model in self.models]
        self._feedback: list[AnyBody] = []

    def unit(self, speech: bool = False, turn: str = "") -> None:
        number = len(self.level)
        arrays: dict[str, Any] = {"speech": np.array(1, np.uint8)} if speech else {}
        if turn:
            arrays["text"] = np.frombuffer(turn.encode(), np.uint8)
            arrays["span"] = np.array([max(0, number - 9), max(0, number - 4)], np.int64)
        inputs: dict[str, AnyBody] = {"encoder": Features.of(arrays) if arrays else Features()}
        if number >= FEEDBACK_UNITS:
            inputs["codec"] = self._feedback[number - FEEDBACK_UNITS]
        told = stepped(self.models[0], self.states[0], Unit(number, inputs))
        spelled = stepped(self.models[1], self.states[1], Unit(number, {"llm": told.out["talker"]}))
        spoken = stepped(self.models[2], self.states[2], Unit(number, {"talker": spelled.out["codec"]}))
        self._feedback.append(spoken.out["llm"])
        pcm = samples(spoken.out[ROOT]).astype(float)
        self.level.append(float(np.sqrt((pcm**2).mean())))
        self.transcript.append(spoken.text)

    def run(self, units: int, speech: bool = False) -> None:
        for _ in range(units):
            self.unit(speech)

    def messages(self) -> list[tuple[str, str]]:
        return [message for exchange in self.states[0].exchanges for message in exchange.messages]


def test_an_answer_is_spoken_and_known_to_be_over() -> None:
    talk = Conversation()
    talk.unit(turn="What is seven plus five?")
    talk.run(60)
    assert "".join(talk.transcript).strip() == "Seven plus five is twelve."
    assert talk.messages()[-1] == ("assistant", "Seven plus five is twelve.")
    assert not talk.states[0].answering
    assert max(talk.level) > 500
    assert talk.level[-20:] == [0.0] * 20


def test_who_interrupts_is_heard_in_silence_and_only_what_was_said_is_known() -> None:
    talk = Conversation()
    talk.unit(turn=LONG)
    talk.run(24)
    onset = len(talk.level)
    talk.run(10, speech=True)
    # Speech over its own voice for 2 units; the unit of the stop fades out within 10 ms.
    assert max(talk.level[onset - 4 : onset]) > 100
    assert talk.level[onset + 2 :] == [0.0] * 8
    talk.run(5)
    talk.unit(turn="What is two plus two?")
    talk.run(60)
    said = "".join(talk.transcript).strip()
    first = said.removesuffix("Two plus two is four.").strip()
    assert LONG.partition(": ")[2].lower().startswith(first.lower())
    assert 10 < len(first) < len(LONG) // 2
    assert talk.messages()[1:] == [
        ("assistant", f"{first} —"),
        ("user", "What is two plus two?"),
        ("assistant", "Two plus two is four."),
    ]


def test_after_a_cough_the_rest_is_said() -> None:
    talk = Conversation()
    talk.unit(turn=LONG)
    talk.run(20)
    talk.run(3, speech=True)
    talk.run(200)
    said = "".join(talk.transcript).strip()
    assert said.split() == talk.messages()[-1][1].split()
    assert said.lower() == LONG.partition(": ")[2].lower()
    assert not talk.states[0].answering


def test_silence_on_demand() -> None:
    talk = Conversation()
    talk.unit(turn=LONG)
    talk.run(20)
    talk.unit(turn="Stop.")
    at = len(talk.level)
    talk.run(60)
    assert talk.level[at:] == [0.0] * 60
