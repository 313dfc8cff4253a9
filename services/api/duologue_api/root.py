"""The root: a session's actor in an API pod.  Everything that happens to it goes through one table of states.

It runs on the pod's event loop; each method is one message, handled to its end.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import structlog

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.endpoint import Endpoint, window_units
from duologue.draws import seed_of
from duologue.errors import BROKEN, NORMAL, RETRY, CloseReason, kind, place_of
from duologue.models import ROOT, STAGES
from duologue.session.chronicler import Chronicler
from duologue.session.record import ACTIVE, CLOSED, SessionRecord
from duologue_api.house import House
from duologue_api.intake import Intake
from duologue_api.live import events
from duologue_api.live.config import SessionConfig
from duologue_api.meter import Meter
from duologue_api.opening import Opening, Refused
from duologue_api.placement import Life
from duologue_api.port import Client
from duologue_api.table import Input, State, after
from duologue_api.wiring import Place, told, wiring

DRAIN_S = 4.5
"""From `session.close` to `session.closed` at most; LiveKit waits for 5 s."""
SUSPENDED_S = 30.0
"""A session whose worker is silent waits so long for it."""
GONE_S = 3.0
"""... and so long for one that has no connection any more: it may be reconnecting."""
USAGE_S = 15.0
"""Session clock between two `session.usage.updated`."""

log = structlog.get_logger()


class Root:
    """A session from its socket's upgrade to its end."""

    def __init__(self, sid: str, client: Client, house: House) -> None:
        self.sid = sid
        self.state = State.CONNECTING
        self.places: Mapping[str, Place] = {}
        self.units_out = 0
        self._client, self._house = client, house
        self._epoch: m.Epoch = (1, 0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._lost_at: float | None = None
        self._close_wanted: tuple[str | None] | None = None
        self._context_used = -1.0
        self._usage_told = 0.0
        self._closing: tuple[CloseReason, str | None] = ("close_requested", None)
        self._chronicler = Chronicler(sid, house.transport, fenced=lambda: self.fail("fenced"))

    # -- what the edge sees

    def start(self, config: SessionConfig, event_id: str | None) -> None:
        """`session.start`: opens the stages, then answers `session.started`, or `error` and the end."""
        self._enter(Input.START)
        house = self._house
        self._config, self._start_event = config, event_id
        self._began = house.clock()
        self._expires_at = int(time.time() + house.limits.lifetime_s)
        self._manifest = house.manifest(config.model)
        self._options = house.options(config.model)
        self._seed = seed_of(self.sid) if house.limits.seed is None else house.limits.seed
        edges = self._manifest.edges(self._options)
        self._endpoint = Endpoint(
            self.sid,
            ROOT,
            self._epoch,
            begin=0,
            window=window_units(self._manifest.unit_s),
            post=house.exchange,
            clock=house.clock,
            arrived=self._on_unit,
            ring_bytes=house.limits.ring_bytes,
        )
        self._endpoint.apply(m.Wiring((0, 1), False, {}, {"encoder": []}))
        self._meter = Meter(
            self.sid, self._manifest, tracing=house.tracing, clock=house.clock, tell=self._tell_worker
        )
        self._intake = Intake(
            self._manifest,
            self._endpoint,
            clock=house.clock,
            backlog_s=house.limits.input_backlog_s,
            shedding=self._on_shedding,
            trace=self._meter.trace,
        )
        house.exchange.add(self._endpoint)
        self._opening = Opening(
            self.sid,
            config.model,
            m.Start(self._seed, self._options),
            edges,
            Place(house.exchange.address, self._epoch),
            transport=house.transport,
            roster=house.roster,
            clock=house.clock,
        )
        self._spawn(self._open())

    def append(self, pcm: bytes, event_id: str | None) -> None:
        """Input audio in session format: int16 samples."""
        if self.state in (State.CLOSING, State.CLOSED):
            return
        self._enter(Input.AUDIO)
        self._meter.framed(self._intake.append(pcm))
        if self.state is State.ACTIVE and self._seconds() - self._usage_told >= USAGE_S:
            self._tell_usage()

    def request_close(self, event_id: str | None) -> None:
        """`session.close`: the units under way are answered, then the session ends."""
        before = self.state
        self._enter(Input.CLOSE)
        if before is State.STARTING:
            self._close_wanted = (event_id,)
        elif before in (State.ACTIVE, State.SUSPENDED):
            self._drain("close_requested", event_id)

    def disconnected(self) -> None:
        """The client's transport has ended, with or without a close."""
        before = self.state
        self._enter(Input.GONE)
        if before is not State.CLOSED:
            self._end("client_gone")

    async def room(self) -> None:
        if self.state not in (State.CONNECTING, State.CLOSED):
            await self._intake.room()

    # -- what the pod sees

    def owns(self, epoch: m.Epoch) -> bool:
        """Whether this epoch is of an owner on the session's route, or may yet become one."""
        if self.state in (State.CONNECTING, State.CLOSED):
            return False
        return any(place.epoch == epoch for place in self._opening.places.values())

    def check(self) -> None:
        """To be called at every tick of the pod: are the owners alive?"""
        if self.state not in (State.ACTIVE, State.SUSPENDED, State.CLOSING):
            return
        lives = {stage: self._house.roster.judge(self.places[stage].address) for stage in STAGES}
        lost = [stage for stage, life in lives.items() if life is not Life.ALIVE]
        now = self._house.clock()
        if not lost:
            self._lost_at = None
            if self.state is State.SUSPENDED:
                self._enter(Input.BACK)
                log.info("goes on", sid=self.sid)
            return
        if self._lost_at is None:
            self._lost_at = now
            log.warning("stages lost", sid=self.sid, stages=lost)
        if self.state is State.ACTIVE:
            self._enter(Input.LOST)
            telemetry.SUSPENDED.labels(self._config.model).inc()
        if now - self._lost_at > (GONE_S if Life.GONE in lives.values() else SUSPENDED_S):
            self.fail(f"{', '.join(lost)} lost")

    def sample(self) -> None:
        """To be called every second, for what is measured of the session's state."""
        if self.state in (State.ACTIVE, State.SUSPENDED):
            self._meter.sample(self._intake.backlog_s)

    def on_failed(self, failed: m.Failed) -> None:
        """An owner gave the session up."""
        if self.owns(failed.epoch) and self.state is not State.STARTING:
            self.fail(failed.message, failed.code)

    def fail(self, why: str, code: str = "session_failed") -> None:
        """Ends the session because its state is lost."""
        if self.state is State.CLOSED:
            return
        log.warning("session failed", sid=self.sid, why=why)
        started = self.state is not State.STARTING
        self._enter(Input.FAILED)
        self._error(code, "The session's state was lost on the server.")
        if started:
            self._closed_event(kind(code).ends or "connection_lost", None)
        self._client.end(NORMAL if started else kind(code).close or BROKEN, code)
        self._end("connection_lost")

    def shut(self) -> None:
        """The pod leaves: whatever the session is doing, it ends now."""
        if self.state is State.CONNECTING:
            self._enter(Input.GONE)
            self._error("server_draining", "The server is shutting down. Connect again.")
            self._client.end(RETRY, "server_draining")
            self._end("server_draining")
        elif self.state is not State.CLOSED:
            self.fail("the pod leaves", "server_draining")

    # -- opening

    async def _open(self) -> None:
        try:
            places = await self._opening.run()
        except Refused as refused:
            if self.state is State.STARTING:
                self._refuse(refused)
            return
        except Exception as bug:
            log.error("opening failed", sid=self.sid, **place_of(bug))
            if self.state is State.STARTING:
                self.fail("opening failed", "internal_error")
            return
        if self.state is State.STARTING:
            self._opened(places)

    def _refuse(self, refused: Refused) -> None:
        self._enter(Input.REFUSED)
        telemetry.REFUSED.labels(refused.code).inc()
        log.info("session refused", sid=self.sid, model=self._config.model, code=refused.code)
        self._error(refused.code, str(refused), self._start_event)
        self._client.end(kind(refused.code).close or RETRY, refused.code)
        self._end("refused")

    def _opened(self, places: Mapping[str, Place]) -> None:
        self._enter(Input.OPENED)
        self.places = places
        model, house = self._config.model, self._house
        edges = self._manifest.edges(self._options)
        self._endpoint.apply(wiring(ROOT, edges, places, (self._epoch[0], self._opening.wirings), True))
        telemetry.STARTED.labels(model).inc()
        telemetry.SESSIONS.labels(model).inc()
        telemetry.START_SECONDS.labels(model).observe(house.clock() - self._began)
        log.info("session started", sid=self.sid, model=model)
        self._client.send(events.SessionStarted(session=self._resource(), client_event_id=self._start_event))
        for notice in self._config.notices:
            self._client.send(events.Info(code=notice.code, message=notice.message))
        self._timers.append(asyncio.get_running_loop().call_later(house.limits.lifetime_s, self._expire))
        self._chronicle("opened")
        if self._close_wanted:
            self.request_close(self._close_wanted[0])

    # -- units

    def _on_unit(self, envelope: m.Envelope) -> None:
        """An output unit came: next in order, and of the owner in force (the endpoint saw to that)."""
        self._endpoint.take("codec")
        self._enter(Input.UNIT)
        if self.state is State.CLOSED:
            return
        unit = envelope.unit
        self._meter.answered(envelope, self._intake.answered(unit), self.places)
        self.units_out = unit + 1
        self._endpoint.horizon = self.units_out
        if envelope.context_used >= 0:
            self._context_used = envelope.context_used
        if envelope.text:
            ms = 1000 * self._manifest.unit_s
            start_ms, end_ms = round(unit * ms), round((unit + 1) * ms)
            self._client.send(
                events.OutputTranscriptDelta(delta=envelope.text, start_ms=start_ms, end_ms=end_ms)
            )
        pcm = envelope.body.tensors.get("pcm")
        samples = pcm.data if pcm else bytes(2 * self._manifest.output_samples)
        self._client.send(events.OutputAudioDelta(delta=samples))
        if self.state is State.CLOSING and not self._intake.pending:
            self._drained()

    def _on_shedding(self, began: bool) -> None:
        if began:
            telemetry.EPISODES.labels("input").inc()
            seconds = self._house.limits.input_backlog_s
            self._error(
                "input_backlog",
                f"Input runs more than {seconds:g} s ahead of the model; the oldest of it is replaced by silence "
                "until the model has caught up. Send audio at the pace at which it is recorded.",
            )
        log.info("shedding", sid=self.sid, began=began, shed=self._intake.shed)

    # -- the end

    def _expire(self) -> None:
        if self.state in (State.ACTIVE, State.SUSPENDED):
            self._enter(Input.EXPIRED)
            self._drain("expired", None)

    def _drain(self, reason: CloseReason, event_id: str | None) -> None:
        self._closing = reason, event_id
        self._meter.framed(self._intake.flush())
        if self._intake.pending:
            self._timers.append(asyncio.get_running_loop().call_later(DRAIN_S, self._drained))
        else:
            self._drained()

    def _drained(self) -> None:
        if self.state is not State.CLOSING:
            return
        self._enter(Input.DRAINED)
        reason, event_id = self._closing
        if self._intake.pending:
            log.warning("closed with units under way", sid=self.sid, units=self._intake.pending)
        self._tell_usage()
        self._closed_event(reason, event_id)
        self._client.end(NORMAL, reason)
        self._end(reason)

    def _end(self, reason: str) -> None:
        """Everything that the session holds is given back."""
        for timer in self._timers:
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        if hasattr(self, "_opening"):
            self._opening.close()
            self._house.exchange.remove(self._endpoint)
            self._intake.release()
        if self.places:
            model = self._config.model
            telemetry.SESSIONS.labels(model).dec()
            telemetry.CLOSED.labels(model, reason).inc()
            telemetry.UNITS_SHED.labels(model).inc(self._intake.shed)
            counts = {"units_in": self._intake.units, "units_out": self.units_out, "shed": self._intake.shed}
            log.info("session ended", sid=self.sid, reason=reason, **counts)
            self._chronicle("closed", reason=reason, **counts)
        self._house.forget(self)

    # -- saying so

    def _enter(self, what: Input) -> None:
        self.state = after(self.state, what)

    def _tell_worker(self, address: str, notice: m.Control) -> None:
        self._house.transport.publish(subjects.control(address), m.encode(notice))

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _seconds(self) -> float:
        """The session clock, whole seconds of input audio."""
        return float(self._intake.samples // self._manifest.input_rate)

    def _resource(self) -> events.SessionResource:
        return self._config.resource(self.sid, self._expires_at)

    def _tell_usage(self) -> None:
        self._usage_told = self._seconds()
        window = events.ContextWindow(usage_ratio=self._context_used) if self._context_used >= 0 else None
        self._client.send(
            events.UsageUpdated(usage=events.Usage(seconds=self._usage_told), context_window=window)
        )

    def _closed_event(self, reason: CloseReason, event_id: str | None) -> None:
        usage = events.Usage(seconds=self._seconds())
        self._client.send(
            events.SessionClosed(
                reason=reason, session=self._resource(), usage=usage, client_event_id=event_id
            )
        )

    def _error(self, code: str, message: str, event_id: str | None = None) -> None:
        self._client.send(events.error(code, message, client_event_id=event_id))

    def _chronicle(self, what: str, **detail: Any) -> None:
        self._chronicler.write(
            SessionRecord(
                sid=self.sid,
                model=self._config.model,
                state=CLOSED if what == "closed" else ACTIVE,
                options=self._options,
                seed=self._seed,
                route=told(self.places),
                root_epochs=[(self._epoch[0], 0, self._house.exchange.address)],
                units=self.units_out,
            )
        )
        self._chronicler.tell(what, model=self._config.model, **detail)
