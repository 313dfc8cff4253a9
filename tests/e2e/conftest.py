"""What several modules here need."""

from collections.abc import Iterator

import pytest

import environments
from oracle import Oracle


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    try:
        made = Oracle()
    except environments.Unavailable as why:
        if environments.required():
            raise
        pytest.skip(str(why))
    with made:
        yield made
