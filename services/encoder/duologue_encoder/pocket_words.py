"""What a recogniser's text tells: its words, which of them are certain, whether the sentence is complete."""

import re
from collections.abc import Sequence

OPEN_ENDED = frozenset(
    "a an and are as at because but by can could did do does for from how if in into is just like my of on or our "
    "please say so than that the their then this to um uh very was were what when where which while who why will with "
    "would your".split()
)
"""A sentence hardly ends with one of these, whatever stop the recogniser put after it."""


def words(text: str) -> list[str]:
    """As they are written, punctuation included; what has no letter and no digit is no word."""
    return [word for word in text.split() if plain(word)]


def plain(word: str) -> str:
    """Without case and punctuation, for comparisons."""
    return re.sub(r"[^\w']", "", word.lower())


def complete(text: str) -> bool | None:
    """Whether the text ends as a sentence does; `None`: it cannot be told."""
    said = words(text)
    if not said:
        return None
    if plain(said[-1]) in OPEN_ENDED or text.rstrip().endswith((",", "-", "–", "…", "...", ":", ";")):
        return False
    return True if text.rstrip().endswith((".", "!", "?")) else None


def agreed(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words at their beginning two hypotheses have in common: local agreement (Liu et al. 2020,
    "Low-Latency Sequence-to-Sequence Speech Recognition and Translation by Partial Hypothesis Selection")."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if plain(a) != plain(b):
            break
        count += 1
    return count


def follows(shown: Sequence[str], final: Sequence[str]) -> int:
    """The first word of `final` that is not yet shown, where what was shown may differ from it in single words: the end
    of that beginning of `final` that is nearest to it in Levenshtein's distance."""
    row = list(range(len(final) + 1))
    for i, a in enumerate(shown, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(final, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (plain(a) != plain(b)))
    return min(range(len(row)), key=lambda end: (row[end], abs(end - len(shown))))
