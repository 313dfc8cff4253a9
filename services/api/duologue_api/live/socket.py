"""One client's WebSocket, from the upgrade to the close."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from typing import Any, NamedTuple

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from duologue.audio.formats import PCM_24K, format_of
from duologue.errors import BROKEN, close_code, place_of
from duologue.telemetry import REFUSED
from duologue_api.auth import SUBPROTOCOL
from duologue_api.live import commands, config
from duologue_api.live.events import error
from duologue_api.live.outbound import Outbound
from duologue_api.live.refused import Refused
from duologue_api.live.settings import EdgeSettings
from duologue_api.port import Crowded, Draining, Host, Session

Gone = (WebSocketDisconnect, OSError, RuntimeError)
"""What the transport raises for a client that has gone, or was told to go."""


class State(Enum):
    """How far the client has come, which is not how far the session has."""

    WAITING = auto()
    """for `session.start`"""
    STARTED = auto()
    CLOSING = auto()
    """`session.close` came"""


class Step(NamedTuple):
    """What a command does in a state: moves on to `to`; without it, it is refused for `why`, or ignored."""

    to: State | None = None
    why: str = ""


STEPS: Mapping[State, Mapping[type[commands.Command], Step]] = {
    State.WAITING: {
        commands.Start: Step(State.STARTED),
        commands.Append: Step(why="expected session.start, got session.input_audio.append"),
        commands.Mute: Step(why="expected session.start, got a change of muting"),
        commands.Update: Step(why="expected session.start, got session.update"),
        commands.Close: Step(why="expected session.start, got session.close"),
    },
    State.STARTED: {
        commands.Start: Step(why="session.start came before, and goes on"),
        commands.Append: Step(State.STARTED),
        commands.Mute: Step(State.STARTED),
        commands.Update: Step(State.STARTED),
        commands.Close: Step(State.CLOSING),
    },
    State.CLOSING: {
        commands.Start: Step(why="the session is closing"),
        commands.Append: Step(),  # sent before the client's microphone heard of it
        commands.Mute: Step(why="the session is closing"),
        commands.Update: Step(why="the session is closing"),
        commands.Close: Step(why="the session is closing"),
    },
}


async def serve(websocket: WebSocket, host: Host, settings: EdgeSettings, clock: Callable[[], float]) -> None:
    """Serves a client that may come in.  Raises nothing: whatever goes wrong ends this client's session only."""
    offered = websocket.scope.get("subprotocols", ())
    try:
        await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    except Gone:
        return
    await _Connection(websocket, host, settings, clock).run()


