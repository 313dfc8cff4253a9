"""A bound for what an endpoint sends, however it does so.

The SDK reads on until a line ends, skips comments, and takes the body of an error whole: nobody asks meanwhile whether more
is wanted, and a read that always gets something never times out.  So the thread would be lost, and the memory.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx2  # openai's client is made of it

from duologue_llm.answers.call import Unanswered

MOST_BYTES = 16 << 20
"""Of a response.  A token has some 250 bytes, so that a model may think for 60,000 tokens."""


def bounded(most_s: float) -> Callable[[httpx2.Response], None]:
    """A hook for responses: one that takes longer, or has more than `MOST_BYTES`, ends with `Unanswered`."""
    return partial(_bound, most_s)


def _bound(most_s: float, response: httpx2.Response) -> None:
    response.stream = _Bounded(response.stream, most_s)


class _Bounded(httpx2.SyncByteStream):
    def __init__(self, stream: Any, most_s: float) -> None:
        self._stream, self._deadline = stream, time.monotonic() + most_s

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._stream:
            size += len(part)
            if size > MOST_BYTES:
                raise Unanswered(f"the endpoint sent more than {MOST_BYTES >> 20} MiB")
            if time.monotonic() > self._deadline:
                raise Unanswered("the endpoint comes to no end")
            yield part

    def close(self) -> None:
        self._stream.close()
