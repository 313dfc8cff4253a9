"""What all tests share."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from deployment import news

settings.register_profile("quick", max_examples=30)
"""Of `make check`; `make test` tries a hundred."""


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """A test that fails shows what its deployment logged meanwhile."""
    yield
    for line in news():
        print(line, file=sys.stderr)
