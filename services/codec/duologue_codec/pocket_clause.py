"""Clauses as the talker sends them, and how long they will take."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from duologue.stage.model import SessionError

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

PHONEME = 1170
"""Samples of a phoneme, on average over 20 sentences: hibari's speech without the silence around it."""
CHARACTER = 1250
"""Samples of a character of text, about."""
SENTENCE_PAUSE, CLAUSE_PAUSE, WORD_PAUSE = 7200, 3600, 960
"""Samples of silence after a clause: 300 ms, 150 ms where the sentence goes on, 40 ms where no sign is."""


@dataclass(slots=True)
class Clause:
    came: int
    """The unit it came in, and its place among those of that unit."""
    index: int
    ids: Ids
    """Phonemes, none if it has no sound."""
    words: list[tuple[int, bytes]]
    """The phoneme at which each begins, and its text."""
    speech: Future[Floats] | None = None
    """Once it is being synthesised."""
    told: int = 0
    """Words that the transcript has."""

    @property
    def place(self) -> tuple[int, int]:
        """Clauses are said in the order of this."""
        return self.came, self.index

    @property
    def ready(self) -> bool:
        """Whether it can begin."""
        return not len(self.ids) or (self.speech is not None and self.speech.done())

    @property
    def text_bytes(self) -> int:
        return sum(len(text) for _, text in self.words)

    def tell(self, said: int, samples: int) -> bytes:
        """The words that begin within the first `said` of its `samples`, as far as they have not been told.  A word begins
        as far into the speech as its phonemes into the clause's."""
        begun = self.told
        while begun < len(self.words) and (
            said == samples or self.words[begun][0] * samples < said * len(self.ids)
        ):
            begun += 1
        text = b"".join(word for _, word in self.words[self.told : begun])
        self.told = begun
        return text

    @property
    def pause(self) -> int:
        """Samples of silence that follow it; none if it has no sound."""
        if not len(self.ids):
            return 0
        last = b"".join(text for _, text in self.words).decode(errors="replace").rstrip(" \t\"”’')]")[-1:]
        if last in ".!?…\n":
            return SENTENCE_PAUSE
        return CLAUSE_PAUSE if last in ",;:—–" else WORD_PAUSE

    @property
    def estimate(self) -> int:
        """Samples that it will take, pause included."""
        return len(self.ids) * PHONEME + self.pause


def clauses_of(unit: int, arrays: Mapping[str, npt.NDArray[Any]]) -> list[Clause]:
    """Those of a talker's body, see `duologue.models.pocket`.  Raises `SessionError`."""
    if "clauses" not in arrays:
        return []
    try:
        counts, ids, words = (arrays[name].astype(np.int64) for name in ("clauses", "phonemes", "words"))
        text = arrays["text"].tobytes()
        found = []
        for index, (phonemes, length) in enumerate(counts.reshape(-1, 2).tolist()):
            _need(0 <= phonemes <= len(ids) and 0 < length <= len(text))
            of_clause, text = text[:length], text[length:]
            pairs = []
            while of_clause:
                (start, size), words = words[0].tolist(), words[1:]
                _need(0 < size <= len(of_clause))
                pairs.append((start, of_clause[:size]))
                of_clause = of_clause[size:]
            found.append(Clause(unit, index, ids[:phonemes], pairs))
            ids = ids[phonemes:]
        _need(not len(ids) + len(words) + len(text))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SessionError(f"unit {unit}: the talker's clauses do not add up") from error
    return found


def more_of(unit: int, arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Characters that the talker has yet to read.  Raises `SessionError`."""
    more = arrays.get("more", np.array(0))
    if more.shape or more.dtype.kind not in "iu" or more < 0:
        raise SessionError(
            f"unit {unit}: {more.dtype}{list(more.shape)} is no count of what the talker has yet to read"
        )
    return int(more)


def _need(fine: bool) -> None:
    if not fine:
        raise ValueError
