"""One client's socket where no real client goes: stuck writes, bugs, and the whole table of steps."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import Message
from starlette.websockets import WebSocket

from contract.fake_host import EchoHost
from duologue.audio.formats import FORMATS, Format
from duologue_api.live import commands, events
from duologue_api.live.refused import Refused
from duologue_api.live.settings import EdgeSettings
from duologue_api.live.socket import STEPS, State, serve
from duologue_api.port import Client, Crowded, Draining

pytestmark = pytest.mark.unit

START = {"type": "session.start", "session": {"model": "echo"}}
APPEND = {"type": "session.input_audio.append", "audio": "AAA="}
CLOSE = {"type": "session.close"}
MUTE = {"type": "session.input_audio.mute"}
UPDATE = {"type": "session.update", "session": {"triggers": []}}
FRAMES = {
    commands.Start: START,
    commands.Append: APPEND,
    commands.Mute: MUTE,
    commands.Update: UPDATE,
    commands.Close: CLOSE,
}
WAY: dict[State, list[dict[str, Any]]] = {
    State.WAITING: [],
    State.STARTED: [START],
    State.CLOSING: [START, CLOSE],
}


class Peer:
    """The transport of one client: what it sends is put in, what it got is read off."""

    def __init__(self, *frames: Any) -> None:
        self.inbox: asyncio.Queue[Message] = asyncio.Queue(100)
        self.got: list[Message] = []
        self.news: asyncio.Queue[dict[str, Any]] = asyncio.Queue(1000)
        self.writable = asyncio.Event()
        self.writable.set()
        self.put({"type": "websocket.connect"})
        for frame in frames:
            self.say(frame)

    def put(self, message: Message) -> None:
        self.inbox.put_nowait(message)

    def say(self, frame: Any) -> None:
        self.put({"type": "websocket.receive", "text": json.dumps(frame)})

    def hang_up(self) -> None:
        self.put({"type": "websocket.disconnect", "code": 1006})

    async def send(self, message: Message) -> None:
        await self.writable.wait()
        self.got.append(message)
        if message["type"] == "websocket.send":
            self.news.put_nowait(json.loads(message["text"]))

    async def serve(self, host: EchoHost, **settings: float) -> None:
        scope = {"type": "websocket", "path": "/", "headers": [], "subprotocols": []}
        websocket = WebSocket(scope, self.inbox.get, self.send)
        now = iter(range(1_000_000))
        await serve(websocket, host, EdgeSettings(**settings), lambda: float(next(now)))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(message["text"]) for message in self.got if message["type"] == "websocket.send"]

    @property
    def close(self) -> tuple[int, str] | None:
        last = self.got[-1]
        return (last["code"], last["reason"]) if last["type"] == "websocket.close" else None


class DeafHost(EchoHost):
    """Whose sessions hear and answer nothing, so that a state can be looked at."""

    def connect(self, client: Client) -> Any:
        session = super().connect(client)
        session.calls = []
        session.start = lambda config, event_id: session.calls.append(commands.Start)
        session.append = lambda audio, event_id: session.calls.append(commands.Append)
        session.mute = lambda on, event_id: session.calls.append(commands.Mute)
        session.update = lambda config, event_id: session.calls.append(commands.Update)
        session.request_close = lambda event_id: session.calls.append(commands.Close)
        return session


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 20)

    asyncio.run(limited())


def test_the_table_knows_every_command_in_every_state() -> None:
    assert set(STEPS) == set(State)
    for steps in STEPS.values():
        assert set(steps) == set(FRAMES)


@pytest.mark.parametrize("command", FRAMES)
@pytest.mark.parametrize("state", State)
def test_each_step_is_what_the_table_says(state: State, command: type[commands.Command]) -> None:
    async def test() -> None:
        host = DeafHost()
        peer = Peer(*WAY[state], {**FRAMES[command], "event_id": "this"})
        peer.hang_up()
        await peer.serve(host)
        step = STEPS[state][command]
        session: Any = host.sessions[0]
        way = [next(kind for kind in FRAMES if FRAMES[kind] is frame) for frame in WAY[state]]
        assert session.calls == way + [command] * (step.to is not None)
        assert session.gone == 1

    run(test)


@pytest.mark.parametrize("command", FRAMES)
@pytest.mark.parametrize("state", State)
def test_a_step_out_of_place_is_answered(state: State, command: type[commands.Command]) -> None:
    step = STEPS[state][command]

    async def test() -> None:
        peer = Peer(*WAY[state], {**FRAMES[command], "event_id": "this"}, {"type": "mark"})
        serving = asyncio.create_task(peer.serve(DeafHost()))
        while "mark" not in (await peer.news.get())["error"]["message"]:
            pass
        peer.hang_up()
        await serving
        answers = [event for event in peer.events if event.get("client_event_id") == "this"]
        assert [answer["error"]["code"] for answer in answers] == ["invalid_event"] * bool(step.why)

    run(test)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_whole_samples_are_those_of_the_sessions_format(form: Format) -> None:
    audio = {"format": {"type": form.type, "rate": form.rate}}
    start = {"type": "session.start", "session": {"model": "echo", "audio": audio}}
    odd = {"type": "session.input_audio.append", "audio": "AAAA", "event_id": "odd"}

    async def test() -> None:
        host = EchoHost()
        peer = Peer(start, odd, APPEND, CLOSE)
        await peer.serve(host)
        errors = [event["error"]["code"] for event in peer.events if event["type"] == "error"]
        assert errors == ["invalid_audio"] * (form.sample_bytes == 2)
        assert len(host.sessions[0].heard) == 2 + 3 * (form.sample_bytes == 1)
        assert peer.close == (1000, "close_requested")

    run(test)


def test_what_is_dropped_is_told_in_time_of_the_sessions_format() -> None:
    audio = {"format": {"type": "audio/pcmu", "rate": 8000}}

    async def test() -> None:
        host = EchoHost()
        peer = Peer({"type": "session.start", "session": {"model": "echo", "audio": audio}})
        serving = asyncio.create_task(peer.serve(host, output_backlog_s=1.0))
        await peer.news.get()
        peer.writable.clear()
        client = host.sessions[0].client
        client.send(events.OutputAudioDelta(delta=bytes(80)))
        await asyncio.sleep(0)  # the writer has it, and waits
        for _ in range(10):
            client.send(events.OutputAudioDelta(delta=bytes(1600)))
        client.end(1000, "over")
        peer.writable.set()
        await serving
        [error] = [event["error"] for event in peer.events if event["type"] == "error"]
        assert " 1000 ms " in error["message"]

    run(test)


def test_updates_add_up_and_a_bad_one_changes_nothing() -> None:
    delegation = {"type": "responses", "responses": {"model": "m"}}
    start = {"type": "session.start", "session": {"model": "echo", "delegation": delegation}}

    def updating(event_id: str, **session: Any) -> dict[str, Any]:
        return {"type": "session.update", "event_id": event_id, "session": session}

    async def test() -> None:
        peer = Peer(
            start,
            updating("a", delegation={"responses": {"instructions": "i"}}),
            updating("b", delegation={"responses": {"tools": []}}, voice="marin"),
            updating("c", model="mute"),
            updating("d", delegation={"responses": {"model": "n"}}),
            CLOSE,
        )
        await peer.serve(EchoHost())
        answers = [event for event in peer.events if event.get("client_event_id")]
        assert [(event["type"], event["client_event_id"]) for event in answers] == [
            ("session.updated", "a"),
            ("error", "b"),
            ("error", "c"),
            ("session.updated", "d"),
        ]
        assert [event["error"]["param"] for event in answers[1:3]] == ["session.voice", "session.model"]
        assert answers[-1]["session"]["delegation"]["responses"] == {"model": "n", "instructions": "i"}

    run(test)


def test_what_a_session_refuses_is_answered() -> None:
    class Reluctant(EchoHost):
        def connect(self, client: Client) -> Any:
            session = super().connect(client)

            def refuse(_: Any, event_id: str | None) -> None:
                raise Refused("invalid_event", "Not now.", event_id=event_id)

            session.mute = session.update = refuse  # type: ignore[method-assign]
            return session

    async def test() -> None:
        peer = Peer(START, {**MUTE, "event_id": "m"}, {**UPDATE, "event_id": "u"}, CLOSE)
        await peer.serve(Reluctant())
        errors = [event for event in peer.events if event["type"] == "error"]
        assert [(event["error"]["code"], event["client_event_id"]) for event in errors] == [
            ("invalid_event", "m"),
            ("invalid_event", "u"),
        ]
        assert peer.close == (1000, "close_requested")

    run(test)


def test_a_client_that_takes_nothing_is_given_up_and_its_session_told() -> None:
    async def test() -> None:
        host = EchoHost()
        peer = Peer(START)
        serving = asyncio.create_task(peer.serve(host, close_timeout_s=0.01, output_backlog_s=0.001))
        await peer.news.get()
        peer.writable.clear()
        for _ in range(60):
            host.sessions[0].client.send(events.OutputAudioDelta(delta=b"\0\0" * 480))
        await serving
        assert host.sessions[0].gone == 1
        assert peer.close is None

    run(test)


def test_what_a_given_up_client_still_takes_ends_with_the_reason() -> None:
    async def test() -> None:
        host = EchoHost()
        peer = Peer(START)
        serving = asyncio.create_task(peer.serve(host, output_backlog_s=0.001))
        await peer.news.get()
        for _ in range(60):
            host.sessions[0].client.send(events.OutputAudioDelta(delta=b"\0\0" * 480))
        await serving
        assert peer.events[-1]["error"]["code"] == "output_backlog"
        assert peer.close == (1013, "output_backlog")

    run(test)


def test_a_client_may_go_while_there_is_no_room() -> None:
    async def test() -> None:
        host = EchoHost()
        room = asyncio.Event()
        peer = Peer(START)
        serving = asyncio.create_task(peer.serve(host))
        await peer.news.get()
        host.sessions[0].room = room.wait  # type: ignore[method-assign,assignment]
        peer.say(APPEND)
        host.sessions[0].client.end(1000, "over")
        await serving
        assert peer.close == (1000, "over")
        assert host.sessions[0].gone == 1

    run(test)


@pytest.mark.parametrize(
    "where", ["connect", "start", "append", "mute", "update", "request_close", "room", "disconnected"]
)
def test_a_bug_anywhere_ends_the_session_with_a_word(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    def bug(*_: Any) -> Any:
        raise RuntimeError("what the client said")

    class BuggyHost(EchoHost):
        def connect(self, client: Client) -> Any:
            if where == "connect":
                bug()
            session = super().connect(client)
            setattr(session, where, bug)
            return session

    async def test() -> None:
        host = BuggyHost()
        peer = Peer(START, APPEND, MUTE, UPDATE, CLOSE)
        await peer.serve(host)
        if where == "disconnected":
            assert peer.close == (1000, "close_requested")
        else:
            [error, *closed] = [
                event for event in peer.events if event["type"] in ("error", "session.closed")
            ]
            assert error["error"]["code"] == "internal_error"
            started = any(event["type"] == "session.started" for event in peer.events)
            assert [event["reason"] for event in closed] == ["connection_lost"] * started
            assert peer.close == ((1000, "connection_lost") if started else (1011, "internal_error"))
            assert [session.gone for session in host.sessions] == [1] * (where != "connect")

    run(test)
    logged = "".join(capsys.readouterr())
    assert "RuntimeError" in logged
    assert "client said" not in logged


@pytest.mark.parametrize(
    ("error", "code"), [(Crowded, "session_limit_reached"), (Draining, "server_draining")]
)
def test_a_pod_that_takes_nobody_says_so_at_once(error: type[Exception], code: str) -> None:
    class ClosedHost(EchoHost):
        def connect(self, client: Client) -> Any:
            raise error

    async def test() -> None:
        peer = Peer(START)
        await peer.serve(ClosedHost())
        assert [event["error"]["code"] for event in peer.events] == [code]
        assert peer.close == (1013, code)

    run(test)


def test_an_event_that_cannot_be_encoded_ends_the_session() -> None:
    async def test() -> None:
        host = EchoHost()
        peer = Peer(START)
        serving = asyncio.create_task(peer.serve(host))
        await peer.news.get()
        host.sessions[0].client.send(events.OutputAudioDelta(delta=[object()]))  # type: ignore[arg-type]
        await serving
        error, closed = peer.events[-2:]
        assert (error["error"]["code"], closed["type"]) == ("internal_error", "session.closed")
        assert peer.close == (1000, "connection_lost")
        assert host.sessions[0].gone == 1

    run(test)


def test_a_cancelled_server_leaves_its_sessions() -> None:
    async def test() -> None:
        host = EchoHost()
        peer = Peer(START)
        serving = asyncio.create_task(peer.serve(host))
        await peer.news.get()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert host.sessions[0].gone == 1

    run(test)
