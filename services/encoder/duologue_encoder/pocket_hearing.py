"""When the user speaks: a fold over the encoder's records."""

from collections.abc import Callable
from dataclasses import dataclass

from duologue.bus.messages import Heard
from duologue_encoder.pocket_turn import VOICED, Job, Recognised, Said, Turn

PREROLL = 4
"""Units before the first voice that are recognised with it: soft beginnings."""
STRONG = 0.8
"""Mean probability of speech: a unit with this one, or two voiced ones in a row, are the beginning of speech."""
HANGOVER = 3
"""Units without voice that a gap between words may have."""


@dataclass(slots=True)
class Hearing:
    next: int = 0
    previous: float = 0.0
    """Probability of speech in the unit before, if it was voiced and belongs to no turn."""
    speech: bool = False
    turn: Turn | None = None

    @property
    def wanted(self) -> Job | None:
        """What is to be recognised."""
        return self.turn.wanted if self.turn else None

    @property
    def needs(self) -> int:
        """The first unit whose sound may still have to be recognised."""
        return self.turn.needs if self.turn else max(0, self.next - PREROLL)

    @property
    def since(self) -> int:
        """The first unit on whose record the state depends."""
        if self.turn:
            return self.turn.first
        return self.next - 1 if self.previous else self.next

    def step(
        self, p: float, came: Recognised | None, quietest: Callable[[int, int], int]
    ) -> tuple[list[Heard], Said | None]:
        """One more unit, with probability `p` of speech; `came` in it is what was wanted.  `quietest` gives the unit
        from its first argument to before its second with the least sound.  Returns the words to be told, and what was
        said if a turn has ended."""
        unit, self.next = self.next, self.next + 1
        begins = p >= STRONG or (p >= VOICED and self.previous >= VOICED)
        if self.turn is None and not begins:
            self.previous = p if p >= VOICED else 0.0
            return [], None
        if self.turn is None:
            self.turn = Turn(max(0, unit - PREROLL), unit - bool(self.previous))
        self.previous = p if p >= VOICED else 0.0
        heard, said = self.turn.step(unit, p, came, quietest)
        self.speech = (self.speech or begins) and unit - self.turn.last_voice < HANGOVER
        if said is not None:
            # Who speaks on begins another turn.
            self.turn, self.speech, self.previous = None, False, 0.0
        return heard, said
