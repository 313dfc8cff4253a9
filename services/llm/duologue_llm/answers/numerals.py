"""Numbers in English words, both ways.

Exact: values are fractions.  `reading` takes what a recogniser may write (`twenty one`, `21`, `a hundred and five`,
`3.5`, `three point five`), `in_words` gives what a voice is to say.
"""

from collections.abc import Sequence
from fractions import Fraction

MOST = 10**15
"""No number beyond this is read or said."""
PLACES = 3
"""Decimal places that are said."""

_UNITS = [
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
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_SMALL = {word: value for value, word in enumerate(_UNITS)} | {
    word: 20 + 10 * at for at, word in enumerate(_TENS)
}
_FOURTY = {"fourty": 40, "oh": 0}


def in_words(value: Fraction | int) -> str:
    """E.g. `minus two point five`; `about` comes first where decimals were rounded away."""
    value = Fraction(value)
    if value < 0:
        return f"minus {in_words(-value)}".replace("minus about", "about minus")
    rounded = round(value, PLACES)
    about = "" if rounded == value else "about "
    whole, rest = divmod(rounded, 1)
    digits = f"{int(rest * 10**PLACES):0{PLACES}d}".rstrip("0")
    point = " point " + " ".join(_UNITS[int(digit)] for digit in digits) if digits else ""
    return about + _whole(int(whole)) + point


def _whole(value: int) -> str:
    if value < 20:
        return _UNITS[value]
    if value < 100:
        tens, unit = divmod(value, 10)
        return _TENS[tens - 2] + (f"-{_UNITS[unit]}" if unit else "")
    if value < 1000:
        hundreds, rest = divmod(value, 100)
        return f"{_UNITS[hundreds]} hundred" + (f" and {_whole(rest)}" if rest else "")
    scale, size = max(
        ((name, size) for name, size in _SCALES.items() if size <= value), key=lambda each: each[1]
    )
    many, rest = divmod(value, size)
    joint = " and " if 0 < rest < 100 else " "
    return f"{_whole(many)} {scale}" + (f"{joint}{_whole(rest)}" if rest else "")


def ordinal(value: int) -> str:
    """E.g. `twenty-first`, of 1 to 99."""
    head, hyphen, last = _whole(value).rpartition("-")
    if last in _ORDINALS:
        return head + hyphen + _ORDINALS[last]
    return head + hyphen + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def year(value: int) -> str:
    """As years are read: `twenty twenty-six`, `two thousand and five`."""
    century, rest = divmod(value, 100)
    if not 1000 < value < 10_000 or (century % 10 == 0 and rest < 10):
        return _whole(value)
    if rest == 0:
        return f"{_whole(century)} hundred"
    return f"{_whole(century)} {'oh ' if rest < 10 else ''}{_whole(rest)}"


def reading(words: Sequence[str], at: int = 0) -> tuple[Fraction, int] | None:
    """The number that begins with word `at`, and where it ends; `None` where none does.  Words as `plain` gives them."""
    if at < len(words) and (found := _digits(words[at])) is not None:
        end = at + 1
        while end < len(words) and (
            size := _SCALES.get(words[end]) or (100 if words[end] == "hundred" else 0)
        ):
            found, end = found * size, end + 1
        return (found, end) if abs(found) <= MOST else None
    read = _spelled(words, at)
    if read is None:
        return None
    value, end = read
    if end + 1 < len(words) and words[end] == "point" and words[end + 1] in _SMALL:
        value, end = _decimals(value, words, end + 1)
    return (value, end) if value <= MOST else None


def _digits(word: str) -> Fraction | None:
    whole, dot, rest = word.partition(".")
    if not whole.isascii() or not whole.isdigit() or len(word) > 20:
        return None
    return Fraction(word) if not dot or (rest.isascii() and rest.isdigit()) else None


def _spelled(words: Sequence[str], at: int) -> tuple[Fraction, int] | None:
    total, group, end, last = 0, 0, at, 100
    seen = False
    while end < len(words):
        word = words[end]
        small = _SMALL.get(word, _FOURTY.get(word))
        if small is not None and (not seen or _fits(small, last)):
            group, last, seen = group + small, small, True
        elif word == "hundred" and seen and 0 < group < 100:
            group, last = group * 100, 100
        elif word in _SCALES and seen and group:
            total, group, last = total + group * _SCALES[word], 0, 100
        elif (
            word == "a"
            and not seen
            and end + 1 < len(words)
            and (words[end + 1] == "hundred" or words[end + 1] in _SCALES)
        ):
            group, last, seen = 1, 1, True
        elif word == "and" and seen and last == 100 and end + 1 < len(words) and words[end + 1] in _SMALL:
            pass
        else:
            break
        end += 1
    return (Fraction(total + group), end) if seen else None


def _fits(small: int, last: int) -> bool:
    """Whether a word of this value goes on with a number whose last word had the value `last`."""
    return last == 100 or (last >= 20 and 0 < small < 10)


def _decimals(value: Fraction, words: Sequence[str], at: int) -> tuple[Fraction, int]:
    size = Fraction(1)
    while (
        at < len(words)
        and (digit := _SMALL.get(words[at], _FOURTY.get(words[at], 10))) < 10
        and size > Fraction(1, 10**9)
    ):
        size /= 10
        value, at = value + digit * size, at + 1
    return value, at
