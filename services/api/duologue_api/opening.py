"""Placing a session: an owner for every stage, by directed claims, all at once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import Transport
from duologue.models import ROOT, STAGES, Edge
from duologue_api.admission import Admission
from duologue_api.asking import Absent, Asking, Failed, NoPlace
from duologue_api.placement import Roster
from duologue_api.wiring import Place, wiring

START_S = 60.0
"""A session that has no owners after this long is refused."""

log = structlog.get_logger()


class Refused(Exception):
    """The session can't be started; `code` is a key of `duologue.errors.TABLE`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


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
        self.wirings = self.epochs = 0
        """Issued so far."""
        self.sid, self.model, self.start = sid, model, start
        self._edges, self._root = edges, root
        self._transport, self._roster, self._clock = transport, roster, clock
        self._admission = admission
        self._asking = Asking(transport, roster, clock)
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
        close = m.Close(m.WIRE, self.sid, [place.epoch])
        self._transport.publish(subjects.control(place.address), m.encode(close))

    def _pick(self, missing: set[str]) -> None:
        for stage in missing:
            if stage in self.places:
                self._give_up(self.places.pop(stage))
        for stage in filter(missing.__contains__, STAGES):
            address = self._admission.pick(stage, self.model, self._chosen(), self._refused)
            if address is None:
                raise Refused(*self._why_none(stage))
            self.epochs += 1
            self._picked[stage] = self._clock()
            self.places[stage] = Place(address, (self._root.epoch[0], self.epochs))

    def _chosen(self, without: str = "") -> dict[str, str]:
        """The workers of the stages placed so far."""
        return {stage: place.address for stage, place in self.places.items() if stage not in (ROOT, without)}

    def _why_none(self, stage: str) -> tuple[str, str]:
        return self._admission.why_none(stage, self.model, self._refused, self._absent)

    async def _place(self, stage: str, fresh: bool, deadline: float) -> bool:
        """Whether the stage has its owner; if not, another worker may take it.  Where there is none, `Refused` at
        once: a client must not wait for the other stages' openings to hear that this one is full."""
        try:
            await self._settle(stage, fresh, deadline)
            return True
        except Failed as why:
            raise Refused("session_failed", str(why)) from why
        except TimeoutError:
            late = f"No owner could be found within {START_S:.0f} s. Try again later."
            raise Refused("model_unavailable", late) from None
        except NoPlace as why:
            address = self.places[stage].address
            log.info("claim not taken", sid=self.sid, worker=address, why=str(why))
            self._refused.add(address)
            self._roster.refused(address, self._picked.pop(stage))
            if isinstance(why, Absent):
                self._absent.add(address)
            if not self._admission.has_room(stage, self.model, self._chosen(without=stage), self._refused):
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
                self.sid,
                stage,
                self.model,
                place.epoch,
                self._root.address,
                self.start,
                wired,
            )
            await self._asking.claim(place, claim, deadline)
        else:
            await self._asking.route(place, m.Route(m.WIRE, self.sid, place.epoch, wired), deadline)
