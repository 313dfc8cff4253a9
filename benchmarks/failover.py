"""How long callers wait when workers die, as a multiple of what cannot be saved: a bare takeover, measured in the same run.

24 paced sessions on `duologue up` with parrot, two workers a stage; half of the rounds with `loop`.  A round kills a random
worker, stops one for 2 s, kills workers of two stages at once, and of all four at once.  A *gap* is by how much later than
in undisturbed pacing the latest unit of a moved session came.  A *bare takeover* is what a bystander on the bus sees of the
same kills: from the kill to the server's 503, 50 ms to the second one (the probe), and a claim of a session without any past
at the worker that is left.  Every unit is compared with the parrot's reference; any that is lost or wrong counts.

Targets: gaps at most so many bare takeovers; of a stopped worker, 5 heartbeats.
"""

import asyncio
import random
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from duologue import allinone
from duologue.bench import Figure, Figures
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.nats import NatsTransport
from duologue.bus.transport import NoResponders, RequestTimeout, Transport
from duologue.drill.drill import callers, urls_of
from duologue.drill.fault import Act, Fault, parse
from duologue.drill.moves import watched
from duologue.drill.report import COUNTS, report
from duologue.drill.rounds import Answers, run_round
from duologue.drill.striking import Striker
from duologue.models import STAGES
from duologue.processes import Deployment, UpSettings

SESSIONS, EVERY_S, SEED = 24, 2.0, 7
ONE, STOP = "kill:any", "stop:any:2s"
PAIRS = ("kill:encoder+llm", "kill:llm+talker", "kill:talker+codec")
ALL = "kill:all"
PROBE_S, LOOK_S, GIVE_UP_S = 0.05, 0.02, 5.0
ENV = {"DUO_DEADLINE_UNITS": "100", "DUO_LOG_LEVEL": "error"}
"""Whether so busy a machine would have taken so many sessions is not what is asked."""
TARGETS = {
    "kill_p50_to_bare": 2.0,
    "kill_p99_to_bare": 5.0,
    "several_p99_to_bare": 10.0,
    "stop_gap_p99": 1250.0,
    "sessions_ended": 0.0,
    **{f"units_{name}": 0.0 for name in COUNTS},
}

Said = dict[str, Any]


