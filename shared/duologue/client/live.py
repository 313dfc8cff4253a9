"""One Live session from the client's side, on `websockets`."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import orjson
import pybase64
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from duologue.audio.formats import PCM_24K, Format
from duologue.client.address import Address, BadUrl
from duologue.client.events import BadEvent, Closed, ErrorEvent, Event, decode

MAX_FRAME_BYTES = 4 << 20
"""Server events are far below 1 MiB; this is what LiveKit's transport takes."""
QUEUE_FRAMES = 16
"""Taken from the kernel and not yet iterated; that of `websockets`."""


class Unreachable(ConnectionError):
    """Nothing that speaks the protocol answers at the address."""

    def __init__(self, url: str, why: object) -> None:
        super().__init__(f"can't connect to {url}: {str(why) or type(why).__name__}")


class BadServer(Exception):
    """The server broke the protocol."""


class ConnectionLost(ConnectionError):
    """The socket closed without `session.closed`."""

    def __init__(self, close_code: int | None, reason: str) -> None:
        super().__init__(
            f"the connection was lost (close code {close_code}{f', {reason}' if reason else ''})"
        )
        self.close_code = close_code
        self.reason = reason


class SessionRefused(Exception):
    """The server did not start the session.  `close_code` is the WebSocket's; where the upgrade itself, or an HTTP
    request, was refused it is `None` and `status` has the HTTP status."""

    def __init__(
        self, code: str, message: str, close_code: int | None = None, status: int | None = None
    ) -> None:
        super().__init__(f"{message or 'the server refused the session'} ({code})")
        self.code = code
        self.message = message
        self.close_code = close_code
        self.status = status

    @classmethod
    def of_http(cls, status: int, body: bytes | bytearray) -> Self:
        """From an HTTP answer, whose JSON body (if it is that) has an `error` as the socket's event."""
        try:
            error = orjson.loads(body)["error"]
            code, message = str(error["code"]), str(error["message"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            code, message = f"http_{status}", f"the server answered HTTP {status}"
        return cls(code, message, None, status)


class LiveClient:
    """A started session: `append` audio, iterate over the events that come, `close`.

    Only one task may iterate.  Nothing is buffered here beyond the socket's own bounds: who does not iterate
    makes the server wait.  Appending and iterating raise `ConnectionLost`.
    """

    def __init__(
        self, socket: ClientConnection, started: Event, form: Format, notices: tuple[Event, ...]
    ) -> None:
        self._socket = socket
        self._finishing = False
        self.started = started
        self.format = form
        """Of the audio in both directions."""
        self.notices = notices
        """Events that came before `session.started`."""
        self.closed: Closed | None = None

    @property
    def session(self) -> Mapping[str, Any]:
        """The session resource as the server resolved it."""
        found: Mapping[str, Any] = self.started.fields["session"]
        return found

    @property
    def session_id(self) -> str:
        return str(self.session["id"])

    @property
    def model(self) -> str:
        return str(self.session.get("model", ""))

    @property
    def close_code(self) -> int | None:
        """The WebSocket's close code, once it is closed."""
        return self._socket.close_code

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        instructions: str | None = None,
        form: Format = PCM_24K,
        voice: str | None = None,
        session: Mapping[str, Any] | None = None,
        timeout_s: float = 30,
        receive_bytes: int | None = None,
    ) -> AsyncIterator[Self]:
        """Starts a session with audio in `form`; `session` has further fields of the session config, which win over
        the others.  The kernel keeps at most some `receive_bytes` that were not read.  Ends it at exit.  Raises `BadUrl`,
        `Unreachable`, `SessionRefused`."""
        address = Address.of(url)
        config: dict[str, Any] = {
            "model": model,
            "audio": {"format": {"type": form.type, "rate": form.rate}},
        }
        if instructions is not None:
            config["instructions"] = instructions
        if voice is not None:
            config["audio"]["output"] = {"voice": voice}
        config.update(session or {})
        opened = await _open(address, api_key, timeout_s, receive_bytes)
        try:
            started, notices = await _start(opened, config, timeout_s)
            client = cls(opened, started, form, notices)
            yield client
            if client.closed is None:
                await client.close()
        finally:
            await _shut(opened)

    async def send(self, event: Mapping[str, Any]) -> None:
        """Sends any client event."""
        try:
            await self._socket.send(orjson.dumps(event), text=True)
        except ConnectionClosed as error:
            raise _lost(error) from None

    async def append(self, audio: bytes) -> None:
        """Sends audio in the session's format as one append."""
        coded = pybase64.b64encode_as_string(audio)
        await self.send({"type": "session.input_audio.append", "audio": coded})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self.closed is not None:
            raise StopAsyncIteration
        try:
            event = decode(await self._socket.recv())
        except ConnectionClosed as error:
            raise _lost(error) from None
        except BadEvent as error:
            raise BadServer(str(error)) from None
        if isinstance(event, Closed):
            self.closed = event
        return event

    async def finish(self) -> None:
        """Asks for the end of the session; the iteration goes on until `session.closed`."""
        if not self._finishing:
            self._finishing = True
            await self.send({"type": "session.close"})

    async def close(self, timeout_s: float = 15) -> Closed:
        """Ends the session, for whoever iterates no more: events until `session.closed` are dropped.  Raises
        `TimeoutError`, `ConnectionLost`."""
        async with asyncio.timeout(timeout_s):
            if self.closed is None:
                await self.finish()
            async for _ in self:
                pass
            # The server closes the socket, so that its close code can be seen.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2):
                    await self._socket.wait_closed()
        assert self.closed is not None
        return self.closed


async def _open(
    address: Address, api_key: str | None, timeout_s: float, receive_bytes: int | None
) -> ClientConnection:
    try:
        opened = await connect(
            address.live,
            additional_headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
            user_agent_header="duologue",
            compression=None,
            max_size=MAX_FRAME_BYTES,
            max_queue=QUEUE_FRAMES if receive_bytes is None else 1,
            open_timeout=timeout_s,
            # A proxy of the environment does not reach this machine's loopback.
            proxy=None if address.loopback else True,
        )
    except InvalidStatus as error:
        raise SessionRefused.of_http(error.response.status_code, error.response.body) from None
    except InvalidURI as error:
        raise BadUrl(str(error)) from None
    except (OSError, InvalidHandshake, EOFError) as error:
        raise Unreachable(address.live, error) from None
    if receive_bytes is not None:
        plain = opened.transport.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    return opened


async def _start(
    socket: ClientConnection, config: Mapping[str, Any], timeout_s: float
) -> tuple[Event, tuple[Event, ...]]:
    """`session.started` and what came before it.  After a refusal the server closes the socket; its close code
    tells whether trying again makes sense."""
    notices: list[Event] = []
    refusal: ErrorEvent | None = None
    try:
        async with asyncio.timeout(timeout_s):
            await socket.send(orjson.dumps({"type": "session.start", "session": config}), text=True)
            while True:
                event = decode(await socket.recv())
                if isinstance(event, ErrorEvent):
                    refusal = refusal or event
                elif event.type == "session.started":
                    if (
                        not isinstance(event.fields.get("session"), dict)
                        or "id" not in event.fields["session"]
                    ):
                        raise BadServer("session.started has no session id")
                    return event, tuple(notices)
                else:
                    notices.append(event)
    except (ConnectionClosed, TimeoutError) as end:
        close_code = end.rcvd.code if isinstance(end, ConnectionClosed) and end.rcvd else None
        if refusal is not None:
            raise SessionRefused(refusal.code, refusal.message, close_code) from None
        if isinstance(end, TimeoutError):
            raise SessionRefused("timeout", f"no session.started within {timeout_s:g} s") from None
        raise SessionRefused("connection_lost", "the server closed the connection", close_code) from None
    except BadEvent as error:
        raise BadServer(str(error)) from None


async def _shut(socket: ClientConnection) -> None:
    # The close handshake waits for the server up to `close_timeout`; leaving is not worth more than this.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            await socket.close()
    socket.transport.abort()


def _lost(error: ConnectionClosed) -> ConnectionLost:
    return ConnectionLost(error.rcvd.code if error.rcvd else None, error.rcvd.reason if error.rcvd else "")
