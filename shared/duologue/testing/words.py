"""What was said, compared word by word: for recognisers, which spell as they like."""

import re
from collections.abc import Sequence

_UNDER_20 = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
_ORDINALS |= {"nine": "ninth", "twelve": "twelfth"}
_SAME = {"okay": "ok", "mister": "mr", "doctor": "dr", "cannot": "can not", "%": "percent"}
_SAME |= {"+": "plus", "=": "equals", "won't": "will not", "can't": "can not"}
_CONTRACTED = {"'m": " am", "'re": " are", "'ll": " will", "'ve": " have", "n't": " not"}
_IS = re.compile(r"\b(it|that|what|where|who|here|there|he|she|how)'s$")


def words(text: str) -> list[str]:
    """Lower case, without punctuation, without contractions; numbers up to 999,999 as words, longer ones digit by
    digit."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower().replace("’", "'"))
    found: list[str] = []
    for each in re.findall(r"\d+(?:st|nd|rd|th)?|[^\W\d_]+(?:'[^\W\d_]+)*|[%+=]", text):
        if each.isdigit():
            found += number(int(each)) if each[0] != "0" else [_UNDER_20[int(digit)] for digit in each]
        elif each[0].isdigit():
            found += _ordinal(int(each[:-2]))
        else:
            found += _long(each).split()
    return found


def _long(word: str) -> str:
    if word in _SAME:
        return _SAME[word]
    for short, long in _CONTRACTED.items():
        if word.endswith(short):
            return word.removesuffix(short) + long
    return _IS.sub(r"\1 is", word)


def number(n: int) -> list[str]:
    if n < 20:
        return [_UNDER_20[n]]
    if n < 100:
        return [_TENS[n // 10], *(number(n % 10) if n % 10 else [])]
    for unit, name in ((100, "hundred"), (1000, "thousand")):
        if n < (1000 if unit == 100 else 1_000_000):
            return [*number(n // unit), name, *(number(n % unit) if n % unit else [])]
    return [_UNDER_20[int(digit)] for digit in str(n)]


def _ordinal(n: int) -> list[str]:
    *before, last = number(n)
    return [*before, _ORDINALS.get(last, f"{last.removesuffix('y')}{'ie' if last.endswith('y') else ''}th")]


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Substitutions, deletions and insertions: Levenshtein's distance in words."""
    row = list(range(len(hypothesis) + 1))
    for i, said in enumerate(reference, 1):
        before, row[0] = row[0], i
        for j, found in enumerate(hypothesis, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (said != found))
    return row[-1]


def word_error_rate(reference: str, hypothesis: str) -> float:
    """Errors for each word of the reference.  Raises `ValueError` where that has none."""
    said = words(reference)
    if not said:
        raise ValueError("no words to be recognised")
    return word_errors(said, words(hypothesis)) / len(said)
