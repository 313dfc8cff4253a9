"""Questions to a NATS server that only an inspection asks."""

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import nats.errors

from duologue.bus.nats import NatsTransport
from duologue.bus.transport import StoreUnavailable

ANSWER_S = 2.0
KEY, VALUE = "probe", b"duologue"


class Server(NamedTuple):
    """What a server says of itself; `max_payload` in bytes."""

    version: str
    max_payload: int
    jetstream: bool


class RoundTrip(NamedTuple):
    """Seconds of a write and a read, and how far the server's wall clock is ahead of ours."""

    seconds: float
    ahead_s: float


def server_of(transport: NatsTransport) -> Server:
    """Of the server that the transport is connected to."""
    told = transport.client._server_info
    return Server(str(told.get("version")), transport.client.max_payload, bool(told.get("jetstream")))


async def round_trip(
    transport: NatsTransport, bucket: str, *, wall: Callable[[], float] = time.time
) -> RoundTrip:
    """Writes and reads a value in the bucket `bucket`, which is made for that and removed again.  Raises
    `TransportError`."""
    store = await transport.bucket(bucket, max_age_s=60.0)
    client = transport.client
    try:
        try:
            begin = time.perf_counter()
            await store.put(KEY, VALUE)
            found = await store.get(KEY)
            seconds = time.perf_counter() - begin
            if found is None or found.value != VALUE:
                raise StoreUnavailable(f"{bucket}: read {found} after writing {VALUE!r}")
            before = wall()
            answer = await client.request(f"$JS.API.STREAM.INFO.KV_{bucket}", b"", ANSWER_S)
            there = datetime.fromisoformat(json.loads(answer.data)["ts"]).timestamp()
            return RoundTrip(seconds, there - (before + wall()) / 2)
        finally:
            await client.jetstream(timeout=ANSWER_S).delete_key_value(bucket)
    except (nats.errors.Error, KeyError, ValueError) as error:
        raise StoreUnavailable(f"{bucket}: {error!r}") from error
