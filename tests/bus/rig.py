"""What the tests of the bus share."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol

import nats
import pytest
from nats.aio.client import Client

from duologue.bus.memory import MemoryBus, MemoryTransport
from duologue.bus.nats import NatsTransport
from duologue.bus.server import EmbeddedServer
from duologue.bus.transport import Message, Transport
from duologue.virtual import run_virtual

GIVE_UP_S = 20.0
"""A test that waits this long for something has failed; nothing is measured by it."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


class Bus(Protocol):
    """Where the contract is tested."""

    def run(self, main: Coroutine[Any, Any, None]) -> None: ...

    def transport(self, name: str) -> Transport: ...


class InMemory:
    def __init__(self) -> None:
        self.bus = MemoryBus()

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        run_virtual(main)

    def transport(self, name: str) -> Transport:
        return MemoryTransport(self.bus, name)


class OverNats:
    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        asyncio.run(main)

    def transport(self, name: str) -> Transport:
        return NatsTransport(self.server.url, name=name)


@asynccontextmanager
async def connected(*transports: Transport) -> AsyncIterator[None]:
    try:
        for transport in transports:
            await transport.connect()
        yield
    finally:
        for transport in transports:
            await transport.close()


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Client]:
    """A client of nats-py, as other tools are."""
    client = await nats.connect(url)
    try:
        yield client
    finally:
        await client.close()


class Inbox:
    """What a handler got, to be waited for."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._grown = asyncio.Event()

    def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self._grown.set()

    @property
    def data(self) -> list[bytes]:
        return [message.data for message in self.messages]

    async def count(self, n: int) -> list[bytes]:
        """Waits for `n` messages."""
        async with asyncio.timeout(GIVE_UP_S):
            while len(self.messages) < n:
                self._grown.clear()
                await self._grown.wait()
        return self.data


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(GIVE_UP_S):
        while not condition():  # noqa: ASYNC110  (of states that announce no change)
            await asyncio.sleep(0.005)


async def barrier(from_: Transport, to: Transport, root: str) -> None:
    """Everything published before has been handled."""
    seen = Inbox()
    unsubscribe = await to.subscribe(f"{root}.barrier", seen)
    from_.publish(f"{root}.barrier", b"")
    await seen.count(1)
    await unsubscribe()
