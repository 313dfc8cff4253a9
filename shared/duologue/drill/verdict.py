"""What is wrong with an answer, unit by unit: a pure comparison of what a caller got with what the model had to say."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum
from itertools import pairwise

import numpy as np

Text = tuple[str, int]
"""(text, the millisecond at which it begins)."""


class Wrong(Enum):
    LOST = "lost"
    """Never came."""
    REPEATED = "repeated"
    """Came once more, or was one too many."""
    REORDERED = "reordered"
    """Came at another place."""
    SAMPLES = "wrong"
    """Came with other samples: decided anew, stale, of another session, or of input that was not heard."""
    TEXT = "text"
    """A piece of transcript that is missing, too many, or at another time."""
    SHED = "shed"
    """Any of these, after the server had said that it dropped input."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`unit` is the number of the unit meant, or at whose place there was one too many; `samples` those that differ."""

    wrong: Wrong
    unit: int
    samples: int = 0


def compare(due: Sequence[bytes], came: Sequence[bytes]) -> list[Finding]:
    """Units as int16 bytes: those that were due and those that came, both in order.

    What came is matched with what was due as `diff` does it.  Where they differ, a unit that is not silent and was due at
    another place is out of place, and any other one has wrong samples.
    """
    start = _common(due, came)
    end = _common(due[start:][::-1], came[start:][::-1])
    due_here, came_here = due[start : len(due) - end], came[start : len(came) - end]
    known = {unit for unit in due if any(unit)}
    differ = [at for at, pair in enumerate(zip(due_here, came_here, strict=False)) if pair[0] != pair[1]]
    if len(due_here) == len(came_here) and not any(came_here[at] in known for at in differ):
        # All at their places; among units that are alike, as silences are, `diff` need not find that.
        return [Finding(Wrong.SAMPLES, start + at, _differ(due_here[at], came_here[at])) for at in differ]
    missing: list[tuple[int, bytes]] = []
    extra: list[tuple[int, bytes]] = []
    found: list[Finding] = []
    matcher = SequenceMatcher(None, due_here, came_here, autojunk=False)
    for what, due_from, due_to, came_from, came_to in matcher.get_opcodes():
        if what == "equal":
            continue
        places = [(start + at, due_here[at]) for at in range(due_from, due_to)]
        for unit in came_here[came_from:came_to]:
            at = places[0][0] if places else start + due_to
            if unit in known or (not places and not any(unit)):
                extra.append((at, unit))
            else:
                found.append(Finding(Wrong.SAMPLES, at, _differ(places[0][1] if places else b"", unit)))
                places = places[1:]
        missing += places
    return sorted([*found, *_placed(missing, extra)], key=lambda each: each.unit)


def compare_texts(due: Sequence[Text], came: Sequence[Text], unit_ms: int) -> list[Finding]:
    """The transcript, with the times at which its pieces begin."""
    wrong, surplus = Counter(due) - Counter(came), Counter(came) - Counter(due)
    late = Counter(later for earlier, later in pairwise(came) if later[1] < earlier[1])
    return [
        Finding(Wrong.TEXT, start_ms // unit_ms)
        for (_, start_ms), count in (wrong + surplus + late).items()
        for _ in range(count)
    ]


def _placed(missing: list[tuple[int, bytes]], extra: list[tuple[int, bytes]]) -> list[Finding]:
    """A unit that is missing at one place and too much at another was reordered."""
    misplaced = Counter(unit for _, unit in missing) & Counter(unit for _, unit in extra)
    found = []
    moved = misplaced.copy()
    for at, unit in missing:
        reordered = moved[unit] > 0
        moved[unit] -= reordered
        found.append(Finding(Wrong.REORDERED if reordered else Wrong.LOST, at))
    for at, unit in extra:
        if misplaced[unit] > 0:
            misplaced[unit] -= 1
        else:
            found.append(Finding(Wrong.REPEATED, at))
    return found


def _common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many units both begin with."""
    at = 0
    while at < min(len(one), len(other)) and one[at] == other[at]:
        at += 1
    return at


def _differ(due: bytes, came: bytes) -> int:
    if len(due) != len(came):
        return max(len(due), len(came)) // 2
    return int(np.count_nonzero(np.frombuffer(due, np.int16) != np.frombuffer(came, np.int16)))
