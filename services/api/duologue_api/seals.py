"""The seals of all of a pod's sessions: one message to each worker that lives, for all sessions that it has in common with
the dead (CONTINUITY §3.1)."""

import asyncio

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import Transport


class Seals:
    """Gathers what its roots ask in one turn of the loop."""

    def __init__(self, transport: Transport, address: str) -> None:
        self._transport, self._address = transport, address
        self._asked: dict[str, list[m.SealOf]] = {}

    def ask(self, worker: str, seal: m.SealOf) -> None:
        """To be asked again by whoever waits for the answer."""
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._send)
        self._asked.setdefault(worker, []).append(seal)

    def _send(self) -> None:
        asked, self._asked = self._asked, {}
        for worker, seals in asked.items():
            seal = m.Seal(m.WIRE, self._address, seals)
            self._transport.publish(subjects.control(worker), m.encode(seal))
