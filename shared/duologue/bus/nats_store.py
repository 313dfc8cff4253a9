"""Key-value buckets in JetStream."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.errors import (
    APIError,
    BadRequestError,
    BucketNotFoundError,
    InvalidBucketNameError,
    InvalidKeyError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoStreamResponseError,
    NotFoundError,
)
from nats.js.kv import KeyValue

from duologue.bus.connection import HEADERS_BYTES, checked_key, checked_prefix
from duologue.bus.transport import Entry, NoBucket, StoreUnavailable, TransportError, WrongRevision

OPEN_S = 5.0
"""To make a bucket; a cluster elects a leader for it first."""
TOO_LARGE = 10054
"""JetStream's error code of a value beyond the bucket's limit."""


def bucket_config(
    name: str, max_value_bytes: int, max_age_s: float, max_bytes: int, replicas: int
) -> api.KeyValueConfig:
    return api.KeyValueConfig(
        bucket=name,
        direct=True,
        history=1,
        storage=api.StorageType.FILE,
        replicas=replicas,
        max_value_size=max_value_bytes + HEADERS_BYTES,
        ttl=max_age_s or None,
        max_bytes=max_bytes or None,
    )


async def open_bucket(
    client: Client, config: api.KeyValueConfig, timeout_s: float, connected: Callable[[], bool], make: bool
) -> "NatsBucket":
    """Binds to the bucket, or makes it.  Raises `StoreUnavailable`, `NoBucket`."""
    js = client.jetstream(timeout=OPEN_S)
    async with _errors_of(config.bucket, OPEN_S):
        try:
            kv = await js.key_value(config.bucket)
        except BucketNotFoundError:
            if not make:
                raise NoBucket(f"there is no {config.bucket}") from None
            try:
                kv = await js.create_key_value(config)
            except BadRequestError:  # somebody else made it now, with other limits
                kv = await js.key_value(config.bucket)
    return NatsBucket(client, js, kv, config, timeout_s, connected)


class NatsBucket:
    """`Bucket` in JetStream.  Every operation is tried once and takes no longer than `timeout_s`; a write that failed
    with `StoreUnavailable` may have been done."""

    def __init__(
        self,
        client: Client,
        js: JetStreamContext,
        kv: KeyValue,
        config: api.KeyValueConfig,
        timeout_s: float,
        connected: Callable[[], bool],
    ) -> None:
        assert config.max_value_size is not None
        self.lost = False
        """The bucket was found missing (or without a leader)."""
        self._client, self._js, self._kv = client, js, kv
        self._name, self._stream = config.bucket, f"KV_{config.bucket}"
        self._max_value_bytes = config.max_value_size - HEADERS_BYTES
        self._timeout_s = timeout_s
        self._connected = connected

    async def get(self, key: str) -> Entry | None:
        async with self._operation():
            try:
                found = await self._kv.get(key)
            except KeyNotFoundError:
                return None
            assert found.revision is not None
            return Entry(found.value or b"", found.revision)

    async def put(self, key: str, value: bytes) -> int:
        async with self._operation(value):
            return await self._kv.put(key, value)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        async with self._operation(value):
            if revision == 0:
                return await self._kv.create(key, value)  # unlike update it minds deletion markers
            return await self._kv.update(key, value, last=revision)

    async def delete(self, key: str) -> None:
        """Leaves no deletion marker: those would only go with the bucket's age limit."""
        async with self._operation():
            await self._js.purge_stream(self._stream, subject=f"$KV.{self._name}.{checked_key(key)}")

    async def purge(self, prefix: str, before: int = 0) -> None:
        """Deletes all keys that begin with `prefix`, which ends with a dot; with `before` only those whose revision is
        lower."""
        subject = f"$KV.{self._name}.{checked_prefix(prefix)}>"
        async with self._operation():
            await self._js.purge_stream(self._stream, seq=before or None, subject=subject)

    async def keys(self, prefix: str = "") -> list[str]:
        """From the stream's index, which costs no consumer and moves no values.  Keys that others deleted with a
        marker are listed until it is gone."""
        start = f"$KV.{self._name}."
        whole = prefix[: prefix.rfind(".") + 1]
        found: list[str] = []
        async with self._operation():
            while True:
                question = {"subjects_filter": f"{start}{whole}>", "offset": len(found)}
                answer = await self._client.request(
                    f"$JS.API.STREAM.INFO.{self._stream}", json.dumps(question).encode(), self._timeout_s
                )
                told = json.loads(answer.data)
                if "error" in told:
                    APIError.from_error(told["error"])
                page = told["state"].get("subjects") or {}
                found += page
                if not page or len(found) >= told.get("total", 0):
                    break
        return [key for subject in found if (key := subject.removeprefix(start)).startswith(prefix)]

    @asynccontextmanager
    async def _operation(self, value: bytes = b"") -> AsyncIterator[None]:
        limit = min(self._max_value_bytes, self._client.max_payload - HEADERS_BYTES)
        if len(value) > limit:
            raise TransportError(f"{len(value)} bytes are too many for {self._name}: {limit}")
        if not self._connected():
            raise StoreUnavailable(f"no connection to the store of {self._name}")
        async with _errors_of(self._name, self._timeout_s):
            try:
                yield
            except (nats.errors.NoRespondersError, NoStreamResponseError, NotFoundError):
                self.lost = True
                raise


@asynccontextmanager
async def _errors_of(bucket: str, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except KeyWrongLastSequenceError as error:
        raise WrongRevision(f"{bucket}: {error}") from error
    except (InvalidKeyError, InvalidBucketNameError) as error:
        raise TransportError(f"{bucket}: no such name is possible: {error}") from error
    except (TimeoutError, ValueError, nats.errors.Error) as error:
        if isinstance(error, APIError) and error.err_code == TOO_LARGE:
            raise TransportError(f"{bucket}: {error.description}") from error
        raise StoreUnavailable(f"{bucket}: {error or 'no answer in time'}") from error
