"""A turn of the user: what of it is to be recognised, what is certain, and when it is over.

It ends with silence, the longer the less the words sound like an end.  It has *segments*: a long one is cut in a pause,
or where it is quietest.  Of a segment there are hypotheses, now and then while it goes on, and one at each pause; words
on which two of them in a row agree are told at once, the others when the segment ends.  All times are unit numbers.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import NamedTuple

from duologue.bus.messages import Heard
from duologue_encoder.pocket_words import agreed, complete, follows, words

VOICED = 0.5
"""Mean probability of speech in a unit."""
PAUSE = 2
"""Units without voice after which everything so far is recognised, in case that it is the end."""
ENDS = {True: 5, None: 10, False: 18}
"""Units without voice that end a turn, by whether its words are complete; where that can't be told, the middle.  With
one less, one in eight of recorded prompts of several sentences falls apart; with 5, one in fifty."""
NO_WORDS = 8
"""Units without voice that end a turn in which nothing was said."""
BRIEF = 2
"""Voiced units that a word has at least."""
PARTIAL = 8
"""Units between two hypotheses, at least; a sixth of the segment's length if that is more."""
LONG, LONGEST = 75, 150
"""Units of a segment: from the first on it ends with a pause, and at the second wherever it is."""
CUT_WITHIN = 50
"""A segment without any pause is cut at the quietest of so many last units."""
LONGEST_TURN = 750
"""Units after which what was said so far is a turn: nobody wants to listen for more than a minute."""
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


class Said(NamedTuple):
    """In units `first` to before `end`; no text where there were no words."""

    text: str
    first: int
    end: int


@dataclass(slots=True)
class Turn:
    """Bounded by `LONGEST_TURN`; words have a length."""

    first: int
    began: int
    """With the first voice."""
    last_voice: int = field(init=False)
    voiced: int = 0
    """Units with voice."""
    segment: int = field(init=False)
    """First unit of the present segment, and so in the following."""
    asked: int = field(init=False)
    """End of the last hypothesis that was asked for."""
    wanted: Job | None = None
    known: int = field(init=False)
    """End of the last hypothesis that came."""
    paused: int = -1
    """Where the segment ends if there is any more voice."""
    hypothesis: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """Words of the segments before."""
    shown: list[str] = field(default_factory=list)
    """Words of the segment that were told or are in `dripping`."""
    told: int = field(init=False)
    """End of the last word that was shown."""
    dripped: int = field(init=False)
    """The unit in which one was told last."""
    dripping: deque[Heard] = field(default_factory=lambda: deque(maxlen=LONGEST_TURN))

    def __post_init__(self) -> None:
        self.segment = self.asked = self.known = self.first
        self.last_voice = self.told = self.began
        self.dripped = self.first - DRIP

    @property
    def needs(self) -> int:
        """The first unit whose sound may still have to be recognised."""
        return min(self.segment, self.wanted.first if self.wanted else self.segment)

    def step(
        self, unit: int, p: float, came: Recognised | None, quietest: Callable[[int, int], int]
    ) -> tuple[list[Heard], Said | None]:
        """See `Hearing.step`."""
        if p >= VOICED:
            self.last_voice, self.voiced = unit, self.voiced + 1
        if came is not None and self.wanted is not None and came[:2] == self.wanted[:2]:
            self._take(came, self.wanted.kind)
        if 0 <= self.paused <= self.last_voice:
            self._end_segment()
        said = self._over(unit)
        if said is not None:
            if said.text:
                self._show(len(self.hypothesis))
            return list(self.dripping), said
        self._want(unit + 1, quietest)
        return self._tell(unit), None

    # -- recognition

    @property
    def _covered(self) -> int:
        """Where a hypothesis must end that has all of what was said, and a little silence."""
        return self.last_voice + 1 + PAUSE

    def _want(self, here: int, quietest: Callable[[int, int], int]) -> None:
        if self.wanted is not None and self.wanted.kind is not Kind.PARTIAL:
            return
        enough, longest = self.first + LONGEST_TURN, self.segment + LONGEST
        if here > longest and self.asked < min(self._covered, enough):
            # The recogniser is behind: not all at once of what has come meanwhile.
            self._ask(quietest(longest - CUT_WITHIN, longest - PAUSE), Kind.CUT)
        elif here >= self._covered or here >= enough:
            if self.asked < min(self._covered, enough):
                self._ask(here, Kind.PAUSE)
        elif here >= longest:
            self._ask(quietest(here - CUT_WITHIN, here - PAUSE), Kind.CUT)
        elif (
            self.wanted is None and here == self.last_voice + 1 and here - self.asked >= self._interval(here)
        ):
            self._ask(here, Kind.PARTIAL)

    def _interval(self, here: int) -> int:
        return max(PARTIAL, (here - self.segment) // 6)

    def _ask(self, end: int, kind: Kind) -> None:
        self.wanted, self.asked = Job(self.segment, end, kind), end

    def _take(self, came: Recognised, kind: Kind) -> None:
        self.wanted, self.known = None, came.end
        before, self.hypothesis = self.hypothesis, words(came.text)
        if kind is Kind.CUT:
            self._end_segment()
        elif kind is Kind.PAUSE:
            self.paused = came.end if came.end - came.first >= LONG else -1
        else:
            # The last word may be half of one.
            self._show(min(agreed(before, self.hypothesis), len(self.hypothesis) - 1))

    def _end_segment(self) -> None:
        self._show(len(self.hypothesis))
        self.ended += self.hypothesis
        self.shown, self.hypothesis = [], []
        self.segment = self.asked = self.known
        self.paused = -1

    # -- the end

    def _over(self, unit: int) -> Said | None:
        quiet, end = unit - self.last_voice, self.last_voice + 1
        text = " ".join([*self.ended, *self.hypothesis])
        if self.known - self.first >= LONGEST_TURN:
            return Said(text, self.first, end)
        if self.wanted is not None or self.known < self._covered:
            return None
        if not text or self.voiced < BRIEF:
            return Said("", self.first, end) if quiet >= NO_WORDS else None
        return Said(text, self.first, end) if quiet >= ENDS[complete(text)] else None

    # -- telling

    def _show(self, count: int) -> None:
        """The first `count` words of the hypothesis are certain.  Their times are as if all letters of it took equally
        long, from the segment's first voice on."""
        start = max(self.segment, self.began)
        span = max(1, min(self.known, self.last_voice + 1) - start)
        ends = [0, *accumulate(map(len, self.hypothesis))]
        for at in range(follows(self.shown, self.hypothesis[:count]), count):
            first = max(self.told, start + span * ends[at] // ends[-1])
            self.told = max(first + 1, start + span * ends[at + 1] // ends[-1])
            self.dripping.append(Heard(f" {self.hypothesis[at]}", first, self.told))
            self.shown.append(self.hypothesis[at])

    def _tell(self, unit: int) -> list[Heard]:
        behind = len(self.dripping) > DRIP
        if not self.dripping or (unit - self.dripped < DRIP and not behind):
            return []
        self.dripped = unit
        return [self.dripping.popleft()]
