"""Sessions in memory and virtual time of which the store keeps something, for tests of what it keeps."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from duologue.bus import messages as m
from duologue.bus.memory import MemoryTransport
from duologue.bus.transport import StoreUnavailable
from duologue.inprocess import InProcess
from duologue.session.record import BUCKET, SessionRecord
from duologue.session.segments import AUDIO, LEDGERS, STORE
from duologue.session.stored import Stored, stored
from duologue.testing.signals import bursts
from duologue.virtual import run_virtual
from duologue_api.table import State
from recorder import Recorder, config

UNIT = 3840
"""Bytes of a unit of PCM at 24 kHz."""
SEED = 23


def speech(units: int, seed: int = 5) -> np.ndarray:
    """int16 [units · 1920] in which the parrot has much to repeat."""
    blocks = [(0.5, True), (0.9, False), (0.6, True), (1.1, False)] * (units // 30 + 1)
    return bursts(blocks, seed)[: units * 1920]


class Keeping:
    """A deployment, its store, and somebody who looks at that."""

    def __init__(self, deployment: InProcess, looker: MemoryTransport) -> None:
        self.deployment, self.store, self.looker = deployment, deployment.bus.store, looker

    async def session(self, *, store: bool = False, **fields: Any) -> "Call":
        call = Call(self, store=store, **fields)
        await call.client.until(lambda: call.client.started or call.client.ended is not None)
        assert call.client.started, call.client.errors
        return call

    async def keys(self, bucket: str) -> list[str]:
        return await (await self.looker.bucket(bucket)).keys()

    async def counts(self) -> dict[str, int]:
        """Keys of each bucket, of all sessions."""
        return {bucket: len(await self.keys(bucket)) for bucket in (BUCKET, LEDGERS, AUDIO, STORE)}

    async def record(self, sid: str) -> SessionRecord | None:
        entry = await (await self.looker.bucket(BUCKET)).get(sid)
        return None if entry is None else m.decode(entry.value, SessionRecord)

    async def read(self, sid: str) -> Stored:
        try:
            return await stored(self.looker, sid)
        except StoreUnavailable:  # its bucket was wiped since it looked last
            return await stored(self.looker, sid)


class Call:
    """One client's session."""

    def __init__(self, keeping: Keeping, **fields: Any) -> None:
        self.keeping, self.client = keeping, Recorder()
        pod = keeping.deployment.pod
        self.root = pod.connect(self.client)
        self.sid = self.root.sid
        self.root.start(config(pod, **fields), None)

    async def say(self, data: bytes, *, chunk: int = UNIT, seconds: float = 0.08) -> None:
        for at in range(0, len(data), chunk):
            self.root.append(data[at : at + chunk], None)
            await asyncio.sleep(seconds)

    async def close(self) -> None:
        if self.root.state is State.CLOSED:
            return
        if self.client.ended is None:
            self.root.request_close(None)
        await self.client.until(lambda: self.client.ended is not None)
        self.root.disconnected()
        await asyncio.sleep(0.5)

    def leave(self) -> None:
        self.root.disconnected()


@asynccontextmanager
async def keeping(**options: Any) -> AsyncIterator[Keeping]:
    async with InProcess("parrot", seed=SEED, **options) as deployment:
        await asyncio.sleep(1.1)
        looker = MemoryTransport(deployment.bus, "looker")
        await looker.connect()
        yield Keeping(deployment, looker)
        assert not deployment.fatal


def play(script: Callable[[Keeping], Awaitable[None]], *, limit_s: float = 300.0, **options: Any) -> None:
    async def main() -> None:
        async with keeping(**options) as it:
            await script(it)

    run_virtual(main(), limit_s=limit_s)
