"""The key-value buckets of the bus in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, TypeVar

from duologue.bus.connection import HEADERS_BYTES, MAX_PAYLOAD, checked_key, checked_prefix
from duologue.bus.transport import Entry, NoBucket, StoreUnavailable, TransportError, WrongRevision

T = TypeVar("T")


class _Held(NamedTuple):
    entry: Entry
    written: float


@dataclass(slots=True)
class _Contents:
    max_value_bytes: int
    max_age_s: float
    max_bytes: int
    held: dict[str, _Held] = field(default_factory=dict)

    def age(self, now: float) -> None:
        """Drops what is too old."""
        if self.max_age_s:
            for key in [key for key, held in self.held.items() if now - held.written > self.max_age_s]:
                del self.held[key]


class MemoryStore:
    """All buckets, shared by the transports of a bus.  For tests: while `up` is false every operation fails, as
    when JetStream has no leader."""

    def __init__(self) -> None:
        self.up = True
        self._buckets: dict[str, _Contents] = {}
        self._revisions = count(1)

    def wipe(self) -> None:
        """All buckets are gone, until they are made again; revisions then begin anew."""
        self._buckets.clear()
        self._revisions = count(1)

    def make(self, bucket: str, max_value_bytes: int, max_age_s: float, max_bytes: int) -> None:
        limit = min(max_value_bytes, MAX_PAYLOAD - HEADERS_BYTES)
        self._buckets.setdefault(bucket, _Contents(limit, max_age_s, max_bytes))

    def find(self, bucket: str) -> _Contents | None:
        return self._buckets.get(bucket)

    def next_revision(self) -> int:
        return next(self._revisions)


class MemoryBucket:
    """`Bucket` of one transport.  `leg` carries a request there or an answer back and says whether it arrived: a
    write whose answer is lost was done all the same, as with the real store."""

    def __init__(self, store: MemoryStore, leg: Callable[[], Awaitable[bool]], name: str) -> None:
        self.lost = False
        """The bucket was found missing."""
        self._store, self._leg, self._name = store, leg, name

    async def open(self, max_value_bytes: int, max_age_s: float, max_bytes: int, make: bool) -> None:
        if not await self._leg() or not self._store.up:
            raise StoreUnavailable(f"{self._name} can't be reached")
        if make:
            self._store.make(self._name, max_value_bytes, max_age_s, max_bytes)
        elif self._store.find(self._name) is None:
            raise NoBucket(f"there is no {self._name}")
        if not await self._leg():
            raise StoreUnavailable(f"no answer about {self._name}")

    async def get(self, key: str) -> Entry | None:
        checked_key(key)
        return await self._do(lambda contents: contents.held[key].entry if key in contents.held else None)

    async def put(self, key: str, value: bytes) -> int:
        return await self._do(lambda contents: self._write(contents, key, value))

    async def update(self, key: str, value: bytes, revision: int) -> int:
        def act(contents: _Contents) -> int:
            found = contents.held[key].entry.revision if key in contents.held else 0
            if found != revision:
                raise WrongRevision(f"{self._name}/{key} is at revision {found}, not {revision}")
            return self._write(contents, key, value)

        return await self._do(act)

    async def delete(self, key: str) -> None:
        checked_key(key)
        await self._do(lambda contents: contents.held.pop(key, None))

    async def purge(self, prefix: str, before: int = 0) -> None:
        """Deletes all keys that begin with `prefix`, which ends with a dot; with `before` only those whose revision is
        lower."""
        checked_prefix(prefix)

        def act(contents: _Contents) -> None:
            for key in [key for key in contents.held if key.startswith(prefix)]:
                if not before or contents.held[key].entry.revision < before:
                    del contents.held[key]

        await self._do(act)

    async def keys(self, prefix: str = "") -> list[str]:
        return await self._do(lambda contents: [key for key in contents.held if key.startswith(prefix)])

    def _write(self, contents: _Contents, key: str, value: bytes) -> int:
        if len(value) > contents.max_value_bytes:
            raise TransportError(
                f"{len(value)} bytes are too many for {self._name}: {contents.max_value_bytes}"
            )
        if contents.max_bytes:
            held = sum(len(each.entry.value) for other, each in contents.held.items() if other != key)
            if held + len(value) > contents.max_bytes:
                raise StoreUnavailable(f"{self._name} is full")
        entry = Entry(value, self._store.next_revision())
        contents.held[checked_key(key)] = _Held(entry, asyncio.get_running_loop().time())
        return entry.revision

    async def _do(self, act: Callable[[_Contents], T]) -> T:
        if not await self._leg() or not self._store.up:
            raise StoreUnavailable(f"{self._name} can't be reached")
        contents = self._store.find(self._name)
        if contents is None:
            self.lost = True
            raise StoreUnavailable(f"there is no {self._name}")
        contents.age(asyncio.get_running_loop().time())
        result = act(contents)
        if not await self._leg():
            raise StoreUnavailable(f"no answer from {self._name}")
        return result
