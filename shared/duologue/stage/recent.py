"""What a quantity has been in the last seconds, cheaply."""

from collections import deque
from collections.abc import Callable

SPAN_S = 5.0
MOST = 256


class Recent:
    """The values of the last `span_s` seconds, at most the newest `MOST` of them."""

    def __init__(self, clock: Callable[[], float], span_s: float = SPAN_S) -> None:
        self._clock, self._span_s = clock, span_s
        self._values: deque[tuple[float, float]] = deque(maxlen=MOST)

    def add(self, value: float) -> None:
        self._values.append((self._clock(), value))

    def median(self) -> float:
        """Of an even number the upper one of both in the middle; 0 without values."""
        since = self._clock() - self._span_s
        values = sorted(value for at, value in self._values if at >= since)
        return values[len(values) // 2] if values else 0.0
