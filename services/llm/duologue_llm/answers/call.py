"""An answer that a thread is working on.

The thread may hang in whatever it calls; `poll` does not wait for it, and gives up after a while.
"""

import threading
import time
from collections.abc import Callable, Iterator

import structlog

from duologue.errors import place_of
from duologue.stage.background import Background, Busy
from duologue_llm.answers.clauses import Clauses
from duologue_llm.answers.question import Part

GAP_S = 8.0
"""An answer of which nothing new came for so long is given up."""
MOST_S = 60.0
"""An answer takes no longer than this."""
SORRY = "I'm sorry, I can't think of an answer right now."
SORRY_AMID = " I'm sorry, I lost the thread."

log = structlog.get_logger()

Stream = Iterator[str]
"""Of deltas.  It is closed when nobody wants more of it."""


class Call:
    """Runs `stream` on a thread of `background`.  Nothing that is said is logged."""

    def __init__(
        self,
        background: Background,
        stream: Callable[[], Stream],
        *,
        what: str,
        gap_s: float = GAP_S,
        most_s: float = MOST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._what, self._clock = stream, what, clock
        self._gap_s, self._deadline = gap_s, clock() + most_s
        self._lock = threading.Lock()
        self._ready = ""
        self._news = clock()
        self._cancelled = self._complete = self._failed = self._begun = False
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
        self._begun = self._begun or bool(text)
        if last and not self._begun and not failed:
            failed = True
            log.warning("no answer", source=self._what, why="empty")
        if late and not last and not failed:
            failed = True
            log.warning("no answer", source=self._what, why="timeout")
        if failed:
            self.cancel()
            return Part(text + (SORRY_AMID if self._begun else SORRY), True)
        return Part(text, last)

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
        self._lane.cancel()

    def _run(self) -> None:
        clauses = Clauses()
        try:
            stream = self._stream()
            for delta in stream:
                if not self._gain(clauses.feed(delta), False):
                    if close := getattr(stream, "close", None):
                        close()
                    return
            self._gain(clauses.rest(), True)
        except Exception as error:
            log.warning("no answer", source=self._what, why=type(error).__name__, **place_of(error))
            with self._lock:
                self._failed = True

    def _gain(self, text: str, complete: bool) -> bool:
        """Whether more is wanted."""
        with self._lock:
            self._ready += text
            self._news = self._clock()
            self._complete = complete
            return not self._cancelled
