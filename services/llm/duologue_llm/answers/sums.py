"""Arithmetic as people say it: `seven plus five`, `half of ninety`, `12 x 12`, `20 percent of 50`."""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from duologue_llm.answers.numerals import MOST, in_words, reading

_MOST_EXPONENT = 64
_MOST_NESTED = 20
"""Signs before a number; nobody says "minus minus" more often."""
_SYMBOLS = re.compile(r"(?<=[\d\s])\s*[-–−]\s*(?=\d)")
_SIGNS = re.compile(r"([+*/×÷=%]|(?<=\d)\s*x\s*(?=\d))")
_SPELLED = (
    ("multiplied by", "*"),
    ("divided by", "/"),
    ("take away", "-"),
    ("to the power of", "^"),
    ("square root of", "root"),
    ("per cent", "%"),
    ("percent of", "% of"),
    ("one half of", "half of"),
    ("a half of", "half of"),
    ("one third of", "third of"),
    ("a third of", "third of"),
    ("one quarter of", "quarter of"),
    ("a quarter of", "quarter of"),
    ("half of", "half"),
    ("third of", "third"),
    ("quarter of", "quarter"),
    ("% of", "%of"),
)
_ONE_WORD = {
    "plus": "+",
    "minus": "-",
    "less": "-",
    "times": "*",
    "x": "*",
    "×": "*",
    "over": "/",
    "÷": "/",
    "by": "*",
    "percent": "%",
}
_SAID = {"+": "plus", "-": "minus", "*": "times", "/": "divided by", "^": "to the power of"}
_PARTS = {"half": Fraction(1, 2), "third": Fraction(1, 3), "quarter": Fraction(1, 4)}
_SAID_PARTS = {"half": "half of", "third": "a third of", "quarter": "a quarter of"}
_COMMANDS = (
    (re.compile(r"\b(?:add|the sum of|sum of) (.+?) (?:and|to|plus|with) (.+)"), r"\1 + \2"),
    (re.compile(r"\bsubtract (.+?) from (.+)"), r"\2 - \1"),
    (re.compile(r"\b(?:the )?difference (?:between|of) (.+?) and (.+)"), r"\1 - \2"),
    (re.compile(r"\b(?:multiply (.+?) (?:by|and|with)|(?:the )?product of (.+?) and) (.+)"), r"\1\2 * \3"),
    (re.compile(r"\bdivide (.+?) by (.+)"), r"\1 / \2"),
)


class _Unsolvable(Exception):
    """Says why, aloud."""


def solve(plain: str) -> str | None:
    """The answer to a sum in `plain` text, as a sentence; `None` where there is no sum in it."""
    for pattern, infix in _COMMANDS:
        if found := pattern.search(plain):
            plain = found.expand(infix)
            break
    tokens = _tokens(plain)
    best: tuple[int, _Reader] | None = None
    for at in range(len(tokens)):
        reader = _Reader(tokens, at)
        if reader.read() and (best is None or reader.at - at > best[0]):
            best = reader.at - at, reader
    return best[1].sentence() if best else None


def with_signs(text: str) -> str:
    """`text` with each minus between numbers as a word, before `plain` takes it for a hyphen."""
    return _SYMBOLS.sub(" minus ", text)


def _tokens(plain: str) -> list[str]:
    spaced = " ".join(_SIGNS.sub(r" \1 ", plain).split())
    for phrase, sign in _SPELLED:
        spaced = re.sub(rf"(?<!\S){re.escape(phrase)}(?!\S)", sign, spaced)
    return [_ONE_WORD.get(word, word) for word in spaced.split()]


class _Reader:
    """Reads the sum that begins at a token; precedence as in school."""

    def __init__(self, tokens: Sequence[str], at: int) -> None:
        self.tokens, self.at = tokens, at
        self._signs = self._nested = 0
        self._said: list[str] = []
        self._problem = ""

    def read(self) -> bool:
        """Whether there is one, with at least one operation."""
        try:
            value = self._sum()
        except _Unsolvable as problem:
            self._problem, value = str(problem), None
        self._value = value
        return bool(self._problem) or (value is not None and self._signs > 0)

    def sentence(self) -> str:
        if self._problem or self._value is None:
            return self._problem
        if abs(self._value) > MOST:
            return "That number is too big for me to say."
        text = f"{' '.join(self._said)} is {in_words(self._value)}."
        return text[0].upper() + text[1:]

    def _next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _sum(self) -> Fraction | None:
        return self._chain("+-", self._product)

    def _product(self) -> Fraction | None:
        return self._chain("*/", self._power)

    def _chain(self, signs: str, part: Callable[[], Fraction | None]) -> Fraction | None:
        value = part()
        while value is not None and (sign := self._next()) and sign in signs:
            before = self.at, self._signs, len(self._said)
            self.at += 1
            self._signs += 1
            self._said.append(_SAID[sign])
            right = part()
            if right is None:
                self.at, self._signs = before[:2]
                del self._said[before[2] :]
                break
            value = _apply(sign, value, right)
        return value

    def _power(self) -> Fraction | None:
        value = self._atom()
        while value is not None:
            word = self._next()
            exponent = {"squared": 2, "cubed": 3}.get(word)
            if exponent is not None:
                self._said.append(word)
                self.at += 1
            elif word == "^" and (read := reading(self.tokens, self.at + 1)):
                exponent = int(read[0])
                self._said += ["to the power of", in_words(read[0])]
                self.at = read[1]
            else:
                break
            self._signs += 1
            value = _raised(value, exponent)
        return value

    def _atom(self) -> Fraction | None:
        if self._nested >= _MOST_NESTED:
            return None
        self._nested += 1
        value = self._number()
        self._nested -= 1
        return value

    def _number(self) -> Fraction | None:
        word = self._next()
        if word == "-":
            return self._prefixed("minus", lambda value: -value, signs=0)
        if word in _PARTS:
            return self._prefixed(_SAID_PARTS[word], lambda value: value * _PARTS[word])
        if word in ("double", "twice"):
            return self._prefixed(word, lambda value: 2 * value)
        if word == "root":
            return self._prefixed("the square root of", _root)
        read = reading(self.tokens, self.at)
        if read is None:
            return None
        value, self.at = read
        self._said.append(in_words(value))
        if self._next() in ("%", "%of"):
            return self._percent(value)
        return value

    def _percent(self, value: Fraction) -> Fraction | None:
        before = self.at
        self.at += 1
        if self._next() == "of":
            self.at += 1
        self._said.append("percent of")
        whole = self._atom()
        if whole is None:
            self.at = before
            self._said.pop()
            return value
        self._signs += 1
        return value / 100 * whole

    def _prefixed(self, said: str, change: Callable[[Fraction], Fraction], signs: int = 1) -> Fraction | None:
        self.at += 1
        self._said.append(said)
        value = self._atom()
        if value is None:
            return None
        self._signs += signs
        return change(value)


def _apply(sign: str, left: Fraction, right: Fraction) -> Fraction:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    if right == 0:
        raise _Unsolvable("Nothing can be divided by zero.")
    return left / right


def _raised(value: Fraction, exponent: int) -> Fraction:
    if exponent > _MOST_EXPONENT or abs(value) ** exponent > MOST:
        raise _Unsolvable("That number is too big for me to say.")
    return value**exponent


def _root(value: Fraction) -> Fraction:
    if value < 0:
        raise _Unsolvable("A negative number has no square root among the real numbers.")
    return Fraction(float(value) ** 0.5).limit_denominator(10**6)
