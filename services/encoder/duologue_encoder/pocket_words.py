"""What a recogniser's text tells: its words, which of them are certain, whether the sentence is complete."""

import re
from collections.abc import Sequence

NEVER_LAST = frozenset("a an and because but if into my of or our than the their to uh um your".split())
"""No sentence ends with one of these, whatever stop the recogniser put after it."""
BRIEF = 5
"""Words.  After so few a recogniser may well put a comma where a command has ended: "Count to five,"."""
SELDOM_LAST = frozenset(
    "are as at by can could for from in is on please that was were what when where which while will with "
    "would".split()
)
"""Questions do, others hardly."""


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
    last, text = plain(said[-1]), text.rstrip()
    if text.endswith(",") and len(said) <= BRIEF and last not in NEVER_LAST:
        return None
    if last in NEVER_LAST or text.endswith((",", "-", "–", "…", "...", ":", ";")):
        return False
    if text.endswith("?"):
        return True
    return True if text.endswith((".", "!")) and last not in SELDOM_LAST else None


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
    last = plain(shown[-1]) if shown else ""
    ends_alike = [end > 0 and plain(final[end - 1]) == last for end in range(len(row))]
    return min(range(len(row)), key=lambda end: (row[end], not ends_alike[end], abs(end - len(shown))))
