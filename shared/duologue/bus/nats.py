"""The bus over NATS.  nats-py does the protocol; this bounds what it buffers and says when to give up.

Facts about nats-py 2.16 that the code rests on: it reconnects for ever only if told so, and then tries for ever at the
first connection too; it closes for good on most errors that the server reports; what it had buffered when the
connection broke it would send afterwards; a PONG for a PING that was given up ends its read loop.
"""

import asyncio
import contextlib
import re
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from duologue.bus.connection import MAX_PAYLOAD, OLDEST_SERVER, Requests, Stats, checked, hand_over
from duologue.bus.nats_store import NatsBucket, bucket_config, open_bucket
from duologue.bus.transport import (
    Bucket,
    Handler,
    Message,
    RequestTimeout,
    StoreUnavailable,
    TransportError,
    Unsubscribe,
)

CONNECT_S = 4.0
CLOSE_S = 1.0
"""For what is still to be sent, and again for the socket."""
OUTGOING_MESSAGES = 4096
OUTGOING_BYTES = 4 << 20
PENDING_MESSAGES = 2048
PENDING_BYTES = 16 << 20
"""Per subscription, of what came in and was not handled yet; beyond it the newest are dropped."""

log = structlog.get_logger()


class NatsTransport:
    """`Transport` over NATS.  `url` may also be several, with commas between them.

    `creds` is a credentials file (needs the `nkeys` package); user and password may also be in the URLs.  `replicas` is
    how often a cluster keeps the buckets made here, `store_timeout_s` the time of one operation on them.  `on_closed`
    is told why when the connection is closed for good: the process can only end then.
    """

    def __init__(
        self,
        url: str | list[str],
        *,
        name: str,
        user: str | None = None,
        password: str | None = None,
        creds: str | None = None,
        tls: ssl.SSLContext | None = None,
        inbox_prefix: str = "_INBOX",
        replicas: int = 1,
        store_timeout_s: float = 2.0,
        pending_messages: int = PENDING_MESSAGES,
        clock: Callable[[], float] | None = None,
        on_closed: Callable[[str], None] | None = None,
    ) -> None:
        self.stats = Stats()
        self._urls = servers_of(url) if isinstance(url, str) else url
        self._options: dict[str, Any] = {
            "name": name,
            "user": user,
            "password": password,
            "user_credentials": creds,
            "tls": tls,
            "inbox_prefix": inbox_prefix,
        }
        self._replicas, self._store_timeout_s = replicas, store_timeout_s
        self._buckets: dict[str, NatsBucket] = {}
        self._pending_messages = pending_messages
        self._clock = clock
        self._on_closed = on_closed
        self._nc = Client()
        self._up = False
        self._since = 0.0
        self._connecting = self._closing = False
        self._error: Exception | None = None
        self._outgoing: deque[tuple[str, bytes, str]] = deque(maxlen=OUTGOING_MESSAGES)
        self._outgoing_bytes = 0
        self._wake = asyncio.Event()
        self._outage = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._requests = Requests(inbox_prefix)

    # ---------------------------------------------------------------- the connection

    @property
    def connected(self) -> bool:
        return self._up and self._nc.is_connected

    @property
    def client(self) -> Client:
        """nats-py's own client, for what only an inspection needs."""
        return self._nc

    @property
    def settled_s(self) -> float:
        return self._now() - self._since if self.connected else 0.0

    @property
    def backlog(self) -> float:
        return max(len(self._outgoing) / OUTGOING_MESSAGES, self._outgoing_bytes / OUTGOING_BYTES)

    async def connect(self) -> None:
        self._connecting, self._closing, self._error = True, False, None
        self._nc = Client()
        self._buckets.clear()
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._nc.connect(
                    servers=self._urls,
                    reconnect_time_wait=0.05,  # type: ignore[arg-type]
                    max_reconnect_attempts=-1,
                    ping_interval=2,
                    max_outstanding_pings=2,
                    connect_timeout=1,
                    pending_size=256 * 1024,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_nats_closed,
                    **self._options,
                )
            self._check_version()
            self._requests = Requests(self._nc.new_inbox())
            await self._nc.subscribe(self._requests.subject, cb=self._on_answer)
        except (TimeoutError, OSError, ImportError, nats.errors.Error, TransportError) as error:
            await self._shut()
            if isinstance(error, TransportError):
                raise
            raise TransportError(self._no_server(error)) from error
        except BaseException:
            await self._shut()
            raise
        finally:
            self._connecting = False
        self._arrived()
        self._writer = asyncio.create_task(self._write(), name="nats writer")

    async def close(self) -> None:
        """Sends what is still to be sent, as far as that takes no longer than 1 s."""
        self._closing = True
        self._wake.set()
        if self._writer is not None:
            await asyncio.wait({self._writer}, timeout=CLOSE_S)
            self._writer.cancel()
            self._tasks.add(self._writer)
        self._requests.lost()
        await self._shut()

    async def _shut(self) -> None:
        self._closing, self._up = True, False
        with contextlib.suppress(Exception):  # whatever is wrong with a connection that is given up anyway
            async with asyncio.timeout(CLOSE_S):
                await self._nc.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _check_version(self) -> None:
        server = self._nc.connected_server_version
        if (server.major, server.minor) < OLDEST_SERVER:
            wanted = ".".join(map(str, OLDEST_SERVER))
            raise TransportError(f"{self._where()} is {server!r}; {wanted} or newer is needed")

    def _no_server(self, error: Exception) -> str:
        cause = self._error or error
        if "authorization" in str(cause).lower():
            return f"the NATS server at {self._where()} refuses these credentials ({cause})"
        return (
            f"no NATS server at {self._where()} ({cause or 'no answer'}): start one with `nats-server -js`, "
            "or let `duologue up` run its own (pip install 'duologue[embedded]')"
        )

    def _where(self) -> str:
        return ", ".join(without_secrets(url) for url in self._urls)

    def _now(self) -> float:
        return (self._clock or asyncio.get_running_loop().time)()

    def _arrived(self) -> None:
        self._up, self._since = True, self._now()
        self._outage = asyncio.Event()

    # ---------------------------------------------------------------- what nats-py reports

    async def _on_error(self, error: Exception) -> None:
        if self._connecting:
            self._error = error
            if "authorization" in str(error).lower():
                raise TransportError(self._no_server(error))  # else nats-py tries again for ever
        elif isinstance(error, nats.errors.SlowConsumerError):
            self.stats.slow_consumers += 1
            if (
                self.stats.slow_consumers.bit_count() == 1
            ):  # the 1st, 2nd, 4th, … lest the log is the next to be slow
                log.warning("slow consumer", subject=error.subject, dropped=self.stats.slow_consumers)
        elif self.connected:
            log.warning("bus error", error=str(error))
        else:
            log.debug("bus still away", error=str(error))

    async def _on_disconnected(self) -> None:
        """Runs in nats-py's reconnecting task, or in `close`."""
        if not self._up:
            return
        self._up = False
        if not self._nc.is_closed and (task := asyncio.current_task()):
            task.add_done_callback(self._reconnecting_ended)
        self._outage.set()
        self.stats.dropped += len(self._outgoing) + _forget_unsent(self._nc)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._requests.lost()
        log.warning("bus connection lost", servers=self._where())

    def _reconnecting_ended(self, task: "asyncio.Task[Any]") -> None:
        """nats-py does not notice when its reconnecting fails on an error that it did not foresee."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._gone(f"reconnecting failed: {error!r}")

    async def _on_reconnected(self) -> None:
        self._arrived()
        self.stats.reconnects += 1
        log.info("bus connection is back", servers=self._where())

    async def _on_nats_closed(self) -> None:
        if not self._closing:
            self._gone(str(self._nc.last_error or "closed"))

    def _gone(self, why: str) -> None:
        log.error("bus connection closed for good", why=why)
        if self._on_closed is not None:
            self._on_closed(why)

    # ---------------------------------------------------------------- messages

    def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        checked(subject, data, min(MAX_PAYLOAD, self._nc.max_payload))
        room = len(self._outgoing) < OUTGOING_MESSAGES and self._outgoing_bytes + len(data) <= OUTGOING_BYTES
        if not self.connected or self._closing or not room:
            self.stats.dropped += 1
            return
        self._outgoing.append((subject, data, reply))
        self._outgoing_bytes += len(data)
        self._wake.set()

    async def _write(self) -> None:
        """The only caller of nats-py's `publish`, which waits where the socket does."""
        while self._outgoing or not self._closing:
            if not self._outgoing:
                self._wake.clear()
                await self._wake.wait()
                continue
            subject, data, reply = self._outgoing.popleft()
            self._outgoing_bytes -= len(data)
            try:
                await self._nc.publish(subject, data, reply)
            except Exception as error:  # one message must not end the writing of all others
                self.stats.dropped += 1
                log.warning("message not sent", subject=subject, error=str(error))
            else:
                self.stats.published += 1
                self.stats.bytes += len(data)

    async def subscribe(self, subject: str, handler: Handler) -> Unsubscribe:
        """When this returns, the server knows of it, or will with the next connection."""

        async def take(msg: Msg) -> None:
            self.stats.delivered += 1
            self.stats.bytes += len(msg.data)
            hand_over(handler, _message(msg))

        try:
            subscription = await self._nc.subscribe(
                subject,
                cb=take,
                pending_msgs_limit=self._pending_messages,
                pending_bytes_limit=PENDING_BYTES,
            )
        except nats.errors.Error as error:
            raise TransportError(f"can't subscribe to {subject}: {error}") from error
        await self._flush()

        async def unsubscribe() -> None:
            with contextlib.suppress(nats.errors.Error):  # done before, or the connection is closed
                await subscription.unsubscribe()

        return unsubscribe

    async def _flush(self) -> None:
        """Waits until the server has handled all commands, or the connection is lost."""
        if not self.connected:
            return
        waits = self._task(self._ping_pong()), self._task(self._outage.wait())
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits[1].cancel()  # never the other: see the module's facts

    async def _ping_pong(self) -> None:
        # Twice, since nats-py sends a PING ahead of the commands that it has buffered.
        with contextlib.suppress(nats.errors.Error):
            await self._nc.flush()
            await self._nc.flush()

    def _task(self, coro: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(coro)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        if not self.connected:
            raise RequestTimeout(f"no connection to {self._where()}")
        return await self._requests.ask(self.publish, subject, data, timeout_s)

    async def _on_answer(self, msg: Msg) -> None:
        self._requests.answered(msg.subject, _message(msg))

    async def bucket(
        self,
        name: str,
        *,
        max_value_bytes: int = 1 << 20,
        max_age_s: float = 0.0,
        max_bytes: int = 0,
        make: bool = True,
    ) -> Bucket:
        """Asks the server only the first time, and when the bucket was found missing.  A bucket that is there
        already keeps its limits."""
        bucket = self._buckets.get(name)
        if bucket is None or bucket.lost:
            if not self.connected:
                raise StoreUnavailable(f"no connection to {self._where()}")
            config = bucket_config(name, max_value_bytes, max_age_s, max_bytes, self._replicas)
            bucket = await open_bucket(self._nc, config, self._store_timeout_s, lambda: self.connected, make)
            self._buckets[name] = bucket
        return bucket


def without_secrets(url: str) -> str:
    """The URL, or each of several with commas between them, without user and password, for logs and messages."""
    return ",".join(_without_secrets(each) for each in servers_of(url))


def servers_of(url: str) -> list[str]:
    """The URLs of several with commas between them.  A comma before an @ may be part of a password."""
    parts = re.split(r",(?=\w+://)", url)
    return [server for part in parts for server in ([part] if "@" in part else part.split(","))]


def _without_secrets(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _message(msg: Msg) -> Message:
    headers = msg.headers
    if headers and not msg.data and headers.get("Status") == "503":
        return Message(headers.get("Nats-Subject", ""), b"", no_responders=True)
    return Message(msg.subject, msg.data, msg.reply)


def _forget_unsent(client: Client) -> int:
    """Empties what nats-py would send after the reconnect, stale by then; returns the number of messages.
    Subscriptions it sends anew in any case."""
    unsent = sum(command[:4] in (b"PUB ", b"HPUB") for command in client._pending)
    client._pending.clear()
    client._pending_data_size = 0
    return unsent
