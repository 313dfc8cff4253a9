"""What NATS and those who are there say."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.checkup import Server, round_trip, server_of
from duologue.bus.connection import HEADERS_BYTES, MAX_PAYLOAD
from duologue.bus.nats import NatsTransport, without_secrets
from duologue.bus.transport import Message, TransportError
from duologue.doctor.check import Check, State
from duologue.models import STAGES

LISTEN_S = 1.0
"""Four heartbeats."""
LOOK_S = 1.0
CLOCK_S = 1.0
"""Clocks that differ by more make logs and traces hard to read."""
HUNG_S = 3.0
BEHIND_S = 3.0
"""What pods write to the store each second they have to have written by then."""


async def deployed(url: str, given: bool, *, wall: Callable[[], float] = time.time) -> list[Check]:
    """All checks of the NATS server at `url` and of who is there.  That none runs is in order unless `given`."""
    if not given and not await _listens(url):
        says = f"not running at {without_secrets(url)}"
        return [
            Check(
                "nats",
                State.WARN,
                says,
                "`duologue up` starts its own; else `nats-server -js` and --nats URL",
            )
        ]
    transport = NatsTransport(url, name="duologue-doctor")
    try:
        await transport.connect()
    except TransportError as error:
        # What to do follows the cause, in which there may be colons, too.
        says, cause_ends, todo = str(error).partition("): ")
        return [Check("nats", State.FAIL, says + cause_ends[:1], todo)]
    try:
        beats, unreadable = await _listen(transport)
        found = server_of(transport)
        store = await _store(transport, wall) if found.jetstream else []
        there = [workers(beats), durability(beats), versions(beats, unreadable)]
        return [server(found, without_secrets(url)), *store, *there]
    except TransportError as error:
        return [Check("nats", State.FAIL, str(error), "is the server in order?")]
    finally:
        await transport.close()


async def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(LOOK_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return False
    writer.close()
    return True


async def _listen(transport: NatsTransport) -> tuple[dict[str, m.Heartbeat], int]:
    """The newest heartbeat of everybody who is there, and how many could not be read."""
    beats: dict[str, m.Heartbeat] = {}
    unreadable: set[str] = set()

    def on_heartbeat(message: Message) -> None:
        try:
            beat = m.decode(message.data, m.Heartbeat)
            beats[beat.address] = beat
        except m.Malformed:
            unreadable.add(message.subject)

    unsubscribe = await transport.subscribe(subjects.heartbeats(), on_heartbeat)
    await asyncio.sleep(LISTEN_S)
    await unsubscribe()
    return beats, len(unreadable)


async def _store(transport: NatsTransport, wall: Callable[[], float]) -> list[Check]:
    try:
        done = await round_trip(transport, f"duo_doctor_{secrets.token_hex(4)}", wall=wall)
    except TransportError as error:
        return [
            Check("store", State.FAIL, str(error), "may these credentials use JetStream, and has it room?")
        ]
    says = f"a value written, read and removed in {done.seconds * 1000:.1f} ms"
    return [Check("store", State.OK, says), clock(done.ahead_s)]


def server(found: Server, where: str) -> Check:
    says = f"{found.version} at {where}, JetStream {'on' if found.jetstream else 'off'}, "
    says += f"messages up to {found.max_payload >> 10} KiB"
    if not found.jetstream:
        return Check("nats", State.FAIL, says, "start nats-server with -js, and allow it to this account")
    if found.max_payload < m.MAX_MESSAGE_BYTES + HEADERS_BYTES:
        return Check("nats", State.FAIL, says, f"set max_payload of nats-server to {MAX_PAYLOAD}")
    if found.max_payload < MAX_PAYLOAD:
        return Check(
            "nats", State.WARN, says, f"set max_payload of nats-server to {MAX_PAYLOAD}, its default"
        )
    return Check("nats", State.OK, says)


def clock(ahead_s: float) -> Check:
    """Only what people read depends on wall clocks; all that is decided is decided by durations."""
    says = f"the server's is {abs(ahead_s):.3f} s {'ahead' if ahead_s >= 0 else 'behind'}"
    says += "; only logs and traces show it"
    if abs(ahead_s) > CLOCK_S:
        return Check(
            "clock", State.WARN, says, "synchronise the clocks (NTP), for the sake of logs and traces"
        )
    return Check("clock", State.OK, says)


def workers(beats: Mapping[str, m.Heartbeat]) -> Check:
    """Who is there: by model the workers of each stage with their free places, and the API pods."""
    start = "start `duologue worker STAGE --model M` and `duologue api` with the same --nats"
    if not beats:
        return Check("workers", State.WARN, "nobody is there", start)
    pods = [beat for address, beat in beats.items() if subjects.role_of(address) == subjects.API]
    parts, lacking = [], []
    for model in sorted({model for beat in beats.values() for model in beat.models}):
        stages = {stage: _workers_of(beats, stage, model) for stage in STAGES}
        parts.append(f"{model}: " + ", ".join(_stage(stage, found, model) for stage, found in stages.items()))
        lacking += [f"{stage} of {model}" for stage, found in stages.items() if not found]
    says = "; ".join([*parts, f"api pods: {len(pods)}"])
    hung = [address for address, beat in beats.items() if beat.step_age > HUNG_S]
    if hung:
        return Check("workers", State.WARN, says, f"{', '.join(hung)} hangs in a step; it ends by itself")
    if lacking or not pods:
        return Check("workers", State.WARN, says, start)
    return Check("workers", State.OK, says)


def durability(beats: Mapping[str, m.Heartbeat]) -> Check:
    """Whether the store has what sessions would need that lose their API pod."""
    pods = [beat for address, beat in beats.items() if subjects.role_of(address) == subjects.API]
    behind = {beat.address: beat.behind for beat in pods if beat.behind > BEHIND_S}
    if behind:
        says = ", ".join(f"{address} is {seconds:.0f} s behind" for address, seconds in behind.items())
        todo = "is JetStream up, and has it room (--ledger-mib, --store-mib)? Sessions go on, but not without their pod"
        return Check("durability", State.WARN, f"the store lacks what sessions did: {says}", todo)
    return Check(
        "durability", State.OK, f"the store keeps up with {sum(beat.sessions for beat in pods)} sessions"
    )


def _workers_of(beats: Mapping[str, m.Heartbeat], stage: str, model: str) -> list[m.Heartbeat]:
    return [
        beat
        for address, beat in beats.items()
        if subjects.role_of(address) == stage and model in beat.models and beat.state == m.READY
    ]


def _stage(stage: str, found: list[m.Heartbeat], model: str) -> str:
    if not found:
        return f"no {stage}"
    places = [beat.models[model] for beat in found]
    free, sessions = sum(each.free for each in places), sum(each.sessions for each in places)
    return f"{len(found)} {stage} ({free} places free, {sessions} sessions)"


def versions(beats: Mapping[str, m.Heartbeat], unreadable: int) -> Check:
    """Whether all of them can share sessions with each other and with what is installed here."""
    ours = m.WIRE, m.LEDGER
    others = sorted({(beat.v, beat.ledger) for beat in beats.values()} - {ours})
    says = f"wire {m.WIRE} and ledger {m.LEDGER} here"
    if others or unreadable:
        there = [f"wire {wire} and ledger {ledger}" for wire, ledger in others]
        there += [f"{unreadable} that can't be read"] if unreadable else []
        todo = "run the same version everywhere; sessions are only shared within one"
        return Check("versions", State.FAIL, f"{says}; there also {', '.join(there)}", todo)
    return Check("versions", State.OK, f"{says}{', and with all who are there' if beats else ''}")
