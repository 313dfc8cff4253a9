"""The conversation of a pocket session: who said what, as far as it is known to the model and within its context."""

from collections.abc import Sequence
from dataclasses import dataclass

from duologue.models import Message

INTERRUPTED = " —"
"""Marks an answer of which no more was said."""


@dataclass(slots=True)
class Exchange:
    """What the user said and what was answered.  `unit` is the one in which the question was put."""

    unit: int
    user: str
    text: str = ""
    """The answer as far as it is known."""
    ended: bool = False
    """`text` is all of it."""
    said: str = ""
    """What of it was said aloud."""
    interrupted: bool = False

    @property
    def rest(self) -> str:
        """What of `text` was not said yet."""
        return after(self.text, self.said)

    @property
    def messages(self) -> list[Message]:
        found: list[Message] = [("user", self.user)] if self.user else []
        answer = self.said.rstrip() + INTERRUPTED if self.interrupted and self.said else self.text
        if self.interrupted and not self.said:
            answer = ""
        return [*found, ("assistant", answer.strip())] if answer else found

    @property
    def size(self) -> int:
        """Characters."""
        return len(self.user) + len(self.text)


def after(text: str, said: str) -> str:
    """`text` behind what was said of it, which may have lost or gained white space on its way."""
    left = sum(not character.isspace() for character in said)
    for at, character in enumerate(text):
        if left <= 0:
            return text[at:]
        left -= not character.isspace()
    return ""


def trim(exchanges: Sequence[Exchange], before: int, budget: int) -> int:
    """The first unit of the context: 0 where all of it fits into `budget` characters, the `before` ones of the messages that
    the session began with included, else that of the oldest of the newest exchanges that do.  The last one always stays.
    """
    sizes = [exchange.size for exchange in exchanges]
    if before + sum(sizes) <= budget or not exchanges:
        return 0
    kept, room = len(exchanges) - 1, budget - sizes[-1]
    while kept > 0 and sizes[kept - 1] <= room:
        kept -= 1
        room -= sizes[kept]
    # 0 would mean all; who asked in unit 0 is forgotten with what came before.
    return max(1, exchanges[kept].unit)


def newest(messages: Sequence[Message], budget: int) -> list[Message]:
    """The newest messages that fit into `budget` characters."""
    kept = len(messages)
    while kept > 0 and (budget := budget - len(messages[kept - 1][1])) >= 0:
        kept -= 1
    return list(messages[kept:])
