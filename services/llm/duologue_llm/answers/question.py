"""The seam between the conversation and whatever answers."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from duologue.draws import draw
from duologue.models import Message


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be answered.  `messages` are the conversation, oldest first; the last one is the user's, and empty where
    the model is to speak first.  `begun` is what of the answer is known already, which is to be gone on with.  `seed` and
    `unit` are those of the session and of the question, for draws."""

    messages: tuple[Message, ...]
    instructions: str | None = None
    begun: str = ""
    seed: int = 0
    unit: int = 0

    @property
    def asked(self) -> str:
        """The last message's text."""
        return self.messages[-1][1]

    def draw(self, step: int = 0) -> float:
        """A uniform draw in [0, 1), the same wherever this is asked."""
        return draw(self.seed, self.unit, "llm", step)


class Part(NamedTuple):
    text: str
    """Whole clauses; with the white space between them and what came before."""
    last: bool
    """The answer is complete."""


class Answering(Protocol):
    """An answer on its way.  Neither method ever waits or raises."""

    def poll(self) -> Part:
        """What has become known since the last time."""
        ...

    def cancel(self) -> None:
        """Nobody wants it any more."""
        ...


class Needs(NamedTuple):
    """What an answerer takes on this machine: memory, and of a thread's time for each who talks."""

    bytes: int = 0
    thread_share: float = 0.0


class Answerer(Protocol):
    @property
    def needs(self) -> Needs: ...

    def ask(self, question: Question) -> Answering:
        """Returns at once."""
        ...


class Whole:
    """An answer that was there at once."""

    def __init__(self, text: str) -> None:
        self._text = text

    def poll(self) -> Part:
        text, self._text = self._text, ""
        return Part(text, True)

    def cancel(self) -> None:
        self._text = ""
