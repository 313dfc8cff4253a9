"""What all tests share."""

import sys
from collections.abc import Iterator

import pytest

from deployment import news


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """A test that fails shows what its deployment logged meanwhile."""
    yield
    for line in news():
        print(line, file=sys.stderr)
