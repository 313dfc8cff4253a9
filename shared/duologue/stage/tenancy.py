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
    """Asks the pods, one request for all the sessions that a pod has here and was silent about."""

    def __init__(
        self,
        transport: Transport,
        address: str,
        owners: Mapping[tuple[str, m.Epoch], Owner],
        *,
        clock: Callable[[], float],
        close: Callable[[Owner], None],
    ) -> None:
        self._transport, self._address, self._owners, self._clock, self._close = (
            transport,
            address,
            owners,
            clock,
            close,
        )
        self._asking: dict[str, asyncio.Task[None]] = {}

    def check(self) -> None:
        """To be called at every tick."""
        now = self._clock()
        silent: defaultdict[str, list[Owner]] = defaultdict(list)
        for owner in list(self._owners.values()):
            if owner.orphan_since is not None and now - owner.orphan_since > ORPHAN_S:
                self._let_go(owner, "nobody knows its root")
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
                owner.heard, owner.orphan_since = now, None
                if (owner.sid, owner.epoch) in answer.no:
                    self._let_go(owner, "its root does not want it")
                continue
            owner.heard = now - SILENCE_S + AGAIN_S
            if owner.orphan_since is None:
                owner.orphan_since = now
            elif answer is Silence.GONE and not owner.resumable and now - owner.orphan_since > GONE_S:
                self._let_go(owner, "its root's process has ended")

    async def _request(self, pod: str, asked: m.Mine) -> "m.Yours | Silence":
        try:
            reply = await self._transport.request(subjects.control(pod), m.encode(asked), ANSWER_S)
            answer = m.decode_control(reply)
        except NoResponders:
            return Silence.GONE if self._transport.settled_s >= SETTLE_S else Silence.UNKNOWN
        except (TransportError, m.Malformed):
            return Silence.UNKNOWN
        return answer if isinstance(answer, m.Yours) else Silence.UNKNOWN

    def _let_go(self, owner: Owner, why: str) -> None:
        log.info("owner closed", sid=owner.sid, worker=self._address, why=why)
        self._close(owner)
