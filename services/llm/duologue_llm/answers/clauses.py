"""From the tokens of a language model to clauses that can be spoken."""

import re
import unicodedata

LEAST_CHARACTERS = 20
"""A clause that does not end a sentence has at least so many."""
MOST_CHARACTERS = 200
"""Text without punctuation is cut at a space after so many."""

_BORDER = re.compile(r"(?<![.!?…])[.!?…]++[\"”’')]*+\s+|\n\s*|(?P<pause>[,;:—][\"”’')]*+\s+)")
"""Looks at a run of dots once, not once from each of them: all sessions of the worker wait for it."""
_CONTROL = "".join(sign for sign in map(chr, [*range(32), 127]) if not sign.isspace())
_MARKUP = str.maketrans(dict.fromkeys("*#`_~|<>[]{}\\" + _CONTROL, ""))
_THOUGHT, _THOUGHT_END = "<think>", "</think>"


class Clauses:
    """`feed` takes text as it comes and returns the clauses that it completes; `rest` is what is left at the end.  What a
    model thinks to itself, its markup, and signs that nobody can pronounce are left out."""

    def __init__(self) -> None:
        self._raw = ""
        self._text = ""
        self._thinking: bool | None = None
        """Unknown until the first characters are there."""

    def feed(self, delta: str) -> str:
        self._take(delta)
        end = 0
        for border in _BORDER.finditer(self._text):
            if not border["pause"] or border.end() - end >= LEAST_CHARACTERS:
                end = border.end()
        if not end and len(self._text) > MOST_CHARACTERS:
            end = self._text.rfind(" ") + 1 or len(self._text)
        return self._cut(end)

    def rest(self) -> str:
        if self._thinking is None:
            self._thinking = False
            self._take("")
        return self._cut(len(self._text)).rstrip()

    def _take(self, delta: str) -> None:
        self._raw += delta
        if self._thinking is None:
            begun = self._raw.lstrip()[: len(_THOUGHT)]
            if begun != _THOUGHT and _THOUGHT.startswith(begun):
                return
            self._thinking = begun == _THOUGHT
        if self._thinking:
            _, end, after = self._raw.partition(_THOUGHT_END)
            self._thinking = not end
            self._raw = after if end else self._raw[-len(_THOUGHT_END) :]
        if not self._thinking:
            self._text, self._raw = self._text + speakable(self._raw), ""

    def _cut(self, end: int) -> str:
        clause, self._text = self._text[:end], self._text[end:]
        return clause if clause.strip() else ""


def speakable(text: str) -> str:
    """Without markup, emoji, control characters and the like."""
    plain = text.translate(_MARKUP)
    return plain if plain.isascii() else "".join(filter(_pronounced, plain))


def _pronounced(character: str) -> bool:
    return (
        unicodedata.category(character) not in ("So", "Sk", "Cn", "Co", "Cs", "Cf", "Me")
        and character != "\ufe0f"
    )
