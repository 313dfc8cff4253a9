"""The contract of `Transport`, over both of its implementations."""

import asyncio
from typing import Any

import pytest

from bus.rig import GIVE_UP_S, Bus, Inbox, barrier, connected
from duologue.bus.connection import MAX_PAYLOAD, Stats
from duologue.bus.transport import Message, NoResponders, RequestTimeout, TransportError

pytestmark = pytest.mark.bus


def stats(transport: Any) -> Stats:
    found: Stats = transport.stats
    return found


class TestContract:
    def test_a_message_reaches_its_subscriber_whole(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b, inbox = bus.transport("a"), bus.transport("b"), Inbox()
            async with connected(a, b):
                await b.subscribe(f"{root}.x", inbox)
                a.publish(f"{root}.x", bytes(range(256)), reply=f"{root}.acks")
                await inbox.count(1)
            assert inbox.messages == [Message(f"{root}.x", bytes(range(256)), f"{root}.acks")]

        bus.run(main())

    def test_order_per_publisher_and_subject(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b, inbox = bus.transport("a"), bus.transport("b"), Inbox()
            async with connected(a, b):
                await b.subscribe(f"{root}.>", inbox)
                for n in range(1000):
                    a.publish(f"{root}.x", b"%d" % n)
                    if n % 100 == 99:
                        await asyncio.sleep(0)
                assert await inbox.count(1000) == [b"%d" % n for n in range(1000)]

        bus.run(main())

    def test_a_request_does_not_overtake_what_was_published_before(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b = bus.transport("a"), bus.transport("b")
            got: list[bytes] = []

            def answer(message: Message) -> None:
                got.append(message.data)
                if message.reply:
                    b.publish(message.reply, b"")

            async with connected(a, b):
                await b.subscribe(f"{root}.x", answer)
                for n in range(50):
                    a.publish(f"{root}.x", b"%d" % n)
                await a.request(f"{root}.x", b"last", GIVE_UP_S)
            assert got == [*(b"%d" % n for n in range(50)), b"last"]

        bus.run(main())

    def test_wildcards(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b = bus.transport("a"), bus.transport("b")
            one, rest, exact = Inbox(), Inbox(), Inbox()
            async with connected(a, b):
                await b.subscribe(f"{root}.*.z", one)
                await b.subscribe(f"{root}.a.>", rest)
                await b.subscribe(f"{root}.a.z", exact)
                for subject in ("a", "a.z", "b.z", "a.y.z"):
                    a.publish(f"{root}.{subject}", subject.encode())
                await barrier(a, b, root)
            assert one.data == [b"a.z", b"b.z"]
            assert rest.data == [b"a.z", b"a.y.z"]
            assert exact.data == [b"a.z"]

        bus.run(main())

    def test_every_subscriber_gets_it_the_publisher_too(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b = bus.transport("a"), bus.transport("b")
            inboxes = [Inbox(), Inbox(), Inbox()]
            async with connected(a, b):
                for transport, inbox in zip((a, b, b), inboxes, strict=True):
                    await transport.subscribe(f"{root}.x", inbox)
                a.publish(f"{root}.x", b"1")
                assert [await inbox.count(1) for inbox in inboxes] == [[b"1"]] * 3

        bus.run(main())

    def test_nothing_comes_after_unsubscribing(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b, inbox = bus.transport("a"), bus.transport("b"), Inbox()
            async with connected(a, b):
                unsubscribe = await b.subscribe(f"{root}.x", inbox)
                a.publish(f"{root}.x", b"1")
                await inbox.count(1)
                await unsubscribe()
                await unsubscribe()
                await barrier(b, a, root)
                a.publish(f"{root}.x", b"2")
                await barrier(a, b, root)
            assert inbox.data == [b"1"]

        bus.run(main())

    def test_a_request_gets_its_answer_and_many_at_once_get_their_own(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b = bus.transport("a"), bus.transport("b")
            async with connected(a, b):
                await b.subscribe(
                    f"{root}.echo", lambda message: b.publish(message.reply, message.data + b"!")
                )
                answers = await asyncio.gather(
                    *(a.request(f"{root}.echo", b"%d" % n, GIVE_UP_S) for n in range(20))
                )
            assert answers == [b"%d!" % n for n in range(20)]

        bus.run(main())

    def test_a_request_to_nobody_fails_at_once(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a = bus.transport("a")
            async with connected(a):
                with pytest.raises(NoResponders, match=f"{root}.nobody"):
                    await a.request(f"{root}.nobody", b"", 3600)

        bus.run(main())

    def test_a_request_without_answer_times_out(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b, inbox = bus.transport("a"), bus.transport("b"), Inbox()
            async with connected(a, b):
                await b.subscribe(f"{root}.silent", inbox)
                with pytest.raises(RequestTimeout, match=f"{root}.silent"):
                    await a.request(f"{root}.silent", b"", 0.05)
                await inbox.count(1)
                b.publish(inbox.messages[0].reply, b"too late")
                await barrier(b, a, root)

        bus.run(main())

    def test_publishing_to_nobody_brings_a_notice_that_names_the_subject(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, other, inbox, not_mine = bus.transport("a"), bus.transport("other"), Inbox(), Inbox()
            async with connected(a, other):
                await a.subscribe(f"{root}.acks.a", inbox)
                await other.subscribe(f"{root}.acks.*", not_mine)
                a.publish(f"{root}.in.dead", b"unit", reply=f"{root}.acks.a")
                await inbox.count(1)
                a.publish(f"{root}.in.dead", b"unit, no reply subject")
                await barrier(a, a, root)
            assert inbox.messages == [Message(f"{root}.in.dead", b"", no_responders=True)]
            assert not_mine.messages == []

        bus.run(main())

    def test_a_listener_that_left_is_nobody(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b, inbox = bus.transport("a"), bus.transport("b"), Inbox()
            async with connected(a):
                async with connected(b):
                    await b.subscribe(f"{root}.in", inbox)
                    await a.subscribe(f"{root}.acks", inbox)
                    a.publish(f"{root}.in", b"1", reply=f"{root}.acks")
                    await inbox.count(1)

                async with asyncio.timeout(GIVE_UP_S):
                    while not inbox.messages[-1].no_responders:  # the server has yet to see b's end
                        a.publish(f"{root}.in", b"2", reply=f"{root}.acks")
                        await asyncio.sleep(0.01)
            assert inbox.messages[-1] == Message(f"{root}.in", b"", no_responders=True)

        bus.run(main())

    def test_what_is_too_large_is_refused_and_harms_nothing(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b, inbox = bus.transport("a"), bus.transport("b"), Inbox()
            async with connected(a, b):
                await b.subscribe(f"{root}.x", inbox)
                with pytest.raises(TransportError, match=rf"{MAX_PAYLOAD + 1} bytes.*{root}\.x"):
                    a.publish(f"{root}.x", bytes(MAX_PAYLOAD + 1))
                a.publish(f"{root}.x", bytes(MAX_PAYLOAD))
                a.publish(f"{root}.x", b"small")
                assert [len(data) for data in await inbox.count(2)] == [MAX_PAYLOAD, 5]
                assert a.connected

        bus.run(main())

    def test_without_a_connection_publishing_drops_and_requests_fail(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a = bus.transport("a")
            for _ in range(2):  # before connecting, and after closing
                assert not a.connected
                assert a.settled_s == 0.0
                a.publish(f"{root}.x", b"")
                with pytest.raises(RequestTimeout):
                    await a.request(f"{root}.x", b"", 3600)
                if _ == 0:
                    async with connected(a):
                        assert a.connected
                        await barrier(a, a, root)
                        assert a.settled_s > 0.0
            assert stats(a).dropped == 2

        bus.run(main())

    def test_counters(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b, inbox = bus.transport("a"), bus.transport("b"), Inbox()
            async with connected(a, b):
                await b.subscribe(f"{root}.x", inbox)
                for _ in range(3):
                    a.publish(f"{root}.x", b"12345")
                await inbox.count(3)
            assert (stats(a).published, stats(a).bytes, stats(a).dropped) == (3, 15, 0)
            assert (stats(b).delivered, stats(b).bytes, stats(b).slow_consumers) == (3, 15, 0)

        bus.run(main())

    def test_a_failing_handler_goes_to_the_loop_and_the_next_message_arrives(
        self, bus: Bus, root: str
    ) -> None:
        async def main() -> None:
            failures: list[object] = []
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: failures.append(context["exception"])
            )
            a, b, inbox = bus.transport("a"), bus.transport("b"), Inbox()

            def handler(message: Message) -> None:
                inbox(message)
                if message.data == b"bad":
                    raise KeyError("bug")

            async with connected(a, b):
                await b.subscribe(f"{root}.x", handler)
                a.publish(f"{root}.x", b"bad")
                a.publish(f"{root}.x", b"good")
                assert await inbox.count(2) == [b"bad", b"good"]
            assert [type(failure) for failure in failures] == [KeyError]

        bus.run(main())

    def test_closing_sends_what_was_published(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b, inbox = bus.transport("a"), bus.transport("b"), Inbox()
            async with connected(b):
                await b.subscribe(f"{root}.x", inbox)
                async with connected(a):
                    for n in range(100):
                        a.publish(f"{root}.x", b"%d" % n)
                assert await inbox.count(100) == [b"%d" % n for n in range(100)]

        bus.run(main())
