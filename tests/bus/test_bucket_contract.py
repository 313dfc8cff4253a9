"""The contract of `Bucket`, over both of its implementations."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bus.rig import Bus, connected
from duologue.bus.connection import MAX_PAYLOAD
from duologue.bus.transport import Entry, NoBucket, StoreUnavailable, TransportError, WrongRevision

pytestmark = pytest.mark.bus


class TestBuckets:
    def play(self, bus: Bus, root: str, play: Callable[[Any, Any], Awaitable[None]], **limits: Any) -> None:
        """`play` gets the same bucket over two connections."""

        async def main() -> None:
            a, b = bus.transport("a"), bus.transport("b")
            async with connected(a, b):
                await play(await a.bucket(root, **limits), await b.bucket(root, **limits))

        bus.run(main())

    def test_what_was_put_is_there_for_everybody(self, bus: Bus, root: str) -> None:
        async def play(mine: Any, theirs: Any) -> None:
            assert await mine.get("key") is None
            first = await mine.put("key", b"1")
            assert await theirs.get("key") == Entry(b"1", first)
            second = await theirs.put("key", b"")
            assert second > first
            assert await mine.get("key") == Entry(b"", second)

        self.play(bus, root, play)

    def test_update_wants_the_revision_that_is_there(self, bus: Bus, root: str) -> None:
        async def play(mine: Any, theirs: Any) -> None:
            first = await mine.update("key", b"1", 0)
            with pytest.raises(WrongRevision):
                await theirs.update("key", b"x", 0)
            second = await theirs.update("key", b"2", first)
            for stale in (0, first, second + 1):
                with pytest.raises(WrongRevision):
                    await mine.update("key", b"x", stale)
            assert await mine.get("key") == Entry(b"2", second)
            await mine.put("other", b"")
            await mine.update("key", b"3", second)  # revisions count per key

        self.play(bus, root, play)

    def test_of_many_that_create_a_key_one_wins(self, bus: Bus, root: str) -> None:
        async def play(mine: Any, theirs: Any) -> None:
            outcomes = await asyncio.gather(
                *(bucket.update("key", b"", 0) for bucket in (mine, theirs) * 10), return_exceptions=True
            )
            assert sum(isinstance(outcome, int) for outcome in outcomes) == 1
            assert sum(isinstance(outcome, WrongRevision) for outcome in outcomes) == 19

        self.play(bus, root, play)

    def test_a_deleted_key_is_not_there_yet(self, bus: Bus, root: str) -> None:
        async def play(mine: Any, theirs: Any) -> None:
            first = await mine.put("key", b"1")
            await mine.delete("key")
            await mine.delete("key")
            assert await theirs.get("key") is None
            assert await theirs.keys() == []
            with pytest.raises(WrongRevision):
                await theirs.update("key", b"x", first)
            again = await theirs.update("key", b"2", 0)
            assert again > first
            assert await mine.get("key") == Entry(b"2", again)

        self.play(bus, root, play)

    def test_keys_and_purge_by_prefix(self, bus: Bus, root: str) -> None:
        async def play(mine: Any, theirs: Any) -> None:
            assert await mine.keys() == []
            for key in ("live_a.1.0", "live_a.1.1", "live_a.2.0", "live_ab.1.0", "live_b"):
                await mine.put(key, b"x")
            assert sorted(await theirs.keys("live_a.")) == ["live_a.1.0", "live_a.1.1", "live_a.2.0"]
            assert sorted(await theirs.keys("live_a.1.")) == ["live_a.1.0", "live_a.1.1"]
            assert len(await theirs.keys("live_a")) == 4
            assert len(await theirs.keys()) == 5
            assert await theirs.keys("live_c.") == []
            await theirs.purge("live_a.")
            assert sorted(await mine.keys()) == ["live_ab.1.0", "live_b"]

        self.play(bus, root, play)

    def test_a_purge_may_stop_at_a_revision(self, bus: Bus, root: str) -> None:
        async def play(mine: Any, theirs: Any) -> None:
            first, second, third = [await mine.put(f"live_a.1.{number}", b"x") for number in range(3)]
            await mine.put("live_b.1.0", b"x")
            assert first < second < third
            await theirs.purge("live_a.", third)
            assert sorted(await mine.keys()) == ["live_a.1.2", "live_b.1.0"]
            await theirs.purge("live_a.", third + 1)
            assert await mine.keys() == ["live_b.1.0"]

        self.play(bus, root, play)

    def test_a_full_bucket_takes_nothing_more(self, bus: Bus, root: str) -> None:
        async def play(mine: Any, theirs: Any) -> None:
            async def fill() -> None:
                for number in range(20):
                    await mine.put(f"a.{number}", bytes(10_000))

            with pytest.raises(StoreUnavailable):
                await fill()
            before = await theirs.keys()
            assert 5 <= len(before) < 20
            await theirs.delete(before[0])
            await mine.put("b", bytes(5000))

        self.play(bus, root, play, max_bytes=100_000)

    def test_who_only_reads_makes_no_bucket(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a, b = bus.transport("a"), bus.transport("b")
            async with connected(a, b):
                for _ in range(2):
                    with pytest.raises(NoBucket):
                        await a.bucket(root, make=False)
                await (await b.bucket(root)).put("key", b"1")
                found = await (await a.bucket(root, make=False)).get("key")
                assert found is not None
                assert found.value == b"1"

        bus.run(main())

    @pytest.mark.parametrize("key", ["", ">", "a.*", "a b", ".a", "a.", "ä"])
    def test_what_is_no_key_is_refused(self, bus: Bus, root: str, key: str) -> None:
        async def play(mine: Any, theirs: Any) -> None:
            await theirs.put("other", b"")
            for call in (mine.get(key), mine.put(key, b""), mine.update(key, b"", 0), mine.delete(key)):
                with pytest.raises(TransportError) as raised:
                    await call
                assert not isinstance(raised.value, StoreUnavailable)
            with pytest.raises(TransportError, match=r"dot|no key"):
                await mine.purge(f"{key}.")
            with pytest.raises(TransportError, match="dot"):
                await mine.purge("other")
            assert await theirs.keys() == ["other"]

        self.play(bus, root, play)

    def test_values_have_a_limit_and_may_reach_it(self, bus: Bus, root: str) -> None:
        async def play(mine: Any, theirs: Any) -> None:
            revision = await mine.put("key", bytes(1000))
            await theirs.update("key", bytes(1000), revision)
            for call in (mine.put("key", bytes(1001)), mine.update("new", bytes(1001), 0)):
                with pytest.raises(TransportError, match="1001 bytes"):
                    await call
            assert len((await mine.get("key")).value) == 1000

        self.play(bus, root, play, max_value_bytes=1000)

    def test_a_value_must_fit_into_a_message(self, bus: Bus, root: str) -> None:
        """With its headers: the server would close the connection."""

        async def play(mine: Any, theirs: Any) -> None:
            for size in (MAX_PAYLOAD, MAX_PAYLOAD - 10):
                with pytest.raises(TransportError, match=f"{size} bytes"):
                    await mine.update("key", bytes(size), 0)
            revision = await mine.update("key", bytes(MAX_PAYLOAD - 512), 0)
            await mine.update("key", bytes(MAX_PAYLOAD - 512), revision)
            assert len((await theirs.get("key")).value) == MAX_PAYLOAD - 512

        self.play(bus, root, play)

    def test_without_a_connection_the_store_is_unavailable(self, bus: Bus, root: str) -> None:
        async def main() -> None:
            a = bus.transport("a")
            with pytest.raises(StoreUnavailable):
                await a.bucket(root)
            async with connected(a):
                bucket = await a.bucket(root)
                await bucket.put("key", b"")
            for call in (bucket.get("key"), bucket.put("key", b""), bucket.delete("key"), bucket.keys()):
                with pytest.raises(StoreUnavailable):
                    await call

        bus.run(main())
