"""What was said, compared word by word: for recognisers, which spell as they like."""

import re
from collections.abc import Sequence

_UNDER_20 = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SAME = {"okay": "ok", "mister": "mr", "doctor": "dr", "%": "percent", "+": "plus", "=": "equals"}


def words(text: str) -> list[str]:
    """Lower case, without punctuation, numbers up to 999,999 as words, times as their numbers."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower().replace("’", "'"))
    found: list[str] = []
    for each in re.findall(r"\d+|[^\W\d_]+(?:'[^\W\d_]+)*|[%+=]", text):
        found += number(int(each)) if each.isdigit() else [_SAME.get(each, each)]
    return found


def number(n: int) -> list[str]:
    """As it is read out; digit by digit from a million on."""
    if n < 20:
        return [_UNDER_20[n]]
    if n < 100:
        return [_TENS[n // 10], *(number(n % 10) if n % 10 else [])]
    for size, name in ((1000, "hundred"), (1_000_000, "thousand")):
        if n < size:
            unit = size // 10 if size == 1000 else 1000
            return [*number(n // unit), name, *(number(n % unit) if n % unit else [])]
    return [_UNDER_20[int(digit)] for digit in str(n)]


def word_errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """Words inserted, left out or taken for others: Levenshtein's distance."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, start=1):
        corner, row[0] = row[0], i
        for j, other in enumerate(heard, start=1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (word != other))
    return row[-1]


def word_error_rate(reference: str, hypothesis: str) -> float:
    """Errors for each word of the reference.  Raises `ValueError` where that has none."""
    said = words(reference)
    if not said:
        raise ValueError("no words to be recognised")
    return word_errors(said, words(hypothesis)) / len(said)
