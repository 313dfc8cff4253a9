"""Looking at the bus: everything is seen, and nobody notices."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from duologue.bus import subjects, tape
from duologue.bus.connection import MAX_PAYLOAD
from duologue.bus.memory import MemoryBus, MemoryTransport
from duologue.bus.messages import WIRE, encode
from duologue.bus.tape import AGAIN_S, MOST_BACKLOG, WANTED_S, Copy, Tap, Taped
from duologue.bus.transport import Message, NoResponders, TransportError
from duologue.virtual import run_virtual

pytestmark = pytest.mark.unit

WORKER, OTHER = "llm.llm-1", "talker.tal-1"


class Deployment:
    """Two processes on a bus in memory, and what a tap saw of them."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.published: list[str] = []
        self.seen: list[Copy] = []
        self.bus.observe(lambda message: self.published.append(message.subject))

    async def process(self, name: str = "process") -> Taped:
        clock = asyncio.get_running_loop().time
        taped = Taped(MemoryTransport(self.bus, name), clock=clock)
        await taped.connect()
        return taped

    async def tap(self, *kinds: str) -> Tap:
        transport = MemoryTransport(self.bus, "tap")
        await transport.connect()
        tap = Tap(transport, kinds, self.seen.append)
        await tap.start()
        return tap

    def copies(self) -> list[str]:
        return [subject for subject in self.published if ".tape.copy." in subject]


