"""A round of a drill: callers at real time, one fault after the other, and what came of it."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from duologue.client import SessionRefused, Unreachable
from duologue.draws import seed_of
from duologue.drill.caller import Call, Place, call
from duologue.drill.fault import Fault
from duologue.drill.moves import Moves
from duologue.drill.verdict import Finding, Wrong, compare, compare_texts
from duologue.models.parrot import RATE, UNIT_SAMPLES
from duologue.testing.parrot_reference import Reference, reference
from duologue.testing.signals import speechlike

RECORDINGS, RECORDING_UNITS, STRIDE_UNITS = 4, 500, 37
"""Of 40 s, begun by each caller so much later; longer calls say it again."""
AGAIN_S = 0.2
UNDISTURBED = "undisturbed"

Strike = Callable[[Fault], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Answers:
    """What an answer depends on beside the input.  `seed` `None`: it comes from the session's id."""

    seed: int | None = None
    loop: bool = False
    context_units: int = 4096


@dataclass(slots=True)
class Stretch:
    """The time from one fault (or the beginning) to the next: who was struck, what was found wrong, and by how much later
    than in undisturbed pacing the latest unit of each session came, in seconds; those of `moved` sessions by themselves."""

    fault: str
    began: float
    struck: Sequence[str] = ()
    moved: set[str] | None = None
    findings: list[Finding] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    gaps_s: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Round:
    stretches: list[Stretch]
    sessions: int
    units: int
    notices: Counter[str]


async def run_round(
    places: Sequence[Place],
    faults: Sequence[Fault],
    answers: Answers,
    strike: Strike,
    whole: Callable[[], Awaitable[None]],
    moves: Moves | None,
    *,
    every_s: float,
    number: int,
) -> Round:
    """One caller for each of `places`, who stay to the end; each fault at least `every_s` after the one before and not before
    all is whole again.  Raises what starting a session raises."""
    now = asyncio.get_running_loop().time
    stop = asyncio.Event()
    calls: list[Call] = []
    ready = [asyncio.Event() for _ in places]
    rng = random.Random(number)
    # In a thread: a loop that stood still for so long would lose its connection to the bus.
    recordings = await asyncio.to_thread(_recordings, number * len(places), len(places))
    try:
        async with asyncio.TaskGroup() as group:
            for place, recording, event in zip(places, recordings, ready, strict=True):
                phase_s = rng.uniform(0, place.unit_s)
                group.create_task(_stay(place, recording, phase_s, calls, event, stop))
            await asyncio.gather(*(each.wait() for each in ready))
            stretches = [Stretch(UNDISTURBED, now())]
            if moves is not None:
                moves.take()
            await asyncio.sleep(every_s)
            for fault in faults:
                _close(stretches[-1], moves)
                stretches.append(Stretch(fault.text, now()))
                stretches[-1].struck = await strike(fault)
                await asyncio.sleep(every_s)
                await whole()
            _close(stretches[-1], moves)
            stop.set()
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return await asyncio.to_thread(judge, calls, stretches, answers, places[0].unit_s)


def _close(stretch: Stretch, moves: Moves | None) -> None:
    if moves is not None:
        stretch.moved = moves.take()


async def _stay(
    place: Place,
    recording: npt.NDArray[np.int16],
    phase_s: float,
    calls: list[Call],
    ready: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """Calls again whenever a call was ended."""
    await asyncio.sleep(phase_s)
    while not stop.is_set():
        talk = Call(recording, place.unit_bytes // 2)
        try:
            await call(place, talk, ready, stop)
        except (Unreachable, SessionRefused):
            if not ready.is_set():
                raise
            await asyncio.sleep(AGAIN_S)
            continue
        calls.append(talk)


def _recordings(first: int, count: int) -> list[npt.NDArray[np.int16]]:
    """Each its own: one of a few, begun at another unit."""
    units = np.arange(first, first + count) * STRIDE_UNITS % RECORDING_UNITS
    return [
        np.roll(_speech(number % RECORDINGS), -int(unit) * UNIT_SAMPLES) for number, unit in enumerate(units)
    ]


@lru_cache(maxsize=4)
def _speech(seed: int) -> npt.NDArray[np.int16]:
    return speechlike(RECORDING_UNITS * UNIT_SAMPLES / RATE, seed)


# ---------------------------------------------------------------- what came of it


def judge(calls: Sequence[Call], stretches: list[Stretch], answers: Answers, unit_s: float) -> Round:
    notices: Counter[str] = Counter()
    for talk in calls:
        notices += talk.notices
        due = _due(talk, answers)
        said = due.pcm16.tobytes()
        size = 2 * talk.unit_samples
        units = [said[at : at + size] for at in range(0, len(said), size)]
        texts = [(text, round(unit * unit_s * 1000)) for unit, text in enumerate(due.texts) if text]
        found = [*compare(units, talk.came), *compare_texts(texts, talk.texts, round(unit_s * 1000))]
        if talk.shed_from is not None:
            found = [
                Finding(Wrong.SHED, each.unit, each.samples) if each.unit >= talk.shed_from else each
                for each in found
            ]
        for finding in found:
            _at(stretches, talk.began + (finding.unit + 2) * unit_s).findings.append(finding)
        if talk.ended:
            _at(stretches, talk.ended_at).ended.append(talk.ended)
        _gaps(talk, stretches, unit_s)
    return Round(stretches, len(calls), sum(talk.sent for talk in calls), notices)


def _due(talk: Call, answers: Answers) -> Reference:
    seed = answers.seed if answers.seed is not None else seed_of(talk.sid)
    return reference(talk.said, seed, loop=answers.loop, context_units=answers.context_units)


def _at(stretches: Sequence[Stretch], time: float) -> Stretch:
    """The stretch in which `time` falls; what came before the first belongs to it."""
    return next((each for each in reversed(stretches) if each.began <= time), stretches[0])


def _gaps(talk: Call, stretches: Sequence[Stretch], unit_s: float) -> None:
    """How much later than usual the latest unit of each stretch came, of those that would usually have come in it; what
    would have come within the last unit before a fault may have met it, and is the next stretch's."""
    if not talk.came_at:
        return
    came = np.array(talk.came_at)
    late = came - (talk.began + unit_s * np.arange(1, len(came) + 1))
    undisturbed = late[came < stretches[1].began] if len(stretches) > 1 else late
    usual = float(np.median(undisturbed if len(undisturbed) else late))
    expected = came - late + usual + unit_s
    ends = [*(each.began for each in stretches[1:]), float("inf")]
    for stretch, end in zip(stretches, ends, strict=True):
        within = late[(expected >= stretch.began) & (expected < end)]
        if len(within):
            stretch.gaps_s[talk.sid] = max(0.0, float(within.max()) - usual)
