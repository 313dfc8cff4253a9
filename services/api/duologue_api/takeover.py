"""Taking over: a session's dead owners are replaced by heirs that replay what they knew (CONTINUITY §3).

Seal, so that nobody hears the dead any more, and gather what the living know; plan; claim the heirs; wire every edge anew;
and only when everybody has confirmed that, let the heirs step.  Whatever goes wrong meanwhile begins a new round.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import structlog

from duologue import telemetry
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.endpoint import Endpoint
from duologue.models import ROOT, STAGES
from duologue.session.ledger import Ledger
from duologue.session.succession import Lost, Plan, plan
from duologue_api.asking import AGAIN_S, Asking, Failed, NoPlace
from duologue_api.house import House
from duologue_api.opening import Opening
from duologue_api.placement import Life
from duologue_api.wiring import Place, wiring

SEAL_S = 0.05
"""A seal that is not answered is sent again after this long."""
PLACELESS_S = 30.0
"""A session waits so long for its owners to be replaced."""
FAILURES = 2
"""A unit that the model failed to step this often, each time on another state, ends the session."""

FAILED, HOLE, UNKNOWN = "failed", "hole", "unknown"
"""Why a stage is taken over, if not for how its worker stands (`Life`): it gave the session up; it can't send again what
another heir needs; its worker does not know the session."""

T = TypeVar("T")

log = structlog.get_logger()


class Session(Protocol):
    """The root, as its takeovers see it."""

    def on_lost(self) -> None:
        """Stages have lost their owners."""
        ...

    def on_back(self, stages: Sequence[str]) -> None:
        """All have one again, these a new one."""
        ...

    def fail(self, why: str, code: str = "session_failed") -> None:
        """It can't be."""
        ...

    def broke(self, bug: Exception) -> None: ...


