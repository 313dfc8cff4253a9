"""How many words of a text were recognised."""

import re
from collections.abc import Sequence

TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", *TEENS]
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def words(text: str) -> list[str]:
    """Lower case, without punctuation; numbers up to 9999 spelled out, longer ones digit by digit."""
    text = re.sub(r"[’`]", "'", text.lower())
    text = re.sub(r"\d+", lambda found: f" {spelled(found[0])} ", text)
    return [word.strip("'") for word in re.findall(r"[a-z']+", text) if word.strip("'")]


def spelled(digits: str) -> str:
    number = int(digits)
    if len(digits) > 4 or (digits[0] == "0" and len(digits) > 1):
        return " ".join(UNITS[int(digit)] for digit in digits)
    if number < 20:
        return UNITS[number]
    if number < 100:
        return f"{TENS[number // 10 - 2]} {UNITS[number % 10] if number % 10 else ''}"
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = f" {spelled(str(number % size))}" if number % size else ""
            return f"{UNITS[number // size]} {name}{rest}"
    raise AssertionError(digits)


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
