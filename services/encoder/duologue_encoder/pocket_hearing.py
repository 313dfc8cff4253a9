"""When the user speaks, what is to be recognised, and when it is the model's turn: a fold over the encoder's records.

A *turn* goes from the first voice to its end, which is silence, the longer the less the words sound like an end.  It has
*segments*: a long one is cut in a pause, or where it is quietest.  Of a segment there are hypotheses, now and then
while it goes on, and one at each pause; a word on which two of them in a row agree is told at once, the others when the
segment ends.  All times are unit numbers.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import NamedTuple

from duologue.bus.messages import Heard
from duologue_encoder.pocket_words import agreed, complete, follows, words

PREROLL = 4
"""Units before the first voice that are recognised with it: soft beginnings."""
VOICED, STRONG = 0.5, 0.8
"""Mean probability of speech in a unit: two voiced units in a row or a strong one are the beginning of speech."""
HANGOVER = 3
"""Units without voice that a gap between words may have."""
PAUSE = 3
"""Units without voice after which everything so far is recognised, in case that it is the end."""
ENDS = {True: 6, None: 10, False: 18}
"""Units without voice that end a turn, by whether its words are complete; where they are not known, the middle."""
NO_WORDS = 8
"""Units without voice that end a turn in which nothing was said."""
PARTIAL = 8
"""Units of voice between two hypotheses, at least; a sixth of the segment's length if that is more."""
LONG, LONGEST = 75, 150
"""Units of a segment: from the first on it ends with a pause, and at the second wherever it is."""
CUT_WITHIN = 50
"""A segment without any pause is cut at the quietest of so many last units."""
LONGEST_TURN = 750
"""Units after which what was said so far is a turn: the model's context is not for speeches."""
BRIEF = 2
"""Voiced units that a word has at least."""
DRIP = 3
"""Units between two words that are told while the speaker goes on.  They come as even as they were said, since clients
take 800 ms without any for the end of the user's turn."""


class Kind(Enum):
    PARTIAL = 0
    PAUSE = 1
    CUT = 2


class Job(NamedTuple):
    """The units `first` to before `end` are to be recognised."""

    first: int
    end: int
    kind: Kind


class Recognised(NamedTuple):
    first: int
    end: int
    text: str


class Turn(NamedTuple):
    text: str
    first: int
    end: int