class Takeover:
    """The owners of one session, which `opening` has found."""

    def __init__(
        self, opening: Opening, endpoint: Endpoint, ledger: Ledger, house: House, session: Session
    ) -> None:
        """Wires the root's `endpoint`."""
        self.places = opening.places
        """The owners in force, the root among them; those that are being replaced stay until their heirs are in force."""
        self._sid, self._edges = opening.sid, ledger.edges
        self._endpoint, self._ledger, self._opening = endpoint, ledger, opening
        self._transport, self._roster, self._seals = house.transport, house.roster, house.seals
        self._clock, self._session = house.clock, session
        self._asking = Asking(house.transport, house.roster, house.clock)
        self._replaced: dict[str, str] = {}
        """Stages without an owner, and why."""
        self._old: list[m.Epoch] = []
        """Epochs that were replaced: never heard again."""
        self._heirs: dict[str, Place] = {}
        self._since = 0.0
        self._round = 0
        self._standings: dict[str, m.Standing] = {}
        self._answered = asyncio.Event()
        self._failures: Counter[tuple[str, int]] = Counter()
        self._task: asyncio.Task[None] | None = None
        version = self.places[ROOT].epoch[0], opening.wirings
        endpoint.apply(wiring(ROOT, ledger.edges, self.places, version, True))

    # -- what the root hears

    def owns(self, epoch: m.Epoch) -> bool:
        """Whether this epoch is of an owner in force, or of an heir that may become one."""
        owners = (*self.places.values(), *self._heirs.values())
        return epoch not in self._old and any(place.epoch == epoch for place in owners)

    def look(self) -> None:
        """To be called at every tick: is every owner alive?"""
        dead = {
            stage: life.value
            for stage, place in {**self._living(), **self._heirs}.items()
            if (life := self._roster.judge(place.address)) is not Life.ALIVE
        }
        if dead:
            self._begin(dead)
        if self._replaced and self._clock() - self._since > PLACELESS_S:
            self._session.fail(f"{', '.join(self._replaced)} lost")

    def failed(self, failed: m.Failed) -> None:
        """An owner gave the session up."""
        owners = (*self._living().items(), *self._heirs.items())
        stage = next((stage for stage, place in owners if place.epoch == failed.epoch), None)
        if stage is None:
            return
        if failed.unit >= 0:
            self._failures[stage, failed.unit] += 1
        if failed.code != "session_failed" or self._failures[stage, failed.unit] >= FAILURES:
            self._session.fail(failed.message, failed.code)
        else:
            self._begin({stage: FAILED})

    def sealed(self, worker: str, sealed: m.SealedOf) -> None:
        """A worker has answered a seal."""
        if (sealed.root_epoch, sealed.round) != (self.places[ROOT].epoch[0], self._round):
            return
        by_epoch = {standing.epoch: standing for standing in sealed.standings}
        here = {stage: place for stage, place in self._living().items() if place.address == worker}
        unknown = {stage: UNKNOWN for stage, place in here.items() if place.epoch not in by_epoch}
        self._standings.update(
            {stage: by_epoch[place.epoch] for stage, place in here.items() if stage not in unknown}
        )
        self._answered.set()
        if unknown:
            self._begin(unknown)

    def close(self) -> None:
        """The session is over."""
        if self._task:
            self._task.cancel()
        self._drop_heirs()

    # -- rounds

    def _living(self) -> dict[str, Place]:
        return {s: place for s, place in self.places.items() if s != ROOT and s not in self._replaced}

    def _begin(self, lost: Mapping[str, str]) -> None:
        """These are to be replaced as well: a new round, with new heirs."""
        first = not self._replaced
        self._replace(lost)
        if first:
            self._since = self._clock()
            self._session.on_lost()
        if self._task:
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _replace(self, lost: Mapping[str, str]) -> None:
        for stage, why in lost.items():
            if stage in self._replaced:
                continue
            place = self.places[stage]
            log.warning("owner lost", sid=self._sid, stage=stage, worker=place.address, why=why)
            self._replaced[stage] = why
            self._old.append(place.epoch)
            self._close(place)
            if self._roster.judge(place.address) is Life.ALIVE:
                self._roster.freed(place.address)
        self._endpoint.seal(self._old)

    async def _run(self) -> None:
        try:
            while self._replaced:
                await self._take_over()
        except Lost as why:
            self._session.fail(str(why))
        except Exception as bug:
            self._session.broke(bug)

    async def _take_over(self) -> None:
        """One round, which succeeds or adds to what is to be replaced."""
        self._drop_heirs()
        self._round += 1
        standings = await self._gather()
        for standing in standings.values():
            self._ledger.gather(standing.decided)
        output = self._endpoint.inlets["codec"].next
        planned = plan(self._edges, self._ledger.known, output, self._ledger.inputs.start, standings)
        if planned.holes:
            # What they have accepted since they answered nobody must hear of, so they too are sealed out first.
            self._replace(dict.fromkeys(planned.holes, HOLE))
            return
        await _each(
            self._claim(stage, planned.begin[stage], output) for stage in STAGES if stage in self._replaced
        )
        lacking = await self._route(planned)
        if lacking:
            self._replace(lacking)
            return
        await self._go(planned)

    async def _gather(self) -> Mapping[str, m.Standing]:
        """How the living stand, once all of them have heard who is dead."""
        self._standings = {}
        output = self._endpoint.inlets["codec"].next
        root_epoch = self.places[ROOT].epoch[0]
        seal = m.SealOf(self._sid, root_epoch, self._round, list(self._old), output)
        while missing := [place for stage, place in self._living().items() if stage not in self._standings]:
            for place in missing:
                self._seals.ask(place.address, seal)
            self._answered.clear()
            try:
                async with asyncio.timeout(SEAL_S):
                    await self._answered.wait()
            except TimeoutError:
                continue
        return self._standings

    async def _claim(self, stage: str, begin: int, output: int) -> None:
        """An heir for the stage, as soon as there is a place."""
        refused: set[str] = set()
        round_ = self._round
        while True:
            address = self._roster.pick(stage, self._opening.model, refused)
            if address is None:
                refused.clear()
                await asyncio.sleep(2 * AGAIN_S)
                continue
            picked = self._clock()
            self._opening.epochs += 1
            place = self._heirs[stage] = Place(address, (self.places[ROOT].epoch[0], self._opening.epochs))
            try:
                await self._asking.claim(place, self._claim_of(stage, place, begin, output), math.inf)
                return
            except (NoPlace, Failed) as why:
                self._close(place)
                if round_ != self._round:  # the next one has begun, and this one is about to be cancelled
                    return
                log.info("claim not taken", sid=self._sid, worker=address, why=str(why))
                self._roster.refused(address, picked)
                refused.add(address)
                if isinstance(why, Failed):
                    self._failures[stage, begin] += 1
                    if self._failures[stage, begin] >= FAILURES:
                        self._session.fail(str(why))
                await asyncio.sleep(AGAIN_S)

    def _claim_of(self, stage: str, place: Place, begin: int, output: int) -> m.Claim:
        known = self._ledger.known
        recalled = {edge.src for edge in self._edges if edge.dst == stage and edge.record_like}
        stages = frozenset({stage, *recalled})
        start = m.Start(
            self._opening.start.seed,
            self._opening.start.options,
            begin,
            begin,
            known.records(max(0, begin - 1), stages),
            {each: known.undecided(each, output) for each in sorted(stages)},
        )
        telemetry.REPLAYED.labels(stage).inc(max(0, start.decided[stage] - begin))
        version = self.places[ROOT].epoch[0], self._opening.wirings
        unwired = m.Wiring(version, False, {}, {})
        root = self.places[ROOT].address
        return m.Claim(
            m.WIRE, m.LEDGER, self._sid, stage, self._opening.model, place.epoch, root, start, unwired
        )

    async def _route(self, planned: Plan) -> dict[str, str]:
        """Wires every edge anew; returns the stages that can't go on, and why."""
        places = {**self.places, **self._heirs}
        root = self._wiring(ROOT, places, planned, go=True)
        self._endpoint.apply(root)
        replies = await _each(
            self._confirm(stage, places, planned, go=stage not in self._replaced) for stage in STAGES
        )
        return {
            stage: why
            for stage, why in zip(STAGES, replies, strict=True)
            if why and stage not in self._replaced
        }

    async def _confirm(self, stage: str, places: Mapping[str, Place], planned: Plan, go: bool) -> str:
        wired = self._wiring(stage, places, planned, go)
        reply = await self._asking.confirm(
            places[stage], m.Route(m.WIRE, self._sid, places[stage].epoch, wired)
        )
        return UNKNOWN if not reply.known else HOLE if reply.lacks else ""

    def _wiring(self, end: str, places: Mapping[str, Place], planned: Plan, go: bool) -> m.Wiring:
        self._opening.wirings += 1
        version = places[ROOT].epoch[0], self._opening.wirings
        return wiring(end, self._edges, places, version, go, planned.wanted)

    async def _go(self, planned: Plan) -> None:
        """Everybody has confirmed: the heirs are owners from now on, and may step."""
        heirs, self._heirs = self._heirs, {}
        replaced, self._replaced = self._replaced, {}
        self.places.update(heirs)
        took_s = self._clock() - self._since
        for stage, why in replaced.items():
            telemetry.TAKEOVERS.labels(stage, why).inc()
            telemetry.TAKEOVER_SECONDS.labels(stage).observe(took_s)
        begin = {stage: planned.begin[stage] for stage in heirs}
        log.info("taken over", sid=self._sid, stages=replaced, begin=begin, rounds=self._round, took_s=took_s)
        self._session.on_back(list(heirs))
        unknown = await _each(self._confirm(stage, self.places, planned, go=True) for stage in heirs)
        if lost := {stage: UNKNOWN for stage, why in zip(heirs, unknown, strict=True) if why == UNKNOWN}:
            self._since = self._clock()
            self._replace(lost)
            self._session.on_lost()

    # -- places

    def _drop_heirs(self) -> None:
        heirs, self._heirs = self._heirs, {}
        for place in heirs.values():
            self._close(place)
            self._roster.freed(place.address)

    def _close(self, place: Place) -> None:
        close = m.Close(m.WIRE, self._sid, [place.epoch])
        self._transport.publish(subjects.control(place.address), m.encode(close))


async def _each(coroutines: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Their results, in order.  What one of them raises cancels the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in coroutines]
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]
