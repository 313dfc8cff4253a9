"""Placing a session: an owner for every stage, by directed claims, all at once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import NoResponders, RequestTimeout, Transport
from duologue.models import ROOT, STAGES, Edge
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
        clock: Callable[[], float],
    ) -> None:
        self.places: dict[str, Place] = {ROOT: root}
        self.wirings = 0
        self._sid, self._model, self._start, self._edges, self._root = sid, model, start, edges, root
        self._transport, self._roster, self._clock = transport, roster, clock
        self._epochs = 0
        self._refused: set[str] = set()

    async def run(self) -> Mapping[str, Place]:
        """An owner for every stage, all wired.  Raises `Refused`."""
        deadline = self._clock() + START_S
        missing = set(STAGES)
        while missing:
            self._pick(missing)
            self.wirings += 1
            outcomes = await asyncio.gather(
                *(self._settle(stage, stage in missing, deadline) for stage in STAGES), return_exceptions=True
            )
            missing = set()
            for stage, outcome in zip(STAGES, outcomes, strict=True):
                if isinstance(outcome, _NoPlace):
                    log.info(
                        "claim not taken", sid=self._sid, worker=self.places[stage].address, why=str(outcome)
                    )
                    missing.add(stage)
                elif isinstance(outcome, BaseException):
                    raise outcome
        return self.places

    def close(self) -> None:
        """Gives up every place, those whose claims are still under way included."""
        for stage, place in self.places.items():
            if stage != ROOT:
                self._give_up(place)
                self._roster.freed(place.address)

    def _give_up(self, place: Place) -> None:
        close = m.Close(m.WIRE, self._sid, [place.epoch])
        self._transport.publish(subjects.control(place.address), m.encode(close))

    def _pick(self, missing: set[str]) -> None:
        for stage in missing:
            if stage in self.places:
                refusing = self.places.pop(stage)
                self._refused.add(refusing.address)
                self._give_up(refusing)
        for stage in missing:
            address = self._roster.pick(stage, self._model, self._refused)
            if address is None:
                raise Refused(*self._why_none(stage))
            self._epochs += 1
            self.places[stage] = Place(address, (self._root.epoch[0], self._epochs))

    def _why_none(self, stage: str) -> tuple[str, str]:
        if self._roster.candidates(stage, self._model):
            return "session_limit_reached", f"Every {stage} worker of {self._model} is full. Try again later."
        return "model_unavailable", f"No {stage} worker of {self._model} is ready. Try again later."

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
            answer = m.decode(
                await self._ask(subjects.claims(place.address), claim, place, deadline), m.Claimed
            )
            if answer.state == m.OPEN:
                return
            if answer.state == m.FAILED:
                raise Refused("session_failed", answer.message)
            if answer.state != m.OPENING:
                raise _NoPlace(answer.message or answer.state)

    async def _route(self, place: Place, route: m.Route, deadline: float) -> None:
        reply = m.decode_control(await self._ask(subjects.control(place.address), route, place, deadline))
        if not isinstance(reply, m.Routed) or not reply.known:
            raise _NoPlace("lost the session")

    async def _ask(self, subject: str, message: m.Struct, place: Place, deadline: float) -> bytes:
        """Asks until there is an answer.  Raises `_NoPlace` if there will be none, `Refused` after the deadline."""
        data = m.encode(message)
        while self._clock() < deadline:
            try:
                return await self._transport.request(subject, data, ATTEMPT_S)
            except NoResponders as error:
                raise _NoPlace("nobody listens there") from error
            except RequestTimeout as error:
                if self._roster.judge(place.address) is not Life.ALIVE:
                    raise _NoPlace("silent") from error
                await asyncio.sleep(AGAIN_S)
        raise Refused(
            "model_unavailable", f"No owner could be found within {START_S:.0f} s. Try again later."
        )