def play(story: Callable[[Deployment], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await story(Deployment())

    run_virtual(main(), limit_s=60)


def settle() -> Coroutine[Any, Any, None]:
    """Everything under way has arrived, and no new notice was due."""
    return asyncio.sleep(AGAIN_S / 10)


def test_who_looks_hides_nobodys_absence() -> None:
    """A tap that subscribed to inboxes made the server believe that dead workers listen: no 503 came any more, and a
    session waited for its dead worker for 30 s instead of 3."""

    async def story(deployment: Deployment) -> None:
        await deployment.tap(*subjects.KINDS)
        process = await deployment.process()
        notices: list[Message] = []
        await process.subscribe(subjects.acks(WORKER), notices.append)
        process.publish(subjects.inbox(OTHER), b"unit", subjects.acks(WORKER))
        await settle()
        assert [(n.subject, n.no_responders) for n in notices] == [(subjects.inbox(OTHER), True)]
        assert deployment.seen == [
            Copy(WIRE, subjects.inbox(OTHER), subjects.acks(WORKER), b"unit"),
            Copy(WIRE, subjects.inbox(OTHER), no_responders=True),
        ]

    play(story)


def test_a_request_its_answer_and_its_503_are_seen() -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.tap("claim")
        asks, answers = await deployment.process("asks"), await deployment.process("answers")
        await answers.subscribe(
            subjects.claims(WORKER), lambda message: answers.publish(message.reply, b"open")
        )
        assert await asks.request(subjects.claims(WORKER), b"claim", 1.0) == b"open"
        with pytest.raises(NoResponders):
            await asks.request(subjects.claims(OTHER), b"claim", 1.0)
        await settle()
        kinds = [subjects.kind_of(copy.subject) for copy in deployment.seen]
        assert kinds == ["claim", subjects.ANSWER, "claim", "claim"]
        assert [copy.data for copy in deployment.seen] == [b"claim", b"open", b"claim", b""]
        assert [copy.no_responders for copy in deployment.seen] == [False, False, False, True]

    play(story)


def test_the_first_message_of_a_process_is_seen() -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.tap("in")
        for number in range(3):
            process = await deployment.process()
            process.publish(subjects.inbox(WORKER), b"%d" % number)
        await settle()
        assert [copy.data for copy in deployment.seen] == [b"0", b"1", b"2"]

    play(story)


def test_every_tap_is_heard_by_a_process_that_connects() -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.tap("in")
        await deployment.tap("ctl")
        process = await deployment.process()
        await asyncio.sleep(0.001)
        process.publish(subjects.inbox(WORKER), b"unit")
        process.publish(subjects.control(WORKER), b"close")
        await settle()
        assert [copy.data for copy in deployment.seen] == [b"unit", b"close"]

    play(story)


def test_copies_cost_nothing_while_nobody_looks() -> None:
    async def story(deployment: Deployment) -> None:
        process = await deployment.process()
        process.publish(subjects.inbox(WORKER), b"before")
        tap = await deployment.tap("in")
        await settle()
        process.publish(subjects.inbox(WORKER), b"while")
        process.publish(subjects.claims(WORKER), b"not wanted")
        await settle()
        await tap.stop()
        await asyncio.sleep(WANTED_S + AGAIN_S)
        process.publish(subjects.inbox(WORKER), b"after")
        await settle()
        assert [copy.data for copy in deployment.seen] == [b"while"]
        assert deployment.copies() == [subjects.copies("in")]

    play(story)


def test_a_tap_that_stays_goes_on_seeing() -> None:
    async def story(deployment: Deployment) -> None:
        process = await deployment.process()
        await deployment.tap("in")
        for number in range(5):
            await asyncio.sleep(WANTED_S)
            process.publish(subjects.inbox(WORKER), b"%d" % number)
        await settle()
        assert [copy.data for copy in deployment.seen] == [b"0", b"1", b"2", b"3", b"4"]

    play(story)


def test_what_is_no_request_is_seen_without_copies() -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.tap("hb", "ev", "ack")
        process = await deployment.process()
        sent = [subjects.heartbeat(WORKER), subjects.event("opened", "live_1"), subjects.acks(WORKER)]
        for subject in sent:
            process.publish(subject, b"x")
        process.publish(subjects.inbox(WORKER), b"x")
        await settle()
        assert [copy.subject for copy in deployment.seen] == sent
        assert deployment.copies() == []

    play(story)


class Narrow(MemoryTransport):
    full = 0.0

    @property
    def backlog(self) -> float:
        return self.full


def test_copies_give_way_to_messages_and_are_counted() -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.tap("in")
        narrow = Narrow(deployment.bus, "narrow")
        process = Taped(narrow, clock=asyncio.get_running_loop().time)
        await process.connect()
        got: list[bytes] = []
        other = await deployment.process()
        await other.subscribe(subjects.inbox(WORKER), lambda message: got.append(message.data))
        for full, data in ((0.0, b"0"), (MOST_BACKLOG + 0.01, b"1"), (1.0, b"2"), (MOST_BACKLOG, b"3")):
            narrow.full = full
            process.publish(subjects.inbox(WORKER), data)
        process.publish(subjects.inbox(WORKER), b"4")
        await settle()
        assert got == [b"0", b"1", b"2", b"3", b"4"]
        assert [(copy.data, copy.skipped) for copy in deployment.seen] == [(b"0", 0), (b"3", 2), (b"4", 0)]

    play(story)


def test_a_message_as_large_as_the_bus_takes_has_no_copy() -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.tap("in")
        process = await deployment.process()
        process.publish(subjects.inbox(WORKER), bytes(MAX_PAYLOAD))
        with pytest.raises(TransportError):
            process.publish(subjects.inbox(WORKER), bytes(MAX_PAYLOAD + 1))
        process.publish(subjects.inbox(WORKER), b"small")
        await settle()
        assert [(copy.data, copy.skipped) for copy in deployment.seen] == [(b"small", 1)]

    play(story)


def test_garbage_on_its_subjects_is_survived() -> None:
    async def story(deployment: Deployment) -> None:
        process = await deployment.process()
        tap = await deployment.tap("in")
        stranger = MemoryTransport(deployment.bus, "stranger")
        await stranger.connect()
        stranger.publish(subjects.taping(), b"garbage")
        stranger.publish(subjects.taping(), encode(tape.Taping(WIRE, ["in", "nonsense"])))
        stranger.publish(subjects.copies("in"), b"garbage")
        await settle()
        process.publish(subjects.inbox(WORKER), b"unit")
        await settle()
        assert [copy.data for copy in deployment.seen] == [b"unit"]
        assert tap.unreadable == 1

    play(story)


def test_everything_else_is_the_transports() -> None:
    async def story(deployment: Deployment) -> None:
        process = await deployment.process()
        await asyncio.sleep(1)
        assert process.connected
        assert process.settled_s >= 1
        assert process.backlog == 0
        await (await process.bucket("b")).put("k", b"v")
        got: list[Message] = []
        unsubscribe = await process.subscribe("x", got.append)
        await unsubscribe()
        process.publish("x", b"")
        await settle()
        assert got == []
        await process.close()
        assert not process.connected

    play(story)
