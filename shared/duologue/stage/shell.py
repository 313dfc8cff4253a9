"""The shell of a stage worker: claims, ticks, heartbeats, drain.  It knows no model's libraries (DESIGN §7)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.endpoint import window_units
from duologue.bus.exchange import Exchange
from duologue.bus.transport import Message, Transport, Unsubscribe
from duologue.models import ROOT, BadOption, Manifest
from duologue.stage.capacity import Capacity
from duologue.stage.engine import Engine
from duologue.stage.model import SessionError, StageModel
from duologue.stage.owner import Owner, Phase
from duologue.stage.sealing import answers, seal
from duologue.stage.tenancy import Tenancy
from duologue.stage.ticks import Ticks
from duologue.stage.watch import Watch
from duologue.tracing import UNTRACED, Tracing

HEARTBEAT_S = 0.250
CLOSED_S = 60.0
"""So long is remembered which epochs were closed here."""
FAILED_S = 10.0
"""So long a root is told that its session failed here, if it does not answer by `Close`."""
TICK_S = 0.040
CLAIM_POLL_S = 0.4
"""A claim whose opening takes longer is answered `opening`; the root asks again."""

log = structlog.get_logger()


@dataclass
class ShellSettings:
    """`gather_s`: None takes a fortieth of the model's unit, time for bundles of several upstream workers to meet."""

    places: int = 64
    """Sessions at most; memory and time may allow fewer."""
    gather_s: float | None = None
    batch_limit: int = 256
    ring_bytes: int = 16 << 20
    memory_bytes: int | None = None
    """Memory that the stage and its sessions may take in all."""
    utilisation: float = 0.85
    """Share of a unit that a step of all sessions may take."""
    probe: bool = False
    """Measure steps before the first session, and let sessions grow no faster than the measuring."""


