"""Placing a session: an owner for every stage, by directed claims, all at once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import NoResponders, RequestTimeout, Transport
from duologue.models import ROOT, STAGES, Edge
from duologue_api.admission import Admission
from duologue_api.placement import Life, Roster
from duologue_api.wiring import Place, wiring

ATTEMPT_S = 1.0
AGAIN_S = 0.05
"""Between two attempts: without a connection they fail at once."""
START_S = 60.0
"""A session that has no owners after this long is refused."""

log = structlog.get_logger()


class Refused(Exception):
    """The session can't be started; `code` is a key of `duologue.errors.TABLE`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _NoPlace(Exception):
    """This worker does not take it; another one may."""


class _Absent(_NoPlace):
    """This worker does not answer."""


class Opening:
    """Claims for one session.  `places` are its owners so far, the root among them; it stays true while the claims
    run, so that whoever gives up half-way knows what to close."""

    def __init__(
        self,
        sid: str,
        model: str,
        start: m.Start,
        edges: Sequence[Edge],
        root: Place,
        *,
        transport: Transport,
        roster: Roster,
        admission: Admission,
        clock: Callable[[], float],
    ) -> None:
        self.places: dict[str, Place] = {ROOT: root}
        self.wirings = 0
        self._sid, self._model, self._start, self._edges, self._root = sid, model, start, edges, root
        self._transport, self._roster, self._clock = transport, roster, clock
        self._admission = admission
        self._epochs = 0
        self._picked: dict[str, float] = {}
        """When the worker of a stage was picked; those that did not take it left out."""
        self._refused: set[str] = set()
        """Workers that did not take it, and of these those that did not answer."""
        self._absent: set[str] = set()

    async def run(self) -> Mapping[str, Place]:
        """An owner for every stage, all wired.  Raises `Refused`."""
        deadline = self._clock() + START_S
        missing = set(STAGES)
        while missing:
            self._pick(missing)
            self.wirings += 1
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = {
                        stage: group.create_task(self._place(stage, stage in missing, deadline))
                        for stage in STAGES
                    }
            except ExceptionGroup as several:
                raise several.exceptions[0] from None
            missing = {stage for stage, task in tasks.items() if not task.result()}
        return self.places

    def close(self) -> None:
        """Gives up every place, those whose claims are still under way included."""
        for stage, place in self.places.items():
            if stage != ROOT:
                self._give_up(place)
                if stage in self._picked:
                    self._roster.freed(place.address)

    def _give_up(self, place: Place) -> None:
        close = m.Close(m.WIRE, self._sid, [place.epoch])
        self._transport.publish(subjects.control(place.address), m.encode(close))

    def _pick(self, missing: set[str]) -> None:
        for stage in missing:
            if stage in self.places:
                self._give_up(self.places.pop(stage))
        for stage in filter(missing.__contains__, STAGES):
            address = self._admission.pick(stage, self._model, self._chosen(), self._refused)
            if address is None:
                raise Refused(*self._why_none(stage))
            self._epochs += 1
            self._picked[stage] = self._clock()
            self.places[stage] = Place(address, (self._root.epoch[0], self._epochs))

    def _chosen(self, without: str = "") -> dict[str, str]:
        """The workers of the stages placed so far."""
        return {stage: place.address for stage, place in self.places.items() if stage not in (ROOT, without)}

    def _why_none(self, stage: str) -> tuple[str, str]:
        return self._admission.why_none(stage, self._model, self._refused, self._absent)

    async def _place(self, stage: str, fresh: bool, deadline: float) -> bool:
        """Whether the stage has its owner; if not, another worker may take it.  Where there is none, `Refused` at
        once: a client must not wait for the other stages' openings to hear that this one is full."""
        try:
            await self._settle(stage, fresh, deadline)
            return True
        except _NoPlace as why:
            address = self.places[stage].address
            log.info("claim not taken", sid=self._sid, worker=address, why=str(why))
            self._refused.add(address)
            self._roster.refused(address, self._picked.pop(stage))
            if isinstance(why, _Absent):
                self._absent.add(address)
            if not self._admission.has_room(stage, self._model, self._chosen(without=stage), self._refused):
                raise Refused(*self._why_none(stage)) from why
            return False

    async def _settle(self, stage: str, fresh: bool, deadline: float) -> None:
        """Claims the stage, or tells its owner the new route."""
        place = self.places[stage]
        wired = wiring(stage, self._edges, self.places, (self._root.epoch[0], self.wirings), go=True)
        if fresh:
            claim = m.Claim(
                m.WIRE,
                m.LEDGER,
                self._sid,
                stage,
                self._model,
                place.epoch,
                self._root.address,
                self._start,
                wired,
            )
            await self._claim(place, claim, deadline)
        else:
            await self._route(place, m.Route(m.WIRE, self._sid, place.epoch, wired), deadline)

    async def _claim(self, place: Place, claim: m.Claim, deadline: float) -> None:
        while True:
            data = await self._ask(subjects.claims(place.address), claim, place, deadline)
            try:
                answer = m.decode(data, m.Claimed)
            except m.Malformed as error:
                raise _NoPlace(str(error)) from error
            if answer.state == m.OPEN:
                return
            if answer.state == m.FAILED:
                raise Refused("session_failed", answer.message)
            if answer.state != m.OPENING:
                raise _NoPlace(answer.message or answer.state)

    async def _route(self, place: Place, route: m.Route, deadline: float) -> None:
        data = await self._ask(subjects.control(place.address), route, place, deadline)
        try:
            reply = m.decode_control(data)
        except m.Malformed as error:
            raise _NoPlace(str(error)) from error
        if not isinstance(reply, m.Routed) or not reply.known:
            raise _NoPlace("lost the session")

    async def _ask(self, subject: str, message: m.Struct, place: Place, deadline: float) -> bytes:
        """Asks until there is an answer.  Raises `_NoPlace` if there will be none, `Refused` after the deadline."""
        data = m.encode(message)
        while self._clock() < deadline:
            try:
                return await self._transport.request(subject, data, ATTEMPT_S)
            except NoResponders as error:
                raise _Absent("nobody listens there") from error
            except RequestTimeout as error:
                if self._roster.judge(place.address) is not Life.ALIVE:
                    raise _Absent("silent") from error
                await asyncio.sleep(AGAIN_S)
        raise Refused(
            "model_unavailable", f"No owner could be found within {START_S:.0f} s. Try again later."
        )
