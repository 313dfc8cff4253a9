"""What a step costs by the number of its rows, learnt from steps alone: no knowledge of the model, or of the device."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

RECENT = 256
"""Steps that count; older ones are forgotten."""
TRUST = 8
"""So many steps of one size outweigh as many probed sizes."""


class Line(NamedTuple):
    """A step of r rows takes `base_s` + r · `row_s` seconds; neither is negative."""

    base_s: float
    row_s: float

    def at(self, rows: float) -> float:
        return self.base_s + rows * self.row_s

    def rows_within(self, seconds: float, most: int) -> int:
        """The largest batch, of at most `most` rows, whose step takes no longer than `seconds`."""
        if self.at(1) > seconds:
            return 0
        return most if self.at(most) <= seconds else int((seconds - self.base_s) / self.row_s + 1e-9)


class StepTimes:
    """A straight line through the median step of each batch size.

    `probed` are (rows, seconds) measured before the first session, over a wide range of sizes.  Live batches have
    few sizes, often one, which alone give no slope: the probed ones then lend their shape, scaled to what is measured
    now.  Medians, because a step that was held up says nothing about the next one.
    """

    def __init__(self) -> None:
        self._probed: dict[int, float] = {}
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)

    def probed(self, found: Mapping[int, float]) -> None:
        self._probed = dict(found)

    def add(self, rows: int, seconds: float) -> None:
        self._recent.append((rows, seconds))

    def forget(self) -> None:
        """What was measured since the probe does not count any more."""
        self._recent.clear()

    @property
    def most_rows(self) -> int:
        """The largest batch that was measured, 0 without any."""
        return max([*self._probed, *(rows for rows, _ in self._recent)], default=0)

    def line(self) -> Line | None:
        """`None` while nothing was measured."""
        by_rows: defaultdict[int, list[float]] = defaultdict(list)
        for rows, seconds in self._recent:
            by_rows[rows].append(seconds)
        live = [
            (rows, median(times), float(min(len(times), TRUST))) for rows, times in sorted(by_rows.items())
        ]
        probed = [(rows, seconds, 1.0) for rows, seconds in sorted(self._probed.items())]
        if not live or not probed:
            return _fit(live or probed) if live or probed else None
        shape = _fit(probed)
        expected = sum(weight * shape.at(rows) for rows, _, weight in live)
        scale = sum(weight * seconds for _, seconds, weight in live) / expected if expected > 0 else 1.0
        return _fit([*live, *((rows, seconds * scale, weight) for rows, seconds, weight in probed)])


def _fit(points: Iterable[tuple[int, float, float]]) -> Line:
    """Weighted least squares through (rows, seconds, weight), kept from going below zero.  One size alone is taken
    for rows that cost all: the line that promises least for larger batches."""
    points = list(points)
    total = sum(weight for _, _, weight in points)
    rows_mean = sum(weight * rows for rows, _, weight in points) / total
    mean_s = sum(weight * seconds for _, seconds, weight in points) / total
    spread = sum(weight * (rows - rows_mean) ** 2 for rows, _, weight in points)
    shared = sum(weight * (rows - rows_mean) * (seconds - mean_s) for rows, seconds, weight in points)
    row_s = max(0.0, shared / spread) if spread else mean_s / rows_mean
    base_s = mean_s - row_s * rows_mean
    if base_s < 0:
        squares = sum(weight * rows * rows for rows, _, weight in points)
        return Line(0.0, sum(weight * rows * seconds for rows, seconds, weight in points) / squares)
    return Line(base_s, row_s)
