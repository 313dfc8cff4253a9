"""The pod: one API process's place on the bus, and the roots that live in it."""

import asyncio
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.exchange import SETTLE_S, Exchange
from duologue.bus.transport import Message, Transport, Unsubscribe
from duologue.models import Manifest
from duologue.tracing import UNTRACED, Tracing
from duologue_api.admission import Admission
from duologue_api.house import Limits
from duologue_api.live.config import SessionConfig
from duologue_api.placement import PROBE_S, Roster
from duologue_api.port import Client, Crowded, Draining, ModelStatus
from duologue_api.root import Root
from duologue_api.seals import Seals
from duologue_api.table import State

TICK_S = 0.040
HEARTBEAT_S = 0.250
SAMPLE_S = 1.0
"""Between two looks at the state of each session, for histograms."""
MAX_WAITING = 256
"""Clients that have not sent `session.start` yet: each holds a socket, and may for a minute."""
RECORDS_S = 1.0
"""For what is still to be written of sessions when the pod leaves."""
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

log = structlog.get_logger()


def new_sid() -> str:
    """`live_` and 26 characters: 130 random bits in Crockford's base 32."""
    return "live_" + "".join(secrets.choice(_ALPHABET) for _ in range(26))


class Pod:
    """Serves `manifests` (by model id) with the session options of `options` (by model id)."""

    def __init__(
        self,
        transport: Transport,
        manifests: Mapping[str, Manifest],
        *,
        options: Mapping[str, dict[str, Any]],
        clock: Callable[[], float],
        limits: Limits | None = None,
        gather_s: float | None = None,
        rng: random.Random | None = None,
        new_sid: Callable[[], str] = new_sid,
        address: str | None = None,
        tracing: Tracing = UNTRACED,
    ) -> None:
        self.transport, self.limits = transport, limits or Limits()
        self.address = address or subjects.new_address(subjects.API)
        self.tracing = tracing
        self.roots: dict[str, Root] = {}
        self.state = m.STARTING
        self.empty = asyncio.Event()
        self.empty.set()
        self.clock = clock
        self._manifests, self._options, self._new_sid = manifests, options, new_sid
        units = {model: found.unit_s for model, found in manifests.items()}
        self.roster = Roster(
            units,
            clock=clock,
            settled_s=lambda: transport.settled_s,
            rng=rng or random.Random(secrets.randbits(64)),
        )
        # A quarter unit: clients' sends fall anywhere within a unit, and stages are most efficient on whole bundles.
        gather_s = min(units.values()) / 4 if gather_s is None else gather_s
        self.admission = Admission(
            self.roster,
            units,
            clock=clock,
            gather_s=gather_s,
            reserve=self.limits.takeover_reserve,
            deadline_units=self.limits.deadline_units,
        )
        self.exchange = Exchange(
            transport,
            self.address,
            gather_s=gather_s,
            suspected=self._suspect,
            unsendable=self._unsendable,
            wall=tracing.wall,
        )
        self.seals = Seals(transport, self.address)
        self._subscriptions: list[Unsubscribe] = []
        self._writes: set[asyncio.Task[None]] = set()
        """The last of sessions that are over."""
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    # -- life

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.exchange.start()
        self._subscriptions = [
            await self.transport.subscribe(subjects.heartbeats(), self._on_heartbeat),
            await self.transport.subscribe(subjects.control(self.address), self._on_control),
        ]
        self.state = m.READY
        self._tick()
        self._heartbeat()
        self._every(SAMPLE_S, self._sample)

    def drain(self) -> None:
        """Takes no more sessions; `empty` tells when the last has gone."""
        if self.state == m.READY:
            self.state = m.DRAINING
            log.info("draining", pod=self.address, sessions=len(self.roots))

    async def stop(self) -> None:
        """Ends all sessions (`session.closed` with `expired`) and, once their records are written, leaves the bus."""
        for root in list(self.roots.values()):
            root.shut()
        if self._writes:
            _, unwritten = await asyncio.wait(self._writes, timeout=RECORDS_S)
            if unwritten:
                log.warning("records not written", sessions=len(unwritten))
        for timer in self._timers.values():
            timer.cancel()
        for unsubscribe in self._subscriptions:
            await unsubscribe()
        await self.exchange.stop()

    # -- Host

    def connect(self, client: Client) -> Root:
        """Raises `Draining`, `Crowded`."""
        if self.state != m.READY:
            raise Draining
        if sum(root.state is State.CONNECTING for root in self.roots.values()) >= MAX_WAITING:
            raise Crowded
        root = Root(self._new_sid(), client, self)
        self.roots[root.sid] = root
        self.empty.clear()
        return root

    def models(self) -> Sequence[ModelStatus]:
        return [
            ModelStatus(
                model,
                found.description,
                not self.roster.lacking(model),
                found.voices,
                found.unit_s,
                found.unsupported,
                found.input_rate,
                found.output_rate,
            )
            for model, found in self._manifests.items()
        ]

    def ready(self) -> tuple[bool, str]:
        if self.state != m.READY:
            return False, self.state
        if not self.transport.connected:
            return False, "no connection to NATS"
        lacking = {model: self.roster.lacking(model) for model in self._manifests}
        why = [f"{model} has no {', '.join(stages)} worker" for model, stages in lacking.items() if stages]
        return (False, "; ".join(why)) if len(why) == len(lacking) else (True, "; ".join(why))

    # -- House

    def manifest(self, model: str) -> Manifest:
        return self._manifests[model]

    def options(self, config: SessionConfig) -> dict[str, Any]:
        prompt = self._manifests[config.model].prompt(config.instructions, config.messages, config.voice)
        return {**self._options[config.model], **prompt}

    def forget(self, root: Root) -> None:
        if self.roots.pop(root.sid, None) and not self.roots:
            self.empty.set()

    def leaves(self, writing: "asyncio.Task[None]") -> None:
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)

    # -- the bus

    def _on_heartbeat(self, message: Message) -> None:
        try:
            beat = m.decode(message.data, m.Heartbeat)
        except m.Malformed as error:
            telemetry.DROPPED.labels(subjects.API, "malformed").inc()
            log.warning("malformed heartbeat", bytes=len(message.data), error=str(error))
            return
        if subjects.role_of(beat.address) != subjects.API:
            self.roster.on_heartbeat(beat)

    def _on_control(self, message: Message) -> None:
        try:
            control = m.decode_control(message.data)
        except m.Malformed as error:
            telemetry.DROPPED.labels(subjects.API, "malformed").inc()
            log.warning("malformed control", bytes=len(message.data), error=str(error))
            return
        if isinstance(control, m.Mine):
            no = [(sid, epoch) for sid, epoch in control.owners if not self._owns(sid, epoch)]
            self._answer(message.reply, m.Yours(m.WIRE, no))
        elif isinstance(control, m.Failed):
            if root := self.roots.get(control.sid):
                root.on_failed(control)
        elif isinstance(control, m.Sealed):
            for sealed in control.sessions:
                if root := self.roots.get(sealed.sid):
                    root.on_sealed(control.sender, sealed)
        elif isinstance(control, m.Suspect):
            if self.transport.settled_s >= SETTLE_S:
                self._suspect(control.address)
        elif isinstance(control, m.Drain):
            self.drain()
            self._answer(message.reply, m.Done(m.WIRE, f"{len(self.roots)} sessions left"))

    def _answer(self, reply: str, message: m.Struct) -> None:
        if reply:
            self.transport.publish(reply, m.encode(message))

    def _owns(self, sid: str, epoch: m.Epoch) -> bool:
        root = self.roots.get(sid)
        return root is not None and root.owns(epoch)

    def _suspect(self, address: str) -> None:
        if self.roster.on_suspect(address):
            self._loop.call_later(PROBE_S, self.exchange.probe, address)

    def _unsendable(self, envelope: m.Envelope, error: Exception) -> None:
        if root := self.roots.get(envelope.sid):
            root.broke(error)

    # -- housekeeping

    def _every(self, seconds: float, again: Callable[[], None]) -> None:
        self._timers[again] = self._loop.call_later(seconds, again)

    def _tick(self) -> None:
        self._every(TICK_S, self._tick)
        self.roster.tick()
        for root in list(self.roots.values()):
            root.check()

    def _sample(self) -> None:
        self._every(SAMPLE_S, self._sample)
        telemetry.DRAINING.labels(subjects.API).set(self.state == m.DRAINING)
        for root in list(self.roots.values()):
            root.sample()
        started = [root for root in self.roots.values() if root.places]
        telemetry.LEDGER_BYTES.set(sum(root.ledger.bytes for root in started))
        telemetry.LEDGER_BEHIND.set(self._behind_s())

    def _behind_s(self) -> float:
        return max((root.behind_s for root in self.roots.values()), default=0.0)

    def _heartbeat(self) -> None:
        self._every(HEARTBEAT_S, self._heartbeat)
        self.admission.measure()
        models = {model: m.Places(0, 0) for model in self._manifests}
        live = sum(bool(root.places) for root in self.roots.values())
        beat = m.Heartbeat(
            m.WIRE, m.LEDGER, self.address, self.state, models, sessions=live, behind=self._behind_s()
        )
        self.transport.publish(subjects.heartbeat(self.address), m.encode(beat))
