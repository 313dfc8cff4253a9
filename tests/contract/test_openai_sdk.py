"""The edge before real clients: the OpenAI SDK for what works, a raw WebSocket for what doesn't."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from openai import APIStatusError, AsyncOpenAI, OpenAI
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus

from contract.fake_host import EchoHost, serving
from contract.strict_events import strict_event

pytestmark = pytest.mark.contract

START: dict[str, Any] = {"type": "session.start", "event_id": "s1", "session": {"model": "echo"}}
AUDIO, TEXT = "session.output_audio.delta", "session.output_transcript.delta"
PCM = bytes(range(1, 241)) * 20
APPEND = {"type": "session.input_audio.append", "audio": base64.b64encode(PCM).decode()}


@pytest.fixture(scope="module")
def host() -> EchoHost:
    return EchoHost(poison=b"\x66\x66")


@pytest.fixture(scope="module")
def address(host: EchoHost) -> Iterator[str]:
    with serving(host) as address:
        yield address


@asynccontextmanager
async def raw(address: str, **options: Any) -> AsyncIterator[ClientConnection]:
    url = f"ws://{address}/v1/live/sessions"
    async with connect(url, compression=None, max_size=None, proxy=None, **options) as socket:
        yield socket


async def send(socket: ClientConnection, event: dict[str, Any]) -> None:
    await socket.send(json.dumps(event))


async def receive(socket: ClientConnection) -> dict[str, Any]:
    return strict_event(await asyncio.wait_for(socket.recv(), 10))


async def rest(socket: ClientConnection) -> tuple[list[dict[str, Any]], int]:
    """(events until the server closes, its close code)"""
    events = []
    try:
        while True:
            events.append(await receive(socket))
    except ConnectionClosed:
        return events, socket.close_code or 0


# ---------------------------------------------------------------- what works


def test_the_sdk_holds_a_session(address: str) -> None:
    async def talk() -> list[dict[str, Any]]:
        events = []
        client = AsyncOpenAI(base_url=f"http://{address}/v1", api_key="any", http_client=httpx2.AsyncClient())
        async with client, client.live.connect(extra_query={"what": "ever"}) as live:
            await live.send({"type": "session.start", "event_id": "s1", "session": {"model": "echo"}})
            async for event in live:
                events.append(strict_event(event.to_dict()))
                if event.type == "session.started":
                    await live.send({**APPEND, "event_id": "a1"})
                elif event.type == "session.usage.updated":
                    await live.send({"type": "session.close", "event_id": "c1"})
        return events

    events = asyncio.run(talk())
    started, heard, said, audio, usage, closed = events
    assert [event["type"] for event in events] == [
        "session.started",
        "session.input_transcript.delta",
        "session.output_transcript.delta",
        "session.output_audio.delta",
        "session.usage.updated",
        "session.closed",
    ]
    assert started["session"]["audio"] == {
        "format": {"type": "audio/pcm", "rate": 24000},
        "output": {"voice": "robin"},
    }
    assert base64.b64decode(audio["delta"]) == PCM
    assert "event_id" not in audio
    assert (heard["start_ms"], said["end_ms"]) == (0, 100)
    assert usage["context_window"] == {"usage_ratio": 0.5}
    assert closed["reason"] == "close_requested"
    assert closed["session"] == started["session"]
    assert [event.get("client_event_id") for event in (started, heard, closed)] == ["s1", "a1", "c1"]
    ids = [event["event_id"] for event in events if event is not audio]
    assert len(set(ids)) == len(ids)
    assert all(event_id.startswith("event_") for event_id in ids)


def test_everything_that_a_client_may_ask_for_is_echoed_in_valid_form(address: str) -> None:
    question = {"type": "choice", "instructions": "Which?", "choices": [{"value": True}]}
    session: dict[str, Any] = {
        "model": "echo",
        "instructions": "Be brief.",
        "audio": {"format": {"type": "audio/pcm", "rate": 24000}, "output": {"voice": "marin"}},
        "delegation": {
            "type": "responses",
            "acknowledgement_delay_ms": 400,
            "responses": {
                "model": "gpt-5.6-luna",
                "tools": [
                    {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": None},
                    {"type": "mcp", "server_label": "x", "authorization": "hidden"},
                ],
                "tool_choice": {"type": "function", "name": "look"},
                "reasoning": {"effort": "low"},
            },
        },
        "input": [
            {"role": "developer", "content": [{"type": "input_text", "text": "a"}]},
            {"role": "user", "content": [{"text": "b"}], "id": "m1", "status": "completed"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "c"}], "type": "message"},
        ],
        "store": True,
        "triggers": [
            {
                "type": "decisions",
                "event_type": "session.input_transcript.delta",
                "decisions": {"questions": [question]},
            }
        ],
        "safety_identifier": "user-1",
        "client": {"data_channel": {"allowed_client_events": "all"}},
    }

    async def talk() -> list[dict[str, Any]]:
        async with raw(address) as socket:
            await send(socket, {**START, "session": session})
            await send(socket, {"type": "session.close"})
            return (await rest(socket))[0]

    started, *infos, closed = asyncio.run(talk())
    echoed = started["session"]
    for field in ("instructions", "input", "triggers", "safety_identifier", "client"):
        assert echoed[field] == session[field]
    assert echoed["audio"]["output"]["voice"] == "robin"
    assert echoed["delegation"]["responses"]["tools"][1] == {"type": "mcp", "server_label": "x"}
    assert echoed["store"] is True
    assert {info["code"] for info in infos} == {
        "voice_mapped",
        "unsupported_delegation",
        "unsupported_triggers",
        "unsupported_client",
    }
    assert closed["type"] == "session.closed"


def test_audio_may_come_before_session_started_and_with_an_id(address: str) -> None:
    async def talk() -> tuple[list[dict[str, Any]], int]:
        async with raw(address) as socket:
            await send(socket, START)
            for number in range(50):
                await send(socket, {**APPEND, "event_id": f"a{number}"})
            await send(socket, {"type": "session.close"})
            await send(socket, APPEND)  # under way when the client closed: nobody's mistake
            return await rest(socket)

    events, code = asyncio.run(talk())
    assert code == 1000
    assert sum(event["type"] == "session.output_audio.delta" for event in events) == 50
    assert events[-1]["type"] == "session.closed"


def test_a_client_that_vanishes_leaves_its_session(address: str, host: EchoHost) -> None:
    async def vanish() -> None:
        async with raw(address) as socket:
            await send(socket, START)
            await receive(socket)
            host.left.clear()
            socket.transport.abort()

    asyncio.run(vanish())
    assert host.left.wait(10)
    assert host.sessions[-1].gone == 1


def test_input_is_not_read_while_there_is_no_room() -> None:
    host = EchoHost()

    async def talk(address: str) -> None:
        async with raw(address) as socket:
            await send(socket, START)
            assert (await receive(socket))["type"] == "session.started"
            host.open.clear()
            await send(socket, APPEND)  # may be read: the wait for it had begun
            await send(socket, APPEND)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(collect(socket, 2), 0.2)
            host.open.set()
            await asyncio.wait_for(collect(socket, 1), 10)
            assert bytes(host.sessions[-1].heard) == PCM * 2

    async def collect(socket: ClientConnection, count: int) -> None:
        while count:
            count -= (await receive(socket))["type"] == "session.output_audio.delta"

    with serving(host) as address:
        asyncio.run(talk(address))


# ---------------------------------------------------------------- what doesn't

BAD_FRAMES: list[tuple[str, str | bytes, str, str | None, str | None]] = [
    # name, frame, code, param, client_event_id
    ("empty", "", "invalid_event", None, None),
    ("not json", "hello", "invalid_event", None, None),
    ("half json", '{"type":"session.close"', "invalid_event", None, None),
    ("two values", '{"type":"session.close"}{}', "invalid_event", None, None),
    ("single quotes", "{'type':'session.close'}", "invalid_event", None, None),
    ("nan", '{"type":"session.close","x":NaN}', "invalid_event", None, None),
    ("null", "null", "invalid_event", None, None),
    ("number", "17", "invalid_event", None, None),
    ("string", '"session.close"', "invalid_event", None, None),
    ("array", '[{"type":"session.close"}]', "invalid_event", None, None),
    ("no type", '{"event_id":"e"}', "invalid_event", "type", "e"),
    ("type of null", '{"type":null,"event_id":"e"}', "invalid_event", "type", "e"),
    ("type of object", '{"type":{"type":"session.close"}}', "invalid_event", "type", None),
    ("unknown type", '{"type":"session.jump","event_id":"e"}', "invalid_event", "type", "e"),
    ("long type", json.dumps({"type": "x" * 100_000}), "invalid_event", "type", None),
    ("surrogate type", '{"type":"\\ud800"}', "invalid_event", None, None),
    ("server's type", '{"type":"session.started"}', "invalid_event", "type", None),
    ("binary", b'{"type":"session.close"}', "invalid_event", None, None),
    ("empty binary", b"", "invalid_event", None, None),
    ("deep array", '{"type":"session.close","x":' + "[" * 65 + "]" * 65 + "}", "invalid_event", None, None),
    ("deep object", '{"x":' * 100 + "1" + "}" * 100, "invalid_event", None, None),
    ("very deep", "[" * 100_000, "invalid_event", None, None),
    ("too long", json.dumps({**APPEND, "audio": "A" * (4 << 20)}), "invalid_event", None, None),
    ("event_id of number", '{"type":"session.close","event_id":1}', "invalid_event", "event_id", None),
    ("event_id too long", json.dumps({**APPEND, "event_id": "e" * 513}), "invalid_event", "event_id", None),
    (
        "event_id too long to close",
        json.dumps({"type": "session.close", "event_id": "é" * 513}),
        "invalid_event",
        "event_id",
        None,
    ),
    ("second start", json.dumps(START), "invalid_event", None, "s1"),
    (
        "second start without session",
        '{"type":"session.start"}',
        "missing_required_parameter",
        "session",
        None,
    ),
    ("no audio", '{"type":"session.input_audio.append","event_id":"e"}', "invalid_audio", "audio", "e"),
    ("audio of null", '{"type":"session.input_audio.append","audio":null}', "invalid_audio", "audio", None),
    ("audio of list", '{"type":"session.input_audio.append","audio":[1]}', "invalid_audio", "audio", None),
    ("empty audio", json.dumps({**APPEND, "audio": "", "event_id": "e"}), "invalid_audio", "audio", "e"),
    ("no base64", json.dumps({**APPEND, "audio": "!!!!", "event_id": "e"}), "invalid_audio", "audio", "e"),
    ("unpadded", json.dumps({**APPEND, "audio": "AAA"}), "invalid_audio", "audio", None),
    ("url alphabet", json.dumps({**APPEND, "audio": "-_-_"}), "invalid_audio", "audio", None),
    ("newline in base64", json.dumps({**APPEND, "audio": "AAAA\nAAAA"}), "invalid_audio", "audio", None),
    (
        "data url",
        json.dumps({**APPEND, "audio": "data:audio/pcm;base64,AAAA"}),
        "invalid_audio",
        "audio",
        None,
    ),
    ("odd bytes", json.dumps({**APPEND, "audio": "AAAA", "event_id": "e"}), "invalid_audio", "audio", "e"),
    ("one byte", json.dumps({**APPEND, "audio": "AA=="}), "invalid_audio", "audio", None),
    *[
        (name, json.dumps({"type": name, "event_id": "e"}), "unsupported_event", "type", "e")
        for name in (
            "session.instructions.append",
            "session.thinking.append",
            "session.commentary.append",
            "session.output_audio.fixture.play",
            "response.item.create",
            "response.create",
            "decision.create",
            "decision.item.create",
            "decision.item.delete",
            "transport.dtmf.send",
        )
    ],
]


def test_every_bad_frame_is_answered_and_the_session_lives_on(address: str) -> None:
    async def talk() -> None:
        async with raw(address) as socket:
            await send(socket, START)
            assert (await receive(socket))["type"] == "session.started"
            for name, frame, code, param, event_id in BAD_FRAMES:
                await socket.send(frame)
                answer = await receive(socket)
                assert answer["type"] == "error", name
                error = answer["error"]
                assert (error["code"], error.get("param")) == (code, param), name
                assert error["type"] == "invalid_request_error"
                assert (error.get("client_event_id"), answer.get("client_event_id")) == (
                    event_id,
                    event_id,
                ), name
                assert len(error["message"]) < 300, name
            await send(socket, {**APPEND, "event_id": "alive"})
            assert (await receive(socket))["client_event_id"] == "alive"

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        (None, "missing_required_parameter", "session"),
        ({}, "missing_required_parameter", "session.model"),
        ({"model": "gpt-realtime-2"}, "model_not_found", "session.model"),
        ({"model": "echo", "voice": "marin"}, "unknown_parameter", "session.voice"),
        (
            {"model": "echo", "audio": {"output": {"voice": "boomer"}}},
            "invalid_value",
            "session.audio.output.voice",
        ),
        (
            {"model": "echo", "audio": {"format": {"type": "audio/pcmu", "rate": 24000}}},
            "invalid_value",
            "session.audio.format.rate",
        ),
        ([], "invalid_value", "session"),
    ],
)
def test_a_refused_start_closes_with_the_error_first(
    address: str, session: Any, code: str, param: str
) -> None:
    start = {"type": "session.start", "event_id": "s1", "session": session}
    if session is None:
        del start["session"]

    async def talk() -> tuple[list[dict[str, Any]], int]:
        async with raw(address) as socket:
            await send(socket, start)
            await send(socket, APPEND)  # ignored by now
            return await rest(socket)

    [answer], close = asyncio.run(talk())
    assert close == 1008
    assert (answer["error"]["code"], answer["error"]["param"]) == (code, param)
    assert answer["client_event_id"] == "s1"


def test_commands_before_the_start_are_answered_and_it_may_still_come(address: str) -> None:
    async def talk() -> list[str]:
        async with raw(address) as socket:
            await send(socket, {**APPEND, "event_id": "a"})
            await send(socket, {"type": "session.close", "event_id": "c"})
            await send(socket, {"type": "session.update"})
            await send(socket, START)
            return [(await receive(socket)).get("error", {}).get("code", "none") for _ in range(4)]

    assert asyncio.run(talk()) == ["invalid_event", "invalid_event", "missing_required_parameter", "none"]


def test_without_a_start_the_socket_closes(host: EchoHost) -> None:
    async def talk(address: str) -> tuple[list[dict[str, Any]], int]:
        async with raw(address) as socket:
            return await rest(socket)

    with serving(host, start_timeout_s=0.05) as address:
        [answer], close = asyncio.run(talk(address))
    assert (answer["error"]["code"], close) == ("start_timeout", 1008)


def test_a_draining_pod_says_so_to_the_sdk() -> None:
    async def talk(address: str) -> list[str]:
        codes = []
        client = AsyncOpenAI(base_url=f"http://{address}/v1", api_key="any", http_client=httpx2.AsyncClient())
        async with client, client.live.connect() as live:
            codes.append(strict_event((await live.recv()).to_dict())["error"]["code"])
            with pytest.raises(ConnectionClosedError, match="1013"):
                await live.recv()
        return codes

    with serving(EchoHost(draining=True)) as address:
        assert asyncio.run(talk(address)) == ["server_draining"]


def test_a_bug_ends_its_session_and_no_other(
    address: str, host: EchoHost, capsys: pytest.CaptureFixture[str]
) -> None:
    async def talk() -> None:
        async with raw(address) as other, raw(address) as socket:
            for each in (other, socket):
                await send(each, START)
                assert (await receive(each))["type"] == "session.started"
            await send(socket, {**APPEND, "audio": base64.b64encode(host.poison).decode()})
            [answer, closed], close = await rest(socket)
            assert answer["error"]["code"] == "internal_error"
            assert (closed["type"], closed["reason"], close) == ("session.closed", "connection_lost", 1000)
            await send(other, {"type": "session.close"})
            assert (await rest(other))[1] == 1000

    asyncio.run(talk())
    logged = capsys.readouterr().out
    assert "LookupError" in logged
    assert "secret words" not in logged


def test_a_reader_that_stops_loses_its_oldest_audio_and_learns_how_much() -> None:
    seconds = 60
    host = EchoHost(enough=seconds * 48_000)
    second = base64.b64encode(b"\x01\x00" * 24_000).decode()

    async def talk(address: str) -> None:
        async with raw(address, max_queue=1) as socket:
            await send(socket, START)
            assert (await receive(socket))["type"] == "session.started"
            for _ in range(seconds):
                await send(socket, {**APPEND, "audio": second})
            assert await asyncio.to_thread(host.heard.wait, 10)
            await send(socket, {"type": "session.close"})
            events, close = await rest(socket)
        audio = [base64.b64decode(event["delta"]) for event in events if event["type"] == AUDIO]
        notices = [event["error"] for event in events if event["type"] == "error"]
        assert {notice["code"] for notice in notices} == {"output_backlog"}
        dropped_ms = [int(notice["message"].split(" ms ")[0].split()[-1]) for notice in notices]
        assert sum(dropped_ms) + sum(map(len, audio)) // 48 == seconds * 1000
        assert sum(event["type"] == TEXT for event in events) == seconds
        assert (events[-1]["type"], close) == ("session.closed", 1000)

    with serving(host, output_backlog_s=2.0) as address:
        asyncio.run(talk(address))


# ---------------------------------------------------------------- keys and origins

GOOD = {"Authorization": "Bearer key-two"}


@pytest.fixture(scope="module")
def guarded(host: EchoHost) -> Iterator[str]:
    with serving(host, keys=("key-one", "key-two")) as address:
        yield address


async def opens(address: str, **options: Any) -> str | int | None:
    """The subprotocol of a connection that opens, or the status of the one that doesn't."""
    try:
        async with raw(address, **options) as socket:
            return socket.subprotocol
    except InvalidStatus as refused:
        return refused.response.status_code


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"additional_headers": GOOD}, None),
        ({"additional_headers": {"Authorization": "bearer  key-one"}}, None),
        ({"additional_headers": {"Authorization": "Bearer key-three"}}, 401),
        ({"additional_headers": {"Authorization": "Bearer key-on"}}, 401),
        ({"additional_headers": {"Authorization": "Bearer "}}, 401),
        ({"additional_headers": {"Authorization": "Basic key-one"}}, 401),
        ({}, 401),
        ({"subprotocols": ["openai-live", "openai-insecure-api-key.key-one"]}, "openai-live"),
        ({"subprotocols": ["openai-insecure-api-key.key-one", "openai-live"]}, "openai-live"),
        ({"subprotocols": ["openai-live", "openai-insecure-api-key.wrong"]}, 401),
        ({"subprotocols": ["openai-live"]}, 401),
        ({"additional_headers": GOOD, "origin": "https://elsewhere.example"}, None),
    ],
)
def test_keys(guarded: str, options: dict[str, Any], expected: str | int | None) -> None:
    assert asyncio.run(opens(guarded, **options)) == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (None, None),
        ("http://{address}", None),
        ("http://127.0.0.1:1", 403),
        ("http://localhost:{port}", 403),
        ("https://elsewhere.example", 403),
        ("null", 403),
    ],
)
def test_an_open_server_turns_foreign_pages_away(
    address: str, page: str | None, expected: int | None
) -> None:
    port = address.rpartition(":")[2]
    origin = page and page.format(address=address, port=port)
    assert asyncio.run(opens(address, origin=origin)) == expected
    answer = get(address, "/v1/models", **({} if origin is None else {"Origin": origin}))
    assert answer.status_code == (expected or 200)


