"""Whether the sessions here are still wanted: an owner whose root is silent asks, and goes when nobody claims it
(CONTINUITY §3.7)."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import Enum

import structlog

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.exchange import SETTLE_S
from duologue.bus.transport import NoResponders, Transport, TransportError
from duologue.stage.owner import Owner

SILENCE_S = 2.0
ORPHAN_S = 30.0
ANSWER_S = 1.0
AGAIN_S = 0.5
"""Between two questions that nobody answered."""
GONE_S = 3.0
"""A pod at which nobody listens may be reconnecting; after this long its process has ended."""


class Silence(Enum):
    """Why there is no answer: nobody listens there, or nobody can tell."""

    GONE = "gone"
    UNKNOWN = "unknown"


log = structlog.get_logger()


class Tenancy:
    """Asks the pods, one request for all the sessions that a pod has here and was silent about.  `close` is called
    for an owner that its root disowns, `give_up` for one whose root can't be asked: it may live all the same, and
    then has to be told."""

    def __init__(
        self,
        transport: Transport,
        address: str,
        owners: Mapping[tuple[str, m.Epoch], Owner],
        *,
        clock: Callable[[], float],
        close: Callable[[Owner], None],
        give_up: Callable[[Owner, str], None],
    ) -> None:
        self._transport, self._address, self._owners, self._clock = transport, address, owners, clock
        self._close, self._give_up = close, give_up
        self._asking: dict[str, asyncio.Task[None]] = {}

    def check(self) -> None:
        """To be called at every tick."""
        now = self._clock()
        silent: defaultdict[str, list[Owner]] = defaultdict(list)
        for owner in list(self._owners.values()):
            if owner.orphan_since is not None and now - owner.orphan_since > ORPHAN_S:
                self._give_up(owner, "its root can't be found")
            elif now - owner.heard > SILENCE_S and owner.root not in self._asking:
                silent[owner.root].append(owner)
        for pod, owners in silent.items():
            self._asking[pod] = asyncio.create_task(self._ask(pod, owners))

    def stop(self) -> None:
        for task in self._asking.values():
            task.cancel()

    async def _ask(self, pod: str, owners: list[Owner]) -> None:
        asked = m.Mine(m.WIRE, self._address, [(owner.sid, owner.epoch) for owner in owners])
        try:
            answer = await self._request(pod, asked)
        finally:
            del self._asking[pod]
        now = self._clock()
        for owner in owners:
            if isinstance(answer, m.Yours):
                owner.hear()
                if (owner.sid, owner.epoch) in answer.no:
                    log.info("not wanted by its root", sid=owner.sid, worker=self._address)
                    self._close(owner)
                continue
            owner.heard = now - SILENCE_S + AGAIN_S
            owner.orphan_since = now if owner.orphan_since is None else owner.orphan_since
            if answer is not Silence.GONE:
                owner.gone_since = None
            elif owner.gone_since is None:
                owner.gone_since = now
            elif now - owner.gone_since > GONE_S and not owner.resumable:
                self._give_up(owner, "its root's process has ended")

    async def _request(self, pod: str, asked: m.Mine) -> "m.Yours | Silence":
        try:
            reply = await self._transport.request(subjects.control(pod), m.encode(asked), ANSWER_S)
            answer = m.decode_control(reply)
        except NoResponders:
            return Silence.GONE if self._transport.settled_s >= SETTLE_S else Silence.UNKNOWN
        except (TransportError, m.Malformed):
            return Silence.UNKNOWN
        return answer if isinstance(answer, m.Yours) else Silence.UNKNOWN
