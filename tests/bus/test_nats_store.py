"""Buckets: what only the real store does.  The rest is in test_bucket_contract.py."""

import asyncio

import pytest

from bus.rig import connected, raw
from duologue.bus.nats import NatsTransport
from duologue.bus.nats_store import NatsBucket
from duologue.bus.server import EmbeddedServer
from duologue.bus.transport import Bucket, Entry, StoreUnavailable, WrongRevision

pytestmark = pytest.mark.bus


def test_a_deletion_marker_counts_as_nothing(server: EmbeddedServer, root: str) -> None:
    """Markers come from other tools, such as `nats kv del`."""

    async def main() -> None:
        a = NatsTransport(server.url, name="a")
        async with connected(a), raw(server.url) as other:
            bucket = await a.bucket(root)
            await bucket.put("key", b"1")
            await (await other.jetstream().key_value(root)).delete("key")
            assert await bucket.get("key") is None
            revision = await bucket.update("key", b"2", 0)
            assert await bucket.get("key") == Entry(b"2", revision)
            with pytest.raises(WrongRevision):
                await bucket.update("key", b"3", 0)

    asyncio.run(main())


def test_how_buckets_are_made(server: EmbeddedServer, root: str) -> None:
    async def main() -> None:
        a, b = NatsTransport(server.url, name="a"), NatsTransport(server.url, name="b")
        async with connected(a, b), raw(server.url) as other:
            first = await a.bucket(root, max_value_bytes=1000, max_age_s=3600)
            assert await a.bucket(root) is first
            await b.bucket(root, max_value_bytes=2000)
            config = (await other.jetstream().stream_info(f"KV_{root}")).config
            assert config.allow_direct
            assert (config.storage, config.max_msgs_per_subject, config.num_replicas) == ("file", 1, 1)
            assert config.max_msg_size == 1000 + 512
            assert config.max_age == 3600

    asyncio.run(main())


def test_a_bucket_that_vanished_is_made_again(server: EmbeddedServer, root: str) -> None:
    async def put(bucket: Bucket, key: str) -> None:
        await bucket.put(key, b"")

    async def main() -> None:
        a = NatsTransport(server.url, name="a")
        async with connected(a), raw(server.url) as other:
            for call in (NatsBucket.get, NatsBucket.keys, NatsBucket.delete, put):
                bucket = await a.bucket(root)
                await bucket.put("key", b"1")
                await other.jetstream().delete_key_value(root)
                with pytest.raises(StoreUnavailable):
                    await call(bucket, "key")
                again = await a.bucket(root)
                await again.put("again", b"2")
                assert await again.get("again") is not None

    asyncio.run(main())


def test_many_keys_are_listed_whole(server: EmbeddedServer, root: str) -> None:
    async def main() -> None:
        a = NatsTransport(server.url, name="a")
        async with connected(a):
            bucket = await a.bucket(root)
            names = {f"live_{n % 7}.{n}" for n in range(700)}
            for some in range(0, 700, 100):
                await asyncio.gather(*(bucket.put(f"live_{n % 7}.{n}", b"") for n in range(some, some + 100)))
            assert set(await bucket.keys()) == names
            assert len(await bucket.keys("live_3.")) == 100

    asyncio.run(main())


def test_two_may_make_a_bucket_at_once(server: EmbeddedServer, root: str) -> None:
    async def main() -> None:
        transports = [NatsTransport(server.url, name=str(n)) for n in range(5)]
        async with connected(*transports):
            buckets = await asyncio.gather(
                *(transport.bucket(root, max_value_bytes=1000 + n) for n, transport in enumerate(transports))
            )
            revision = await buckets[0].put("key", b"1")
            assert [await bucket.get("key") for bucket in buckets] == [Entry(b"1", revision)] * 5

    asyncio.run(main())
