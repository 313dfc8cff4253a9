"""Our Live client against servers that do each thing a server may do."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
from websockets.asyncio.server import Request, Response, ServerConnection, serve

from duologue.audio.formats import PCM_16K
from duologue.client import (
    AudioDelta,
    BadServer,
    BadUrl,
    Closed,
    ConnectionLost,
    Info,
    LiveClient,
    SessionRefused,
    Unreachable,
    models,
)

pytestmark = pytest.mark.contract

STARTED = {
    "type": "session.started",
    "session": {"id": "live_1", "model": "m", "expires_at": 1, "status": "active"},
}
CLOSED = {"type": "session.closed", "reason": "close_requested", "usage": {"seconds": 1.5}, "session": {}}
REFUSAL = {"type": "error", "error": {"type": "t", "code": "session_limit_reached", "message": "full"}}
Script = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def server(
    script: Script, answer: Callable[[Request], Response | None] | None = None
) -> AsyncIterator[str]:
    def process(_: ServerConnection, request: Request) -> Response | None:
        return answer(request) if answer is not None else None

    async with serve(script, "127.0.0.1", 0, process_request=process) as running:
        port = running.sockets[0].getsockname()[1]
        yield f"ws://127.0.0.1:{port}"


async def send(socket: ServerConnection, *events: dict[str, Any]) -> None:
    for event in events:
        await socket.send(json.dumps(event))


def test_a_session_from_start_to_end() -> None:
    received: list[dict[str, Any]] = []

    async def script(socket: ServerConnection) -> None:
        assert socket.request is not None
        assert socket.request.path == "/v1/live/sessions"
        assert socket.request.headers["Authorization"] == "Bearer key"
        received.append(json.loads(await socket.recv()))
        await send(socket, {"type": "info", "code": "c", "message": "m"}, STARTED)
        async for frame in socket:
            assert isinstance(frame, str)
            received.append(json.loads(frame))
            if received[-1]["type"] == "session.close":
                await send(socket, CLOSED)
                return
            await send(socket, {"type": "session.output_audio.delta", "delta": received[-1]["audio"]})

    async def scenario() -> None:
        async with (
            server(script) as url,
            LiveClient.connect(
                url,
                model="m",
                api_key="key",
                instructions="i",
                voice="v",
                form=PCM_16K,
                session={"store": True},
            ) as client,
        ):
            assert (client.session_id, client.model, client.format) == ("live_1", "m", PCM_16K)
            assert [type(notice) for notice in client.notices] == [Info]
            await client.append(b"\1\2\3\4")
            event = await anext(client)
            assert isinstance(event, AudioDelta)
            assert event.audio == b"\1\2\3\4"
            closed = await client.close()
            assert (closed.reason, closed.seconds) == ("close_requested", 1.5)
            assert client.close_code == 1000
            assert await client.close() is closed, "closing again is harmless"
            assert [event async for event in client] == []

    asyncio.run(scenario())
    assert received == [
        {
            "type": "session.start",
            "session": {
                "model": "m",
                "audio": {"format": {"type": "audio/pcm", "rate": 16000}, "output": {"voice": "v"}},
                "instructions": "i",
                "store": True,
            },
        },
        {"type": "session.input_audio.append", "audio": base64.b64encode(b"\1\2\3\4").decode()},
        {"type": "session.close"},
    ]


def test_leaving_ends_the_session_and_finish_leaves_the_rest_to_be_read() -> None:
    closes = 0

    async def script(socket: ServerConnection) -> None:
        nonlocal closes
        await socket.recv()
        await send(socket, STARTED)
        async for _ in socket:
            closes += 1
            await send(socket, {"type": "session.output_audio.delta", "delta": "AAA="}, CLOSED)
            return

    async def scenario() -> None:
        async with server(script) as url:
            async with LiveClient.connect(url, model="m") as client:
                pass
            assert client.closed is not None
            async with LiveClient.connect(url, model="m") as client:
                await client.finish()
                await client.finish()
                assert [type(event) for event in [event async for event in client]] == [AudioDelta, Closed]

    asyncio.run(scenario())
    assert closes == 2


@pytest.mark.parametrize("close_code", [1013, 1008])
def test_a_refusal(close_code: int) -> None:
    async def script(socket: ServerConnection) -> None:
        await socket.recv()
        await send(socket, REFUSAL)
        await socket.close(close_code)

    async def scenario() -> None:
        async with server(script) as url, LiveClient.connect(url, model="m"):
            raise AssertionError("started")

    with pytest.raises(SessionRefused) as caught:
        asyncio.run(scenario())
    assert (caught.value.code, caught.value.message) == ("session_limit_reached", "full")
    assert (caught.value.close_code, caught.value.status) == (close_code, None)


def test_a_server_that_does_not_start() -> None:
    async def leaves(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.close(1011)

    async def waits(socket: ServerConnection) -> None:
        async for _ in socket:
            pass

    async def refuses_and_waits(socket: ServerConnection) -> None:
        await send(socket, REFUSAL)
        await waits(socket)

    async def connect(script: Script, timeout_s: float) -> None:
        async with server(script) as url, LiveClient.connect(url, model="m", timeout_s=timeout_s):
            raise AssertionError("started")

    for script, timeout_s, code, close_code in (
        (leaves, 30, "connection_lost", 1011),
        (waits, 0.3, "timeout", None),
        (refuses_and_waits, 0.3, "session_limit_reached", None),
    ):
        with pytest.raises(SessionRefused) as caught:
            asyncio.run(connect(script, timeout_s))
        assert (caught.value.code, caught.value.close_code) == (code, close_code)


def test_a_server_that_breaks_the_protocol() -> None:
    async def nonsense(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send("nonsense")
        await socket.wait_closed()

    async def no_id(socket: ServerConnection) -> None:
        await socket.recv()
        await send(socket, {"type": "session.started", "session": {}})
        await socket.wait_closed()

    async def later(socket: ServerConnection) -> None:
        await socket.recv()
        await send(socket, STARTED)
        await socket.send("[]")
        await socket.wait_closed()

    async def connect(script: Script) -> None:
        async with server(script) as url, LiveClient.connect(url, model="m") as client:
            await anext(client)

    for script in (nonsense, no_id, later):
        with pytest.raises(BadServer):
            asyncio.run(connect(script))


def test_a_connection_that_is_lost() -> None:
    async def script(socket: ServerConnection) -> None:
        await socket.recv()
        await send(socket, STARTED)
        await socket.close(1012, "going")

    async def scenario(act: Callable[[LiveClient], Awaitable[object]]) -> None:
        async with server(script) as url, LiveClient.connect(url, model="m") as client:
            await act(client)

    async def appends(client: LiveClient) -> None:
        for _ in range(100_000):
            await client.append(b"\0\0")

    for act in (LiveClient.__anext__, LiveClient.close, appends):
        with pytest.raises(ConnectionLost, match="close code 1012, going") as caught:
            asyncio.run(scenario(act))
        assert caught.value.close_code == 1012


def test_a_server_that_does_not_close() -> None:
    async def script(socket: ServerConnection) -> None:
        async for _ in socket:
            await send(socket, STARTED)

    async def scenario() -> None:
        async with server(script) as url, LiveClient.connect(url, model="m") as client:
            with pytest.raises(TimeoutError):
                await client.close(timeout_s=0.2)
            raise Unreachable("test", "done")

    with pytest.raises(Unreachable, match="done"):
        asyncio.run(scenario())


async def nothing(socket: ServerConnection) -> None:
    raise AssertionError("upgraded")


def test_http_refusals_and_the_list_of_models() -> None:
    def answer(request: Request) -> Response | None:
        body: dict[str, Any] = {"error": {"code": "invalid_api_key", "message": "no"}}
        status = HTTPStatus.UNAUTHORIZED
        if request.path == "/v1/models" and request.headers.get("Authorization") == "Bearer key":
            status, body = HTTPStatus.OK, {"data": [{"id": "parrot", "duologue": {"unit_s": 0.08}}]}
        from websockets.datastructures import Headers

        data = json.dumps(body).encode()
        return Response(status.value, status.phrase, Headers({"Content-Length": str(len(data))}), data)

    async def scenario() -> None:
        async with server(nothing, answer) as url:
            with pytest.raises(SessionRefused) as caught:
                async with LiveClient.connect(url, model="m"):
                    pass
            assert (caught.value.code, caught.value.status) == ("invalid_api_key", 401)
            with pytest.raises(SessionRefused):
                await asyncio.to_thread(models, url)
            [model] = await asyncio.to_thread(lambda: models(url, api_key="key"))
            assert (model.id, model.unit_s) == ("parrot", 0.08)

    asyncio.run(scenario())


def test_nobody_there() -> None:
    async def closed_port() -> int:
        listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with listener:
            port: int = listener.sockets[0].getsockname()[1]
        return port

    async def no_websocket(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"220 mail\r\n\r\n")
        writer.close()

    async def connect(url: str) -> None:
        async with LiveClient.connect(url, model="m"):
            pass

    async def scenario() -> None:
        port = await closed_port()
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
            await connect(f"ws://127.0.0.1:{port}")
        with pytest.raises(Unreachable):
            await asyncio.to_thread(models, f"http://127.0.0.1:{port}")
        listener = await asyncio.start_server(no_websocket, "127.0.0.1", 0)
        async with listener:
            url = f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            with pytest.raises(Unreachable):
                await connect(url)
            with pytest.raises(Unreachable):
                await asyncio.to_thread(models, url)
        with pytest.raises(BadUrl):
            await connect("nowhere")

    asyncio.run(scenario())