def test_an_open_server_is_not_reached_by_a_name_that_was_turned_here(address: str, guarded: str) -> None:
    """DNS rebinding: the page's own name means 127.0.0.1 by now."""
    for server, expected in ((address, 403), (guarded, None)):
        host, _, port = server.partition(":")
        named = f"rebound.example:{port}"
        there = {"host": host, "port": int(port), "additional_headers": GOOD}
        assert asyncio.run(opens(named, origin=f"http://{named}", **there)) == expected
        answer = get(server, "/v1/models", Host=named, **GOOD)
        assert answer.status_code == (expected or 200)


# ---------------------------------------------------------------- HTTP


def get(address: str, path: str, method: str = "GET", **headers: str) -> httpx2.Response:
    return httpx2.request(method, f"http://{address}{path}", headers=headers, trust_env=False)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/live/sessions", 501, "not_implemented"),
        ("GET", "/v1/live/sessions", 426, "upgrade_required"),
        ("GET", "/v1/live/sessions/live_1/content", 404, "not_found"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/nothing", 404, "not_found"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/models/none", 404, "model_not_found"),
    ],
)
def test_http_refusals_have_openais_shape(
    address: str, method: str, path: str, status: int, code: str
) -> None:
    answer = get(address, path, method)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code


def test_unknown_sockets_are_not_found(address: str, caplog: pytest.LogCaptureFixture) -> None:
    async def status(path: str) -> tuple[int, str]:
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://{address}{path}", proxy=None)
        body = json.loads(refused.value.response.body)
        return refused.value.response.status_code, body["error"]["code"]

    attach = "/v1/live/sessions/live_1%2Fx/attach?graceful_close=true"
    assert asyncio.run(status(attach)) == (404, "session_id_not_found")
    assert asyncio.run(status("/v1/realtime")) == (404, "not_found")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_sdk_lists_models(guarded: str) -> None:
    with OpenAI(
        base_url=f"http://{guarded}/v1", api_key="key-one", http_client=httpx2.Client(trust_env=False)
    ) as client:
        listed = client.models.list().data
        assert [model.id for model in listed] == ["echo", "mute"]
        assert listed[0].to_dict()["duologue"] == {
            "description": "Says what it hears",
            "ready": True,
            "voices": ["robin", "wren"],
            "unit_s": 0.08,
            "unsupported": [],
            "input_rate": 24_000,
            "output_rate": 24_000,
        }
        assert client.models.retrieve("mute").object == "model"
        with pytest.raises(APIStatusError) as refused:
            client.with_options(api_key="wrong", max_retries=0).models.list()
        assert (refused.value.status_code, refused.value.code) == (401, "invalid_api_key")


def test_health_needs_no_key(guarded: str, host: EchoHost) -> None:
    assert get(guarded, "/healthz").status_code == 200
    assert get(guarded, "/readyz").status_code == 200
    host.not_ready = "no worker for codec"
    answer = get(guarded, "/readyz")
    host.not_ready = ""
    assert (answer.status_code, answer.json()["reason"]) == (503, "no worker for codec")
    metrics = get(guarded, "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "duo_live_errors_total{" in metrics.text
