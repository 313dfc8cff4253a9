"""Incident: a session was started while the bus was away.  Requests then fail at once, and asking again without a pause
kept the pod's event loop, so that it neither reconnected nor answered anybody for the 60 s of the attempt."""

import asyncio
import random

import pytest

from duologue.bus import messages as m
from duologue.bus.transport import RequestTimeout
from duologue.models import ROOT, STAGES
from duologue.models.manifest import CHAIN
from duologue.virtual import run_virtual
from duologue_api.admission import Admission
from duologue_api.asking import AGAIN_S
from duologue_api.opening import Opening
from duologue_api.placement import Roster
from duologue_api.wiring import Place

pytestmark = pytest.mark.unit

OUTAGE_S = 2.0


class AwayBus:
    """A transport without connection until `OUTAGE_S`; then every claim is taken."""

    def __init__(self) -> None:
        self.failed = 0

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        if asyncio.get_running_loop().time() < OUTAGE_S:
            self.failed += 1
            assert self.failed < 1000, "asked again and again without a pause"
            raise RequestTimeout("no connection")
        claim = m.decode(data, m.Claim)
        return m.encode(m.Claimed(m.WIRE, claim.sid, claim.epoch, m.OPEN))

    def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        raise AssertionError(f"nothing is given up, but {subject} is told so")


def test_a_session_that_starts_while_the_bus_is_away_waits_for_it() -> None:
    async def scenario() -> None:
        clock = asyncio.get_running_loop().time
        roster = Roster({"parrot": 0.08}, clock=clock, settled_s=lambda: 0.0, rng=random.Random(1))
        for stage in STAGES:
            places = {"parrot": m.Places(1, 0)}
            roster.on_heartbeat(m.Heartbeat(m.WIRE, m.LEDGER, f"{stage}.w", m.READY, places))
        bus = AwayBus()
        opening = Opening(
            "live_1",
            "parrot",
            m.Start(7),
            CHAIN,
            Place("api.pod", (1, 0)),
            transport=bus,  # type: ignore[arg-type]  # all that it uses
            roster=roster,
            admission=Admission(roster, {"parrot": 0.08}, clock=clock, gather_s=0.02),
            clock=clock,
        )
        assert set(await opening.run()) == {ROOT, *STAGES}
        assert OUTAGE_S <= clock() <= OUTAGE_S + 2 * AGAIN_S
        assert bus.failed >= len(STAGES)

    run_virtual(scenario(), limit_s=10)
