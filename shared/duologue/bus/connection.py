"""What a connection keeps by itself, whichever bus it is: its counters, and the requests under way."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from duologue.bus.transport import Handler, Message, NoResponders, RequestTimeout, TransportError

MAX_PAYLOAD = 1 << 20
"""Bytes of a message; nats-server's own default."""
MAX_SUBJECT = 1024
"""Characters; together with a reply subject far below the 4 KiB of nats-server's `max_control_line`."""
HEADERS_BYTES = 512
"""Room for headers, which nats-server counts as part of a message and of a stored value; nats-py counts only the
payload, and the server closes the connection of who exceeds."""
OLDEST_SERVER = (2, 14)
"""Version of nats-server: its 503 notices name the subject, and it has KV as used here."""

_KEY = re.compile(r"(?!\.)[-/_=.a-zA-Z0-9]+(?<!\.)")


@dataclass(slots=True)
class Stats:
    """Counters of one connection: messages, and payload `bytes` of both directions.  `dropped` were published
    while there was no connection or beyond the buffer; `slow_consumers` came in faster than handlers took them."""

    published: int = 0
    delivered: int = 0
    bytes: int = 0
    dropped: int = 0
    reconnects: int = 0
    slow_consumers: int = 0


def checked(subject: str, data: bytes, limit: int) -> None:
    """Raises `TransportError` for a message that no server would take.  nats-server cuts the connection of who
    sends one, so this must be found here."""
    if len(subject) > MAX_SUBJECT:
        raise TransportError(
            f"a subject of {len(subject)} characters is more than the bus takes: {MAX_SUBJECT}"
        )
    if len(data) > limit:
        raise TransportError(f"{len(data)} bytes for {subject} are more than the bus takes: {limit}")


def checked_key(key: str) -> str:
    """Returns `key` if a bucket can have it; NATS's rule.  Raises `TransportError`."""
    if not _KEY.fullmatch(key):
        raise TransportError(f"{key!r} is no key")
    return key


def checked_prefix(prefix: str) -> str:
    """Returns `prefix` if it is a key and a dot.  Raises `TransportError`."""
    if not prefix.endswith("."):
        raise TransportError(f"{prefix!r} does not end with a dot")
    checked_key(prefix[:-1])
    return prefix


def hand_over(handler: Handler, message: Message) -> None:
    """Calls the handler; what it raises is a bug, and goes where the loop's other bugs go."""
    try:
        handler(message)
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"handler of {message.subject} failed", "exception": error}
        )


class Requests:
    """Requests under way, matched to their answers by the last token of the reply subject."""

    def __init__(self, inbox: str) -> None:
        self._inbox = inbox
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._tokens = count()

    @property
    def subject(self) -> str:
        """Where answers come in, to be subscribed to."""
        return f"{self._inbox}.*"

    async def ask(
        self, publish: Callable[[str, bytes, str], None], subject: str, data: bytes, timeout_s: float
    ) -> bytes:
        """Raises `NoResponders`, `RequestTimeout`."""
        token = str(next(self._tokens))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        try:
            publish(subject, data, f"{self._inbox}.{token}")
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise RequestTimeout(f"no answer from {subject} within {timeout_s} s") from None
        finally:
            del self._waiting[token]

    def answered(self, at: str, message: Message) -> None:
        """`message` came in at reply subject `at`.  Late answers are ignored."""
        answer = self._waiting.get(at.rpartition(".")[2])
        if answer is None or answer.done():
            return
        if message.no_responders:
            answer.set_exception(NoResponders(f"nobody listens on {message.subject}"))
        else:
            answer.set_result(message.data)

    def lost(self) -> None:
        """The connection is gone, and with it every answer."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(RequestTimeout("the connection was lost"))
