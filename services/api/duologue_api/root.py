"""The root: a session's actor in an API pod.  Everything that happens to it goes through one table of states.

It runs on the pod's event loop; each method is one message, handled to its end.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import structlog

from duologue import telemetry
from duologue.audio.formats import format_of, pcm_at
from duologue.bus import messages as m
from duologue.bus.endpoint import Endpoint, window_units
from duologue.draws import seed_of
from duologue.errors import BROKEN, NORMAL, CloseReason, kind, place_of
from duologue.models import ROOT
from duologue.session.ledger import Ledger
from duologue_api.archive import Archive
from duologue_api.guarded import guarded
from duologue_api.house import CLOSE, House
from duologue_api.intake import Intake
from duologue_api.live import events
from duologue_api.live.config import SessionConfig
from duologue_api.meter import Meter
from duologue_api.opening import Opening, Refused
from duologue_api.port import Client
from duologue_api.table import Input, State, after
from duologue_api.takeover import Takeover
from duologue_api.teller import Teller, overflow
from duologue_api.wiring import Place

DRAIN_S = 4.5
"""From `session.close` to `session.closed` at most; LiveKit waits for 5 s."""
USAGE_S = 15.0
"""Session clock between two `session.usage.updated`."""
EXPIRING_S = 60.0
"""So long before its end a session is told of it; before that of a short one, at half its lifetime."""

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
        self._timers: list[asyncio.TimerHandle] = []
        self._takeover: Takeover | None = None
        self._start_event: str | None = None
        self._close_wanted: tuple[str | None] | None = None
        self._usage_told = 0.0
        self._closing: tuple[CloseReason, str | None] = ("close_requested", None)

    # -- what the edge sees

    def start(self, config: SessionConfig, event_id: str | None, *, native: bool = False) -> None:
        """`session.start`: opens the stages, then answers `session.started`, or `error` and the end.  `native`: audio
        is PCM at the model's own rates, whatever the session's format."""
        self._enter(Input.START)
        house = self._house
        self._config, self._start_event = config, event_id
        self._began = house.clock()
        self._manifest = house.manifest(config.model)
        options = house.options(config)
        # Draws take a seed modulo 2**64, and messages hold no larger one.
        seed = seed_of(self.sid) if house.limits.seed is None else house.limits.seed % 2**64
        heard = spoken = format_of(config.format.type, config.format.rate)
        if native:
            heard, spoken = pcm_at(self._manifest.input_rate), pcm_at(self._manifest.output_rate)
        self._endpoint = Endpoint(
            self.sid,
            ROOT,
            self._epoch,
            begin=0,
            window=window_units(self._manifest.unit_s),
            post=house.exchange,
            clock=house.clock,
            arrived=self._on_unit,
            ring_bytes=house.limits.ledger_bytes,
            oldest=lambda: self.ledger.oldest,
        )
        self._endpoint.apply(m.Wiring((0, 1), False, {}, {"encoder": []}))
        self.ledger = Ledger(self._manifest.edges(options), self._endpoint.rings["encoder"])
        self._archive = Archive(
            self.sid,
            config,
            m.Start(seed, options),
            self._epoch[0],
            self._manifest,
            heard,
            self.ledger,
            house,
            fenced=lambda: self.fail("fenced"),
        )
        self._meter = Meter(self.sid, self._manifest, house)
        self._intake = Intake(
            self._manifest,
            self._endpoint,
            clock=house.clock,
            backlog_s=house.limits.input_backlog_s,
            shedding=self._on_shedding,
            overflow=self._on_overflow if house.limits.input_backlog_policy == CLOSE else None,
            form=heard,
            trace=self._meter.trace,
            capture=self._archive.capture,
        )
        self._teller = Teller(self.sid, self._client, config, self._manifest, spoken)
        house.exchange.add(self._endpoint)
        self._opening = Opening(
            self.sid,
            config.model,
            m.Start(seed, options),
            self.ledger.edges,
            Place(house.exchange.address, self._epoch),
            transport=house.transport,
            roster=house.roster,
            admission=house.admission,
            clock=house.clock,
        )
        self._start_task = asyncio.create_task(self._open())

    def append(self, audio: bytes, event_id: str | None) -> None:
        """Input audio in the session's format."""
        if self.state in (State.CLOSING, State.CLOSED):
            return
        self._enter(Input.AUDIO)
        self._meter.framed(self._intake.append(audio))
        if self.state is State.ACTIVE and self._intake.seconds - self._usage_told >= USAGE_S:
            self._tell_usage()

    def mute(self, on: bool, event_id: str | None) -> None:
        """From the next sample of input on the model hears silence, or the input again.  Raises `Refused`."""
        self._enter(Input.COMMAND)
        if self.state is State.CLOSED:
            return
        self._teller.check_room(event_id)
        if self.state is not State.CLOSING and (control := self._intake.mute(on, event_id)):
            kind_, sample, _ = control
            self._archive.tell(kind_, sample=sample, unit=self._intake.unit_of(sample))
        self._teller.muted(on, event_id)

    def update(self, config: SessionConfig, event_id: str | None) -> None:
        """`session.update`: `config` is the session's from now on, its notices those of the update.  Raises
        `Refused`."""
        self._enter(Input.COMMAND)
        if self.state is not State.CLOSED:
            self._teller.check_room(event_id)
            self._config = config
            self._teller.updated(config, event_id)

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
        before, self.state = self.state, after(self.state, Input.GONE)
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
        if self._takeover:
            return self._takeover.owns(epoch)
        return any(place.epoch == epoch for place in self._opening.places.values())

    @guarded
    def check(self) -> None:
        """To be called at every tick of the pod: are the owners alive?"""
        if self._takeover and self.state is not State.CLOSED:
            self._takeover.look()

    @guarded
    def sample(self) -> None:
        """To be called every second, for what is measured of the session's state."""
        if self.state in (State.ACTIVE, State.SUSPENDED):
            self._meter.sample(self._intake.backlog_s, self._intake.shed)

    @guarded
    def on_failed(self, failed: m.Failed) -> None:
        """An owner gave the session up."""
        if self._takeover and self.state is not State.CLOSED:
            self._takeover.failed(failed)

    @guarded
    def on_sealed(self, worker: str, sealed: m.SealedOf) -> None:
        if self._takeover and self.state is not State.CLOSED:
            self._takeover.sealed(worker, sealed)

    def on_lost(self) -> None:
        if self.state is State.ACTIVE:
            self._enter(Input.LOST)
            self._meter.suspended()

    def on_back(self, stages: Sequence[str]) -> None:
        if self.state is State.SUSPENDED:
            self._enter(Input.BACK)
        self._archive.wrote("moved", self.places, stages=stages)

    def fail(
        self,
        why: str,
        code: str = "session_failed",
        message: str = "The session's state was lost on the server.",
    ) -> None:
        """Ends the session because its state is lost, or a limit says so."""
        if self.state is State.CLOSED:
            return
        log.warning("session failed", sid=self.sid, why=why)
        started = self.state not in (State.CONNECTING, State.STARTING)
        self._enter(Input.FAILED)
        if not started:
            self._refuse(code, message)
            return
        self._error(code, message)
        self._teller.rest()
        self._teller.closed(kind(code).ends or "connection_lost", self._intake.seconds)
        self._client.end(NORMAL, code)
        self._end("connection_lost")

    def broke(self, bug: Exception) -> None:
        """A mistake of this server's ends the session."""
        log.error("session ended by a bug", sid=self.sid, **place_of(bug))
        try:
            self.fail("a bug", "internal_error", "The server made a mistake; this session is over.")
        except Exception as another:  # what broke may be what there is to be told
            log.error("session ended without a word", sid=self.sid, **place_of(another))
            self._client.end(BROKEN, "internal_error")
            self._end("connection_lost")

    def shut(self) -> None:
        """The pod leaves: whatever the session is doing, it ends now."""
        self.fail("the pod leaves", "server_draining", "The server is shutting down. Connect again.")

    @property
    def behind_s(self) -> float:
        """Seconds of the session that the store does not have yet."""
        return self._archive.behind_s if self.places else 0.0

    # -- opening

    async def _open(self) -> None:
        try:
            places = await self._opening.run()
            if self.state is State.STARTING:
                self._opened(places)
        except Refused as refused:
            if self.state is State.STARTING:
                log.info("session refused", sid=self.sid, code=refused.code, why=str(refused))
                self._enter(Input.REFUSED)
                self._refuse(refused.code, str(refused))
        except Exception as bug:
            self.broke(bug)

    def _refuse(self, code: str, message: str) -> None:
        telemetry.REFUSED.labels(code).inc()
        self._error(code, message, self._start_event)
        self._client.end(kind(code).close or BROKEN, code)
        self._end("refused")

    def _opened(self, places: Mapping[str, Place]) -> None:
        self._enter(Input.OPENED)
        self.places = places
        self._takeover = Takeover(self._opening, self._endpoint, self.ledger, self._house, self)
        self._meter.opened(self._house.clock() - self._began)
        log.info("session started", sid=self.sid, model=self._config.model)
        lifetime_s = self._house.limits.lifetime_s
        self._teller.expires_at = int(time.time() + lifetime_s)
        self._teller.started(self._start_event)
        left_s = min(EXPIRING_S, lifetime_s / 2)
        self._later(lifetime_s - left_s, lambda: self._expiring(left_s))
        self._later(lifetime_s, self._expire)
        self._archive.wrote("opened", places)
        if self._close_wanted:
            self.request_close(self._close_wanted[0])

    # -- units

    @guarded
    def _on_unit(self, envelope: m.Envelope) -> None:
        """An output unit came: next in order, and of the owner in force (the endpoint saw to that)."""
        self._endpoint.take("codec")
        self._enter(Input.UNIT)
        if self.state is State.CLOSED:
            return
        unit, waited = envelope.unit, self._intake.answered(envelope.unit)
        self._meter.answered(envelope, waited, self.places)
        self._house.admission.answered(self._config.model, waited)
        self.units_out = unit + 1
        self._endpoint.horizon = self.units_out
        self.ledger.learn(unit, envelope.records, envelope.horizons)
        self.ledger.advance(self.units_out)
        self._archive.unit(envelope)
        self._teller.context(envelope.context_used)
        pcm = envelope.body.tensors.get("pcm")
        self._teller.unit(unit, envelope.text, envelope.heard, pcm.data if pcm else None)
        if self.state is State.CLOSING and not self._intake.pending:
            self._drained()

    def _on_shedding(self, began: bool) -> None:
        if began:
            telemetry.EPISODES.labels("input").inc()
            self._teller.shedding(self._house.limits.input_backlog_s)
        log.info("shedding", sid=self.sid, began=began, shed=self._intake.shed)

    def _on_overflow(self) -> None:
        self.fail("input backlog", "input_backlog", overflow(self._house.limits.input_backlog_s))

    # -- the end

    @guarded
    def _expiring(self, left_s: float) -> None:
        if self.state in (State.ACTIVE, State.SUSPENDED):
            self._teller.expiring(left_s)

    @guarded
    def _expire(self) -> None:
        if self.state in (State.ACTIVE, State.SUSPENDED):
            self._enter(Input.EXPIRED)
            self._drain("expired", None)

    def _drain(self, reason: CloseReason, event_id: str | None) -> None:
        self._closing = reason, event_id
        self._meter.framed(self._intake.flush())
        if self._intake.pending:
            self._later(DRAIN_S, self._drained)
        else:
            self._drained()

    @guarded
    def _drained(self) -> None:
        if self.state is not State.CLOSING:
            return
        self._enter(Input.DRAINED)
        reason, event_id = self._closing
        if self._intake.pending:
            log.warning("closed with units under way", sid=self.sid, units=self._intake.pending)
        self._teller.rest()
        self._tell_usage()
        self._teller.closed(reason, self._intake.seconds, event_id)
        self._client.end(NORMAL, reason)
        self._end(reason)

    def _end(self, reason: str) -> None:
        """Everything that the session holds is given back."""
        for timer in self._timers:
            timer.cancel()
        if hasattr(self, "_opening"):
            self._start_task.cancel()
            if self._takeover:
                self._takeover.close()
            self._opening.close()
            self._house.exchange.remove(self._endpoint)
            self._intake.release()
        if self.places:
            self._meter.closed(reason, self._intake.shed)
            counts = {"units_in": self._intake.units, "units_out": self.units_out, "shed": self._intake.shed}
            log.info("session ended", sid=self.sid, reason=reason, **counts)
            self._archive.wrote("closed", self.places, reason=reason, **counts)
            self._house.leaves(self._archive.close())
        self._house.forget(self)

    # -- saying so

    def _enter(self, what: Input) -> None:
        self.state = after(self.state, what)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(seconds, what))

    def _tell_usage(self) -> None:
        self._usage_told = self._intake.seconds
        self._teller.usage(self._usage_told)

    def _error(self, code: str, message: str, event_id: str | None = None) -> None:
        self._client.send(events.error(code, message, client_event_id=event_id))
