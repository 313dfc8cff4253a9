"""The key-value buckets of the bus in memory."""

import re
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

from duologue.bus.transport import Entry, StoreUnavailable, TransportError, WrongRevision

T = TypeVar("T")

KEY = re.compile(r"(?!\.)[-/_=.a-zA-Z0-9]+(?<!\.)")
"""What a key may look like; NATS's rule."""


class MemoryStore:
    """All buckets, shared by the transports of a bus.  For tests: while `up` is false every operation fails, as
    when JetStream has no leader."""

    def __init__(self) -> None:
        self.up = True
        self._buckets: dict[str, dict[str, Entry]] = {}
        self._revisions = count(1)

    def wipe(self) -> None:
        """Everything stored is gone."""
        self._buckets.clear()

    def contents(self, bucket: str) -> dict[str, Entry]:
        return self._buckets.setdefault(bucket, {})

    def next_revision(self) -> int:
        return next(self._revisions)


class MemoryBucket:
    """`Bucket` of one transport.  `leg` carries a request there or an answer back and says whether it arrived: a
    write whose answer is lost was done all the same, as with the real store."""

    def __init__(
        self, store: MemoryStore, leg: Callable[[], Awaitable[bool]], name: str, max_value_bytes: int
    ) -> None:
        self._store, self._leg, self._name, self._max_value_bytes = store, leg, name, max_value_bytes

    async def get(self, key: str) -> Entry | None:
        return await self._do(lambda held: held.get(_checked(key)))

    async def put(self, key: str, value: bytes) -> int:
        return await self._do(lambda held: self._write(held, key, value))

    async def update(self, key: str, value: bytes, revision: int) -> int:
        def act(held: dict[str, Entry]) -> int:
            found = held[key].revision if key in held else 0
            if found != revision:
                raise WrongRevision(f"{self._name}/{key} is at revision {found}, not {revision}")
            return self._write(held, key, value)

        return await self._do(act)

    async def delete(self, key: str) -> None:
        await self._do(lambda held: held.pop(_checked(key), None))

    async def purge(self, prefix: str) -> None:
        """Deletes all keys that begin with `prefix`, which ends with a dot."""

        def act(held: dict[str, Entry]) -> None:
            for key in [key for key in held if key.startswith(_dotted(prefix))]:
                del held[key]

        await self._do(act)

    async def keys(self, prefix: str = "") -> list[str]:
        return await self._do(lambda held: [key for key in held if key.startswith(prefix)])

    def _write(self, held: dict[str, Entry], key: str, value: bytes) -> int:
        if len(value) > self._max_value_bytes:
            raise TransportError(f"{len(value)} bytes are too many for {self._name}: {self._max_value_bytes}")
        revision = self._store.next_revision()
        held[_checked(key)] = Entry(value, revision)
        return revision

    async def _do(self, act: Callable[[dict[str, Entry]], T]) -> T:
        if not await self._leg() or not self._store.up:
            raise StoreUnavailable(f"{self._name} can't be reached")
        result = act(self._store.contents(self._name))
        if not await self._leg():
            raise StoreUnavailable(f"no answer from {self._name}")
        return result


def _checked(key: str) -> str:
    if not KEY.fullmatch(key):
        raise TransportError(f"{key!r} is no key")
    return key


def _dotted(prefix: str) -> str:
    if not prefix.endswith("."):
        raise TransportError(f"{prefix!r} does not end with a dot")
    return prefix
