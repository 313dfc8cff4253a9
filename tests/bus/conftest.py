"""One embedded nats-server for all tests of the bus that leave it alone, and the contract's two transports."""

import asyncio
import secrets
from collections.abc import Iterator

import pytest

from bus.rig import Bus, InMemory, OverNats
from duologue.bus.server import EmbeddedServer


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    server = EmbeddedServer()
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(params=["memory", "nats"])
def bus(request: pytest.FixtureRequest) -> Bus:
    return InMemory() if request.param == "memory" else OverNats(request.getfixturevalue("server"))


@pytest.fixture
def root() -> str:
    """The first token of subjects and the name of the bucket, not used by any other test."""
    return f"t{secrets.token_hex(6)}"
