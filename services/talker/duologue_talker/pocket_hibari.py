"""Phonemes from `hibari-tts` (Apache-2.0): lexicon, rules and a small network for unknown words; English.

Measured on a laptop core: 0.3 to 1.1 ms for a clause, 5 ms for one of nothing but unknown words.
"""

import json
import re
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

PAD = 0
"""Stands before and after the phonemes of a clause; the network was trained so."""
_MARKUP = re.compile(r"\*+(?=\w)|(?<=[\w.,!?])\*+|`+|^\s*#+\s", re.MULTILINE)
"""Signs of Markdown, which language models write and nobody reads out."""
_LONG_WORD = re.compile(r"\S{21,}")
_JOINT = re.compile(r"(?<=[^\w\s',.])(?=\w)")
"""Where a long word is taken apart: what hibari takes for one with parts ("A-B-C-…", "a/b/c/…") costs the third power of
their number, seconds for a clause."""


class Spelling(NamedTuple):
    """How a clause is said: `ids` int64 [n] of its phonemes, none if it has no sound; `starts` for each of its words
    the phoneme with which it begins."""

    ids: Ids
    starts: list[int]


class Phonemes:
    """Text → ids of phonemes.  Raises `ModuleNotFoundError` when hibari is missing."""

    def __init__(self) -> None:
        from hibari.g2p import G2P
        from hibari.tts import ASSETS

        self._read = G2P()
        self._ids: dict[str, int] = json.loads((Path(ASSETS) / "vocab.json").read_text("utf-8"))
        # The network for unknown words is loaded with the first of them.
        self("qwortle")

    def __call__(self, clause: str) -> Spelling:
        words = clause.split()
        sounds = self._sounds(clause)
        if not any(sound.isalpha() for sound in sounds):
            return Spelling(np.zeros(0, np.int64), [0] * len(words))
        ids = [PAD, *(self._ids[sound] for sound in sounds), PAD]
        return Spelling(np.array(ids, np.int64), self._starts(words, sounds))

    def _sounds(self, text: str) -> str:
        plain = _LONG_WORD.sub(lambda word: _JOINT.sub(" ", word[0]), _MARKUP.sub("", text))
        return "".join(sound for sound in self._read(plain) if sound in self._ids)

    def _starts(self, words: list[str], sounds: str) -> list[int]:
        """Digits and abbreviations are read as several words; then each word gets a
        share by its length when it is read alone."""
        spoken = sounds.split(" ")
        if len(spoken) == len(words):
            lengths = [len(each) + 1 for each in spoken]
            return list(accumulate(lengths[:-1], initial=0))
        shares = [len(self._sounds(word)) + 1 for word in words]
        total = sum(shares)
        return [start * len(sounds) // total for start in accumulate(shares[:-1], initial=0)]