def run(rounds: int) -> Figures:
    """Rounds of about 20 s each, on two deployments one after the other."""
    found: list[dict[str, float]] = []
    for loop, share in ((True, rounds - rounds // 2), (False, rounds // 2)):
        if share:
            found += asyncio.run(_deployed(loop, len(found), share))
    return {key: Figure.of([each[key] for each in found], _unit(key), TARGETS.get(key)) for key in found[0]}


def _unit(key: str) -> str:
    if key.endswith("_to_bare"):
        return "x"
    if "_gap_" in key or key == "bare_takeover":
        return "ms"
    return {"kills": "kills", "moved": "sessions", "sessions_ended": "sessions"}.get(key, "units")


async def _deployed(loop: bool, first: int, rounds: int) -> list[dict[str, float]]:
    found: list[dict[str, float]] = []
    deployed: list[Deployment] = []

    async def meanwhile() -> None:
        transport = NatsTransport(deployed[0].nats_url, name="duologue-bench")
        await transport.connect()
        try:
            for number in range(first, first + rounds):
                found.append(await _round(deployed[0], transport, loop, number))
        finally:
            await transport.close()

    up = UpSettings(
        models=("parrot",),
        port=0,
        workers=dict.fromkeys(STAGES, 2),
        seed=SEED,
        options={"loop": loop},
        env=ENV,
    )
    await allinone.run(up, lambda *_: None, deployed.append, meanwhile)
    if len(found) < rounds:
        raise KeyboardInterrupt
    return found


async def _round(deployment: Deployment, transport: Transport, loop: bool, number: int) -> dict[str, float]:
    rng = random.Random(number)
    bare_s: list[float] = []
    # First where the sessions are still spread evenly, so that whoever is killed has some.
    faults = [ONE, STOP, PAIRS[number % len(PAIRS)], ALL]
    with tempfile.TemporaryDirectory() as unused:
        striker = Striker(deployment, rng, Path(unused))

        async def strike(fault: Fault) -> Sequence[str]:
            lives = {child.spec.name: str((child.ready or {})["address"]) for child in deployment.children}
            struck = await striker.strike(fault)
            if fault.act is Act.KILL:
                gone = [lives[name] for name in struck]
                left = [address for address in lives.values() if address not in gone]
                bare_s.append(await _bare_s(transport, rng.choice(gone), left, number, len(bare_s)))
            return struck

        async with watched(deployment.nats_url) as moves:
            done = await run_round(
                callers(urls_of(deployment), SESSIONS),
                [parse(text) for text in faults],
                Answers(SEED, loop),
                strike,
                striker.whole,
                moves,
                every_s=EVERY_S,
                number=number,
            )
    return _figures(report([done], {}), statistics.median(bare_s) * 1000, bare_s)


async def _bare_s(transport: Transport, gone: str, left: Sequence[str], number: int, nth: int) -> float:
    """From now, when the worker `gone` was killed, until a worker of its stage has taken an empty session."""
    now = asyncio.get_running_loop().time
    began = now()
    stage, sid = subjects.role_of(gone), f"live_bench{number}x{nth}"
    asks = m.encode(m.Mine(m.WIRE, "api.bench", []))
    while not await _nobody(transport, gone, asks, LOOK_S):
        if now() - began > GIVE_UP_S:
            raise TimeoutError(f"{gone} was killed and still listens")
    await asyncio.sleep(PROBE_S)
    await _nobody(transport, gone, asks, GIVE_UP_S)
    heir = next(address for address in left if subjects.role_of(address) == stage)
    claim = m.Claim(
        m.WIRE,
        m.LEDGER,
        sid,
        stage,
        "parrot",
        (1, 1),
        "api.bench",
        m.Start(SEED),
        m.Wiring((1, 1), False, {}, {}),
    )
    answer = await transport.request(subjects.claims(heir), m.encode(claim), GIVE_UP_S)
    taken_s = now() - began
    if (state := m.decode(answer, m.Claimed).state) != m.OPEN:
        raise RuntimeError(f"the claim of an empty session is {state}")
    transport.publish(subjects.control(heir), m.encode(m.Close(m.WIRE, sid, [(1, 1)])))
    return taken_s


async def _nobody(transport: Transport, address: str, asks: bytes, timeout_s: float) -> bool:
    """Whether the server says so; of a worker that dies just now nobody says anything."""
    try:
        await transport.request(subjects.control(address), asks, timeout_s)
    except NoResponders:
        return True
    except RequestTimeout:
        return False
    return False


def _figures(said: Said, bare_ms: float, bare_s: Sequence[float]) -> dict[str, float]:
    rows: dict[str, Said] = {row["fault"]: row for row in said["faults"]}
    several = [row for fault, row in rows.items() if fault in (*PAIRS, ALL)]
    kill, stop = rows[ONE]["gap_ms"], rows[STOP]["gap_ms"]
    several_p50 = statistics.median(row["gap_ms"]["p50"] for row in several)
    several_p99 = max(row["gap_ms"]["p99"] for row in several)
    return {
        "bare_takeover": bare_ms,
        "undisturbed_gap_p99": rows["undisturbed"]["gap_ms"]["p99"],
        "kill_gap_p50": kill["p50"],
        "kill_gap_p99": kill["p99"],
        "kill_p50_to_bare": kill["p50"] / bare_ms,
        "kill_p99_to_bare": kill["p99"] / bare_ms,
        "several_gap_p50": several_p50,
        "several_gap_p99": several_p99,
        "several_p50_to_bare": several_p50 / bare_ms,
        "several_p99_to_bare": several_p99 / bare_ms,
        "stop_gap_p50": stop["p50"],
        "stop_gap_p99": stop["p99"],
        "kills": float(len(bare_s)),
        "moved": float(sum(row["moved"] for row in rows.values())),
        **{f"units_{name}": float(said["total"][name]) for name in COUNTS},
        "sessions_ended": float(said["total"]["ended"]),
    }