class _Connection:
    def __init__(
        self, websocket: WebSocket, host: Host, settings: EdgeSettings, clock: Callable[[], float]
    ) -> None:
        self.websocket = websocket
        self.host = host
        self.settings = settings
        self.outbound = Outbound(settings, clock)
        self.state = State.WAITING
        self.session: Session | None = None
        self.config: config.SessionConfig | None = None
        self.format = PCM_24K
        """Of the session; before it starts, that of most."""
        self.gone = False

    async def run(self) -> None:
        try:
            self.session = self.host.connect(self.outbound)
        except Crowded:
            self.refuse(Refused("session_limit_reached", "Too many clients wait here without a session."))
        except Draining:
            self.refuse(Refused("server_draining", "This server is shutting down. Try again."))
        except Exception as bug:
            self.fail(bug)
        timer = asyncio.get_running_loop().call_later(self.settings.start_timeout_s, self.start_timed_out)
        writer = asyncio.create_task(self.write())
        tasks = (writer, asyncio.create_task(self.read()), asyncio.create_task(self.outbound.ended()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.leave()
            if self.outbound.ending is not None and not self.gone:
                await asyncio.wait((writer,), timeout=self.settings.close_timeout_s)
        finally:
            timer.cancel()
            for task in tasks:
                task.cancel()
            self.leave()
            await asyncio.gather(*tasks, return_exceptions=True)

    def leave(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            try:
                session.disconnected()
            except Exception as bug:
                self.log(bug)

    # ---------------------------------------------------------------- out

    async def write(self) -> None:
        with suppress(*Gone):
            while True:
                try:
                    text = await self.outbound.next()
                except (TypeError, ValueError) as bug:  # an event that can't be encoded
                    self.fail(bug)
                    continue
                if text is None:
                    break
                await self.websocket.send_text(text)
            code, reason = self.outbound.ending or (BROKEN, "")
            await self.websocket.close(code, reason)

    def refuse(self, refused: Refused) -> None:
        """Instead of `session.started`; the client must not be left with an open socket."""
        REFUSED.labels(refused.code).inc()
        self.outbound.send(refused.event())
        self.outbound.end(close_code(refused.code), refused.code)

    def start_timed_out(self) -> None:
        if self.state is State.WAITING:
            waited = f"No session.start came within {self.settings.start_timeout_s:g} s."
            self.refuse(Refused("start_timeout", waited))

    def fail(self, bug: Exception) -> None:
        """Ends this session for a fault of ours."""
        if self.session is not None:
            self.session.broke(bug)
        else:
            self.log(bug)
        self.outbound.send(error("internal_error", "The server made a mistake; this session is over."))
        self.outbound.end(BROKEN, "internal_error")

    def log(self, bug: Exception) -> None:
        structlog.get_logger().error("session ended by a bug", **place_of(bug))

    # ---------------------------------------------------------------- in

    async def read(self) -> None:
        try:
            while True:
                if self.session is not None and self.outbound.ending is None:
                    await self.session.room()
                message = await self.receive()
                if message["type"] == "websocket.disconnect":
                    self.gone = True
                    return
                if self.outbound.ending is None:
                    await self.take(message)
        except Exception as bug:
            self.fail(bug)

    async def receive(self) -> Mapping[str, Any]:
        try:
            return await self.websocket.receive()
        except Gone:
            return {"type": "websocket.disconnect"}

    async def take(self, message: Mapping[str, Any]) -> None:
        try:
            text = message.get("text")
            if text is None:
                raise Refused("invalid_event", "Binary frames carry nothing here: audio is base64 in JSON.")
            self.step(commands.parse(text, self.format.sample_bytes))
        except Refused as refused:
            if refused.command == "session.start" and self.state is State.WAITING:
                self.refuse(refused)
            else:
                self.outbound.send(refused.event())
            # A burst of bad frames would otherwise fill the queue before the writer runs.
            await asyncio.sleep(0)

    def step(self, command: commands.Command) -> None:
        """Raises `Refused`."""
        to, why = STEPS[self.state][type(command)]
        if why:
            raise Refused("invalid_event", f"Out of place: {why}.", event_id=command.event_id)
        if to is None or self.session is None:
            return
        match command:
            case commands.Append(audio, event_id):
                self.session.append(audio, event_id)
            case commands.Mute(on, event_id):
                self.session.mute(on, event_id)
            case commands.Update(session, event_id):
                self.update(self.session, session, event_id)
            case commands.Close(event_id):
                self.session.request_close(event_id)
            case commands.Start(session, event_id):
                self.start(self.session, session, event_id)
        self.state = to

    def start(self, session: Session, asked: object, event_id: str | None) -> None:
        try:
            self.config = config.check(asked, self.host.models())
        except Refused as refused:
            refused.event_id, refused.command = event_id, "session.start"
            raise
        self.format = format_of(self.config.format.type, self.config.format.rate)
        self.outbound.bytes_per_s = self.format.bytes_per_s
        session.start(self.config, event_id)

    def update(self, session: Session, asked: object, event_id: str | None) -> None:
        assert self.config is not None
        try:
            changed = config.update(self.config, asked)
        except Refused as refused:
            refused.event_id = event_id
            raise
        session.update(changed, event_id)
        self.config = changed
