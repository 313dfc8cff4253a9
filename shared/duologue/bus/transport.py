"""What the product needs of a message bus.  `nats` is the real one, `memory` the one in virtual time."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol


class TransportError(Exception):
    """The bus could not do it now."""


class NoResponders(TransportError):
    """Nobody listens on the subject of a request."""


class RequestTimeout(TransportError):
    """No answer came in time."""


class WrongRevision(TransportError):
    """Compare-and-set: the key has another revision."""


class StoreUnavailable(TransportError):
    """The store can't be reached, has no leader or no quorum."""


class NoBucket(StoreUnavailable):
    """There is no such bucket, and it was not to be made."""


class Message(NamedTuple):
    """A delivered message.  With `no_responders` it is the server's notice (503) that nobody listens on `subject`,
    sent to the reply subject of what was published there."""

    subject: str
    data: bytes
    reply: str = ""
    no_responders: bool = False


Handler = Callable[[Message], None]
Unsubscribe = Callable[[], Awaitable[None]]


class Entry(NamedTuple):
    value: bytes
    revision: int


class Bucket(Protocol):
    """A key-value bucket.  All methods raise `StoreUnavailable`."""

    async def get(self, key: str) -> Entry | None: ...

    async def put(self, key: str, value: bytes) -> int: ...

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Compare-and-set; revision 0 means "not there yet".  Returns the new revision, raises `WrongRevision`."""
        ...

    async def delete(self, key: str) -> None: ...

    async def keys(self, prefix: str = "") -> list[str]: ...

    async def purge(self, prefix: str, before: int = 0) -> None:
        """Deletes all keys that begin with `prefix`, which ends with a dot; with `before` only those whose revision is
        lower."""
        ...


class Transport(Protocol):
    """At most once, in order per publisher and subject while the connection lasts; what is under way at a
    reconnect may be lost.  Handlers run on the event loop, one message at a time, and must not block."""

    @property
    def connected(self) -> bool: ...

    @property
    def settled_s(self) -> float:
        """Seconds since the connection was last (re)made; 0 while there is none."""
        ...

    @property
    def backlog(self) -> float:
        """Share of the buffer for what is published that is in use, 0..1."""
        ...

    async def connect(self) -> None:
        """Raises `TransportError` with what to do about it."""
        ...

    async def close(self) -> None: ...

    def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        """Never waits.  While there is no connection, or beyond a bounded buffer, the message is dropped and
        counted: whoever needs it delivered sends it again."""
        ...

    async def subscribe(self, subject: str, handler: Handler) -> Unsubscribe: ...

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        """Raises `NoResponders`, `RequestTimeout`."""
        ...

    async def bucket(
        self,
        name: str,
        *,
        max_value_bytes: int = 1 << 20,
        max_age_s: float = 0.0,
        max_bytes: int = 0,
        make: bool = True,
    ) -> Bucket:
        """The bucket `name`, made if it is not there; what nobody writes for `max_age_s` is dropped (0: never), and
        beyond `max_bytes` (0: no limit) nothing can be written.  Raises `StoreUnavailable`, and `NoBucket` where it is not
        to be made."""
        ...
