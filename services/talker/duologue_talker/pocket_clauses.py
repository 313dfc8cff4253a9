"""Cuts an answer into clauses, each of which is synthesised by itself.

A sentence in one piece sounds best.  The first clause of an answer is kept short so that its sound is ready early, and no
clause is longer than `MOST_CHARACTERS`, so that none takes long.
"""

import re
from collections.abc import Iterator

FIRST_WORDS = 8
"""The first clause has no more words if there is a place where a speaker could pause."""
MOST_CHARACTERS = 120
LEAST_SHARE = 3
"""A sentence that is too long is not cut within the first third of that."""

_BORDER = re.compile(
    r"(?<![.!?…])(?P<sentence>[.!?…]++)[\"”’')\]]*+(?=\s|$)|(?<![,;:—–])[,;:—–]++[\"”’')\]]*+(?=\s|$)|\n"
)
"""Looks at a run of dots once, not once from each of them: all sessions of the worker wait for it."""
_ABBREVIATED = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|e\.g|i\.e|[A-Z])$")
_JOINT = re.compile(
    r"\s(?=(?:and|or|but|so|because|that|which|who|where|when|while|if|than|then|"
    r"to|in|into|on|at|of|for|from|with|without|about|by|as|over|under|after|before|through|between)\s)"
)


def next_clause(text: str, first: bool, complete: bool) -> tuple[str, str]:
    """The next clause of `text` with the white space before it, and the rest; the clause is empty where more text must
    come first, as it may when `text` is not `complete`.  Text that ends with the end of a clause need not wait."""
    begin = len(text) - len(text.lstrip())
    end = _end(text, begin, first, complete)
    return text[:end], text[end:]


def _end(text: str, begin: int, first: bool, complete: bool) -> int:
    """Where the clause that begins at `begin` ends, 0 if that is not known yet."""
    limit = begin + MOST_CHARACTERS
    whole = len(text.rstrip())
    pause = early = end = 0
    for at, sentence in _borders(text, begin, limit, complete):
        if sentence:
            end = at
            break
        if first and not early and 2 <= _words(text[begin:at]) <= FIRST_WORDS:
            early = at
        pause = at
    if not end:
        if len(text) <= limit:
            end = whole if complete or pause == whole else early
        elif pause - begin > MOST_CHARACTERS // LEAST_SHARE:
            end = pause
        else:
            space = max(text.rfind(" ", begin, limit + 1), text.rfind("\n", begin, limit + 1))
            end = space if space > begin else limit
    if first and _words(text[begin:end]) > FIRST_WORDS:
        return early or _joint(text, begin, end) or end
    return end


def _borders(text: str, begin: int, limit: int, complete: bool) -> Iterator[tuple[int, bool]]:
    """Ends of clauses after `begin` up to `limit`, and whether a sentence ends there."""
    for found in _BORDER.finditer(text, begin):
        at, dots = found.end(), found["sentence"]
        if at > limit:
            return
        if dots == "." and not _closes(text, begin, found.start(), complete):
            continue
        yield at, bool(dots) or found[0] == "\n"


def _closes(text: str, begin: int, dot: int, complete: bool) -> bool:
    """Whether the sentence ends with the dot at `dot`; else it is an abbreviation's."""
    follows = text[dot + 1 :].lstrip()[:1]
    if follows.islower():
        return False
    return not _ABBREVIATED.search(text, begin, dot) or (complete and not follows)


def _joint(text: str, begin: int, end: int) -> int:
    """Before the last word within the reach of a first clause that joins phrases, 0 where there is none."""
    places = [
        found.start()
        for found in _JOINT.finditer(text, begin, end)
        if FIRST_WORDS // 2 <= _words(text[begin : found.start()]) <= FIRST_WORDS
    ]
    return places[-1] if places else 0


def _words(text: str) -> int:
    return len(text.split())