class Shell:
    """One stage of one model for many sessions.  `fatal` is called with a reason when the process must end."""

    def __init__(
        self,
        stage: str,
        manifest: Manifest,
        model: StageModel[Any],
        transport: Transport,
        engine: Engine,
        *,
        clock: Callable[[], float],
        settings: ShellSettings | None = None,
        fatal: Callable[[str], None],
        address: str | None = None,
        tracing: Tracing = UNTRACED,
    ) -> None:
        self.stage, self.manifest, self.model = stage, manifest, model
        self.settings = settings or ShellSettings()
        self.address = address or subjects.new_address(stage)
        self.owners: dict[tuple[str, m.Epoch], Owner] = {}
        self.state = m.STARTING
        self._transport, self._engine, self._clock, self._fatal = transport, engine, clock, fatal
        self._exchange = Exchange(
            transport,
            self.address,
            suspected=self._suspect,
            stray=self._stray,
            unsendable=self._unsendable,
            wall=tracing.wall,
        )
        gather_s = manifest.unit_s / 40 if self.settings.gather_s is None else self.settings.gather_s
        self._watch = Watch(stage, manifest, tracing)
        self._ticks = Ticks(
            stage,
            model,
            engine,
            owners=self.owners,
            clock=clock,
            gather_s=gather_s,
            limit=self.settings.batch_limit,
            watch=self._watch,
            opened=lambda owner: self._claimed(owner, owner.reply_to, m.OPEN),
            failed=lambda owner, error: self._fail(owner, error, owner.unit),
            fatal=fatal,
            measured=lambda step_s, unit_s: self.capacity.headroom.stepped(step_s, unit_s),
        )
        self.capacity = Capacity(
            manifest,
            model,
            self.owners,
            clock=clock,
            places=self.settings.places,
            memory_bytes=self.settings.memory_bytes,
            utilisation=self.settings.utilisation,
            cautious=self.settings.probe,
        )
        self._closed: dict[tuple[str, m.Epoch], float] = {}
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._subscriptions: list[Unsubscribe] = []
        self._hung_s = max(3 * manifest.unit_s, 1.0)
        self._step_ticks = self._count = 0
        self.empty = asyncio.Event()
        self.empty.set()
        self._failed: dict[tuple[str, m.Epoch], tuple[float, str, bytes]] = {}
        """What roots are told until they have heard it: since when, the pod, the notice."""
        self._tenancy = Tenancy(
            transport,
            self.address,
            self.owners,
            clock=clock,
            close=self.close,
            give_up=lambda owner, why: self._fail(owner, SessionError(why)),
        )

    # -- life

    async def start(self) -> None:
        """Raises what the model raises when it is probed."""
        self._loop = asyncio.get_running_loop()
        if self.settings.probe:
            await self.capacity.probe(self.stage, self._engine)
        await self._exchange.start()
        self._subscriptions = [
            await self._transport.subscribe(subjects.claims(self.address), self._on_claim),
            await self._transport.subscribe(subjects.control(self.address), self._on_control),
        ]
        self.state = m.READY
        self._heartbeat()
        self._tick()

    def drain(self) -> None:
        """Takes no more sessions; `empty` tells when the last has gone."""
        if self.state == m.READY:
            self.state = m.DRAINING
            log.info("draining", worker=self.address, sessions=len(self.owners))
            self._beat()

    async def stop(self) -> None:
        """Gives up all sessions and leaves the bus."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._tenancy.stop()
        for unsubscribe in self._subscriptions:
            await unsubscribe()
        for owner in list(self.owners.values()):
            # Told now, a root need not wait to find out.
            self._part(owner, SessionError("its worker ended"))
        self._ticks.stop()
        await self._exchange.stop()

    # -- places

    @property
    def places(self) -> int:
        """Raw free places."""
        return self.capacity.free

    def _on_claim(self, message: Message) -> None:
        try:
            claim = m.decode(message.data, m.Claim)
        except m.Malformed as error:
            telemetry.DROPPED.labels(self.stage, "malformed").inc()
            log.warning("malformed claim", bytes=len(message.data), error=str(error))
            return
        key = claim.sid, claim.epoch
        owner = self.owners.get(key)
        if owner is None:
            state, why = self._admit(claim)
            if state:
                telemetry.CLAIMS.labels(self.stage, state).inc()
                self._answer(message.reply, m.Claimed(m.WIRE, claim.sid, claim.epoch, state, why))
                return
            try:
                owner = self._own(claim)
            except BadOption as error:
                self._answer(message.reply, m.Claimed(m.WIRE, claim.sid, claim.epoch, m.REFUSED, str(error)))
                return
        if owner.phase is Phase.OPENING:
            owner.reply_to = message.reply
            self._loop.call_later(CLAIM_POLL_S, self._claimed, owner, message.reply)
        else:
            self._answer(message.reply, m.Claimed(m.WIRE, claim.sid, claim.epoch, m.OPEN))

    def _admit(self, claim: m.Claim) -> tuple[str, str]:
        """The state to refuse the claim with, and why; ("", "") to take it."""
        if claim.v != m.WIRE or claim.ledger != m.LEDGER:
            return (
                m.REFUSED,
                f"wire {m.WIRE} and ledger {m.LEDGER} here, {claim.v} and {claim.ledger} claimed",
            )
        if claim.model != self.manifest.id or claim.stage != self.stage:
            return m.REFUSED, f"this is {self.stage} of {self.manifest.id}"
        if (claim.sid, claim.epoch) in self._closed:
            return m.GONE, "closed before"
        if self.state != m.READY:
            return m.FULL, self.state
        if self.places < 1:
            return m.FULL, "no place"
        return "", ""

    def _own(self, claim: m.Claim) -> Owner:
        owner = Owner(
            claim,
            self.manifest,
            post=self._exchange,
            clock=self._clock,
            arrived=self._ticks.look,
            window=window_units(self.manifest.unit_s),
            ring_bytes=self.settings.ring_bytes,
        )
        self.owners[owner.sid, owner.epoch] = owner
        self.empty.clear()
        self._exchange.add(owner.endpoint)
        self._ticks.open(owner)
        return owner

    def _claimed(self, owner: Owner, reply: str, state: str = m.OPENING, why: str = "") -> None:
        """Answers the claim that waits for this owner's opening, unless it was answered already."""
        if owner.reply_to != reply or not reply:
            return
        owner.reply_to = ""
        if state != m.OPENING:
            telemetry.CLAIMS.labels(self.stage, state).inc()
        self._answer(reply, m.Claimed(m.WIRE, owner.sid, owner.epoch, state, why))

    def _answer(self, reply: str, message: m.Struct) -> None:
        if reply:
            self._transport.publish(reply, m.encode(message))

    def close(self, owner: Owner) -> None:
        """Frees the owner's place; its epoch opens nothing again."""
        key = owner.sid, owner.epoch
        if self.owners.pop(key, None) is None:
            return
        owner.phase = Phase.CLOSED
        self._closed[key] = self._clock()
        self._exchange.remove(owner.endpoint)
        self._ticks.close(owner)
        if not self.owners:
            self.empty.set()
        if self._timers:
            # A full worker must not turn sessions away until the next heartbeat is due.
            self._every(0.0, self._beat)

    def _fail(self, owner: Owner, error: SessionError, unit: int = -1) -> None:
        if owner.phase is Phase.CLOSED:
            return
        log.warning("session failed", sid=owner.sid, stage=self.stage, code=error.code, why=str(error))
        if owner.phase is Phase.OPENING:
            self._claimed(owner, owner.reply_to, m.FAILED, str(error))
        self._part(owner, error, unit)

    def _part(self, owner: Owner, error: SessionError, unit: int = -1) -> None:
        """Closes the owner and tells its root; `unit` is the one that the model could not step, if that is why."""
        notice = m.encode(m.Failed(m.WIRE, owner.sid, owner.epoch, error.code, str(error), unit))
        self._failed[owner.sid, owner.epoch] = self._clock(), owner.root, notice
        self._transport.publish(subjects.control(owner.root), notice)
        self.close(owner)

    # -- control

    def _on_control(self, message: Message) -> None:
        try:
            control = m.decode_control(message.data)
        except m.Malformed as error:
            telemetry.DROPPED.labels(self.stage, "malformed").inc()
            log.warning("malformed control", bytes=len(message.data), error=str(error))
            return
        if isinstance(control, m.Route):
            self._on_route(control, message.reply)
        elif isinstance(control, m.Close):
            for epoch in control.epochs:
                self._failed.pop((control.sid, epoch), None)
                self._closed[control.sid, epoch] = self._clock()
                if owner := self.owners.get((control.sid, epoch)):
                    self.close(owner)
        elif isinstance(control, m.Trace):
            if owner := self.owners.get((control.sid, control.epoch)):
                self._watch.late(owner, control.unit, control.trace)
        elif isinstance(control, m.Seal):
            owners = self.owners.values()
            for answer in answers(self.address, [seal(owners, asked) for asked in control.sessions]):
                self._transport.publish(subjects.control(control.sender), answer)
        elif isinstance(control, m.Drain):
            self.drain()
            self._answer(message.reply, m.Done(m.WIRE, f"{len(self.owners)} sessions left"))

    def _on_route(self, route: m.Route, reply: str) -> None:
        owner = self.owners.get((route.sid, route.epoch))
        if owner is None:
            self._answer(reply, m.Routed(m.WIRE, route.sid, route.epoch, (0, 0), 0, False))
            return
        if owner.endpoint.apply(route.wiring):
            owner.go = route.wiring.go
        owner.hear()
        version, lacks = owner.endpoint.version, owner.endpoint.lacks()
        self._answer(reply, m.Routed(m.WIRE, route.sid, route.epoch, version, owner.unit, lacks=lacks))
        self._ticks.look(owner)

    def _suspect(self, address: str) -> None:
        """The server says that nobody listens there: told to the pods whose sessions are concerned, at once."""
        concerned = {
            owner.root
            for owner in self.owners.values()
            for outlets in owner.endpoint.outlets.values()
            for outlet in outlets
            if outlet.address == address
        }
        for pod in concerned - {address}:
            self._transport.publish(subjects.control(pod), m.encode(m.Suspect(m.WIRE, address)))

    def _stray(self, sender: str, envelope: m.Envelope) -> None:
        """A unit for an owner that is not here.  Its root must know, or it would send for ever."""
        if envelope.src == ROOT:
            failed = m.Failed(m.WIRE, envelope.sid, envelope.to, "session_failed", "no such owner here")
            self._transport.publish(subjects.control(sender), m.encode(failed))

    def _unsendable(self, envelope: m.Envelope, error: Exception) -> None:
        if owner := self.owners.get((envelope.sid, envelope.epoch)):
            why = f"its unit {envelope.unit} fits no message: {type(error).__name__}"
            self._fail(owner, SessionError(why, "internal_error"))

    # -- housekeeping

    def _every(self, seconds: float, again: Callable[[], None]) -> None:
        if timer := self._timers.get(again):
            timer.cancel()
        self._timers[again] = self._loop.call_later(seconds, again)

    def _tick(self) -> None:
        self._every(TICK_S, self._tick)
        # An age counted in ticks of this loop does not grow while the whole process is stopped.
        self._step_ticks = (
            self._step_ticks + 1 if self._ticks.count == self._count and self._ticks.busy else 0
        )
        self._count = self._ticks.count
        if self.step_age > self._hung_s:
            self._fatal(f"{self.stage} of {self.manifest.id}: hung: a step has run for {self.step_age:.1f} s")
        self._ticks.look_all()
        self._tenancy.check()
        if self.capacity.news:
            self._beat()

    @property
    def step_age(self) -> float:
        """Seconds that the running job has run, in ticks of this loop."""
        return self._step_ticks * TICK_S

    def _heartbeat(self) -> None:
        self._every(HEARTBEAT_S, self._heartbeat)
        now = self._clock()
        self._closed = {key: at for key, at in self._closed.items() if now - at < CLOSED_S}
        self._failed = {key: told for key, told in self._failed.items() if now - told[0] < FAILED_S}
        for _, pod, notice in self._failed.values():
            self._transport.publish(subjects.control(pod), notice)
        self._beat()

    def _beat(self) -> None:
        places = self.capacity.told()
        models = {self.manifest.id: places}
        due_age, draining = self._ticks.due_age, self.state == m.DRAINING
        self._watch.stands(places.sessions, places.free, self.model.footprint(), due_age, draining)
        beat = m.Heartbeat(
            m.WIRE,
            m.LEDGER,
            self.address,
            self.state,
            models,
            due_age=due_age,
            step_age=self.step_age,
            step_ms=1000 * self._ticks.step_s.median(),
            queue_ms=1000 * self._ticks.queue_s.median(),
            unit_ms=1000 * self.manifest.unit_s,
            sessions=places.sessions,
        )
        self._transport.publish(subjects.heartbeat(self.address), m.encode(beat))
