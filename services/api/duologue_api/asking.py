"""Requests of a root to workers, asked again until there is an answer: for a place, and about the route."""

import asyncio
from collections.abc import Callable

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import NoResponders, RequestTimeout, Transport
from duologue_api.placement import Life, Roster
from duologue_api.wiring import Place

ATTEMPT_S = 1.0
PATIENCE_S = 0.15
"""Of the first attempt of a request whose answer takes no work; each further one waits twice as long, up to `ATTEMPT_S`."""
AGAIN_S = 0.05
"""Between two attempts: without a connection they fail at once."""


class NoPlace(Exception):
    """This worker does not take it; another one may."""


class Absent(NoPlace):
    """This worker does not answer."""


class Failed(Exception):
    """The model could not open the session there."""


class Asking:
    """Asks for one session, of workers that count as alive."""

    def __init__(self, transport: Transport, roster: Roster, clock: Callable[[], float]) -> None:
        self._transport, self._roster, self._clock = transport, roster, clock

    async def claim(self, place: Place, claim: m.Claim, deadline: float) -> None:
        """Returns when the owner is open.  Raises `NoPlace`, `Failed`, and `TimeoutError` after the deadline."""
        while True:
            data = await self._ask(subjects.claims(place.address), claim, place, deadline)
            try:
                answer = m.decode(data, m.Claimed)
            except m.Malformed as error:
                raise NoPlace(str(error)) from error
            if answer.state == m.OPEN:
                return
            if answer.state == m.FAILED:
                raise Failed(answer.message)
            if answer.state != m.OPENING:
                raise NoPlace(answer.message or answer.state)

    async def route(self, place: Place, route: m.Route, deadline: float) -> None:
        """Returns when the owner has the route.  Raises `NoPlace`, and `TimeoutError` after the deadline."""
        data = await self._ask(subjects.control(place.address), route, place, deadline)
        try:
            reply = m.decode_control(data)
        except m.Malformed as error:
            raise NoPlace(str(error)) from error
        if not isinstance(reply, m.Routed) or not reply.known:
            raise NoPlace("lost the session")

    async def confirm(self, place: Place, route: m.Route) -> m.Routed:
        """The owner's answer to a route, however long it takes: whoever asks judges meanwhile whether the worker lives."""
        subject, data = subjects.control(place.address), m.encode(route)
        patience_s = PATIENCE_S
        while True:
            try:
                reply = m.decode_control(await self._transport.request(subject, data, patience_s))
                if isinstance(reply, m.Routed):
                    return reply
            except (NoResponders, RequestTimeout, m.Malformed):
                patience_s = min(2 * patience_s, ATTEMPT_S)
            await asyncio.sleep(AGAIN_S)

    async def _ask(self, subject: str, message: m.Struct, place: Place, deadline: float) -> bytes:
        data = m.encode(message)
        while self._clock() < deadline:
            try:
                return await self._transport.request(subject, data, ATTEMPT_S)
            except NoResponders as error:
                raise Absent("nobody listens there") from error
            except RequestTimeout as error:
                if self._roster.judge(place.address) is not Life.ALIVE:
                    raise Absent("silent") from error
                await asyncio.sleep(AGAIN_S)
        raise TimeoutError
