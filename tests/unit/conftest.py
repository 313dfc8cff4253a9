"""What no unit test leaves behind."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logs_as_usual() -> Iterator[None]:
    """A command that was run in this process has configured the logs, which other tests read."""
    yield
    structlog.reset_defaults()