@dataclass(slots=True)
class Hearing:
    """Bounded: a turn is at most `LONGEST_TURN` units, and words have a length."""

    next: int = 0
    speech: bool = False
    previous: float = 0.0
    voiced_units: int = 0
    """Of the turn."""
    last_voice: int = -1
    turn_first: int = -1
    """-1 outside of a turn."""
    segment: int = 0
    """First unit of the present segment."""
    asked: int = 0
    """End of the last hypothesis that was asked for."""
    wanted: Job | None = None
    known: int = 0
    """End of the last hypothesis that came."""
    paused: int = -1
    """Where the segment ends if there is any more voice."""
    hypothesis: list[str] = field(default_factory=list)
    final: str = ""
    ended: list[str] = field(default_factory=list)
    """Texts of the turn's segments that ended."""
    shown: list[str] = field(default_factory=list)
    """Words of the present segment that were told or are in `dripping`."""
    told: int = 0
    """End of the last word that was told."""
    dripped: int = -DRIP
    dripping: deque[Heard] = field(default_factory=lambda: deque(maxlen=LONGEST))

    @property
    def needs(self) -> int:
        """The first unit whose sound may still have to be recognised."""
        if self.turn_first < 0:
            return max(0, self.next - PREROLL)
        return min(self.segment, self.wanted.first if self.wanted else self.segment)

    @property
    def since(self) -> int:
        """The first unit on whose record the state depends."""
        return max(0, self.next - 1) if self.turn_first < 0 else self.turn_first

    def step(
        self, p: float, came: Recognised | None, quietest: Callable[[int, int], int]
    ) -> tuple[list[Heard], Turn | None]:
        """One more unit, with probability `p` of speech; `came` in it is what was wanted.  `quietest` gives the unit
        from its first argument to before its second with the least sound.  Returns the words to be told, and the turn
        if one has ended."""
        unit, self.next = self.next, self.next + 1
        self._listen(unit, p)
        if came is not None and self.wanted is not None and came[:2] == self.wanted[:2]:
            self._take(came, self.wanted)
        if 0 <= self.paused <= self.last_voice:
            self._end_segment(self.paused)
        if self.turn_first < 0:
            return [], None
        quiet = unit - self.last_voice
        turn = self._end(unit, quiet)
        heard = self._tell(unit, everything=turn is not None)
        if turn is not None:
            self._close()
        else:
            self._want(unit, quiet, quietest)
        return heard, turn

    def _listen(self, unit: int, p: float) -> None:
        begins = p >= STRONG or (p >= VOICED and self.previous >= VOICED)
        if begins and not self.speech:
            self.speech = True
            if self.turn_first < 0:
                self.turn_first = self.segment = self.asked = self.told = max(0, unit - PREROLL)
        if self.turn_first >= 0 and p >= VOICED:
            self.last_voice = unit
            self.voiced_units += 1
        if unit - self.last_voice >= HANGOVER:
            self.speech = False
        self.previous = p

    def _take(self, came: Recognised, wanted: Job) -> None:
        self.wanted, self.known = None, came.end
        before, self.hypothesis = self.hypothesis, words(came.text)
        self.final = " ".join(self.hypothesis)
        if wanted.kind is Kind.CUT:
            self._end_segment(came.end)
        elif wanted.kind is Kind.PAUSE:
            self.paused = came.end if came.end - came.first >= LONG else -1
        else:
            # The last word may be half of one.
            certain = agreed(before, self.hypothesis)
            self._show(min(certain, len(self.hypothesis) - 1))

    def _end(self, unit: int, quiet: int) -> Turn | None:
        first = self.turn_first
        if unit + 1 - first >= LONGEST_TURN and self.known > first:
            return self._turn()
        if self.wanted is not None or self.known < self._covered:
            return None
        text = " ".join([*self.ended, self.final])
        if not words(text) or self.voiced_units < BRIEF:
            return Turn("", first, self.last_voice + 1) if quiet >= NO_WORDS else None
        return self._turn() if quiet >= ENDS[complete(text)] else None

    @property
    def _covered(self) -> int:
        """Where a hypothesis must end that has all of what was said, and a little silence."""
        return self.last_voice + 1 + PAUSE

    def _turn(self) -> Turn:
        self._show(len(self.hypothesis))
        text = " ".join(text for text in [*self.ended, self.final] if text)
        return Turn(text, self.turn_first, self.last_voice + 1)

    def _close(self) -> None:
        """As at the beginning, but for the unit.  Who speaks on begins another turn."""
        self.__init__(next=self.next, previous=self.previous)  # type: ignore[misc]

    def _end_segment(self, end: int) -> None:
        self._show(len(self.hypothesis))
        self.ended.append(self.final)
        self.shown, self.hypothesis, self.final = [], [], ""
        self.segment = self.asked = end
        self.paused = -1

    def _want(self, unit: int, quiet: int, quietest: Callable[[int, int], int]) -> None:
        here = unit + 1
        busy = self.wanted is not None and self.wanted.kind is not Kind.PARTIAL
        if busy:
            return
        if quiet >= PAUSE:
            if self.asked < self._covered:
                self._ask(Job(self.segment, here, Kind.PAUSE))
        elif here - self.segment >= LONGEST:
            self._ask(Job(self.segment, quietest(here - CUT_WITHIN, here - PAUSE), Kind.CUT))
        elif (
            self.wanted is None
            and not quiet
            and here - self.asked >= max(PARTIAL, (here - self.segment) // 6)
        ):
            self._ask(Job(self.segment, here, Kind.PARTIAL))

    def _ask(self, job: Job) -> None:
        self.wanted, self.asked = job, job.end

    # -- telling

    def _show(self, count: int) -> None:
        """The first `count` words of the hypothesis are certain.  Their times are as if all letters of it took equally
        long, from the segment's first voice on."""
        start = self.segment if self.ended else self.segment + PREROLL
        span = max(1, min(self.known, self.last_voice + 1) - start)
        ends = [0, *accumulate(map(len, self.hypothesis))]
        for at in range(follows(self.shown, self.hypothesis[:count]), count):
            first = max(self.told, start + span * ends[at] // ends[-1])
            self.told = max(first + 1, start + span * ends[at + 1] // ends[-1])
            self.dripping.append(Heard(f" {self.hypothesis[at]}", first, self.told))
            self.shown.append(self.hypothesis[at])

    def _tell(self, unit: int, *, everything: bool) -> list[Heard]:
        if everything:
            heard = list(self.dripping)
            self.dripping.clear()
            return heard
        behind = len(self.dripping) > DRIP
        if not self.dripping or (unit - self.dripped < DRIP and not behind):
            return []
        self.dripped = unit
        return [self.dripping.popleft()]
