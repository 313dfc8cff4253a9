"""An answer that a thread is working on.

The thread may hang in whatever it calls; `poll` does not wait for it, and gives up after a while.
"""

import threading
import time
from collections.abc import Callable

import structlog

from duologue.errors import place_of
from duologue.stage.background import Background, Busy
from duologue_llm.answers.clauses import Clauses
from duologue_llm.answers.question import Part

GAP_S = 8.0
"""An answer of which nothing new came for so long is given up."""
MOST_S = 60.0
"""An answer takes no longer than this."""
MOST_READY = 8192
"""Characters that wait to be polled, as they do while the user speaks.  An answer ends there."""
SORRY = "I'm sorry, I can't think of an answer right now."
SORRY_AMID = " I'm sorry, I lost the thread."

log = structlog.get_logger()

Take = Callable[[str], bool]
"""Takes the next piece of text, however it is cut; says whether more is wanted."""


class Unanswered(Exception):
    """Whoever was asked did not answer.  The message says why, and nothing of what was said."""


class Call:
    """Runs `think` on a thread of `background`, which gives the answer to what it is called with until that is enough, and
    says whether it ends where a sentence does.  Nothing that is said is logged."""

    def __init__(
        self,
        background: Background,
        think: Callable[[Take], bool],
        *,
        what: str,
        gap_s: float = GAP_S,
        most_s: float = MOST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._think, self._what, self._clock = think, what, clock
        self._gap_s, self._deadline = gap_s, clock() + most_s
        self._lock = threading.Lock()
        self._ready = ""
        self._news = clock()
        self._cancelled = self._complete = self._failed = self._some = False
        self._lane = background.lane(1)
        try:
            self._lane.submit(self._run)
        except Busy:
            self._failed = True

    def poll(self) -> Part:
        with self._lock:
            text, self._ready = self._ready, ""
            last, failed = self._complete, self._failed
            late = min(self._news + self._gap_s, self._deadline) <= self._clock()
        if last and not self._some and not failed:
            failed = True
            log.warning("no answer", source=self._what, why="empty")
        if late and not last and not failed:
            failed = True
            log.warning("no answer", source=self._what, why="timeout")
        if failed:
            self.cancel()
            return Part(text + (SORRY_AMID if self._some else SORRY), True)
        return Part(text, last)

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
        self._lane.cancel()

    def _run(self) -> None:
        clauses = Clauses()
        try:
            if self._gain("", False):
                whole = self._think(lambda text: self._gain(clauses.feed(text), False))
                self._gain(clauses.rest() if whole or not self._some else "", True)
        except Exception as error:
            told = isinstance(error, Unanswered)
            why = {"why": str(error)} if told else {"why": type(error).__name__, **place_of(error)}
            log.warning("no answer", source=self._what, **why)
            with self._lock:
                self._failed = True

    def _gain(self, text: str, complete: bool) -> bool:
        """Whether more is wanted."""
        with self._lock:
            room = MOST_READY - len(self._ready)
            self._ready += text[:room]
            self._some = self._some or bool(text)
            self._news = self._clock()
            self._complete = complete
            return not self._cancelled and len(self._ready) < MOST_READY
