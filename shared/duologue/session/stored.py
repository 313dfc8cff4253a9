"""What the store has of sessions: to list them, and to read one back."""

from collections.abc import Mapping
from typing import NamedTuple

from duologue.bus.messages import Malformed, decode
from duologue.bus.transport import NoBucket, Transport
from duologue.session.record import BUCKET, SessionRecord
from duologue.session.segments import AUDIO, LEDGERS, STORE, Back, Found, place, read, read_back

BUCKETS = (LEDGERS, AUDIO, STORE)


class NoSession(LookupError):
    """The store has no such session."""


class Size(NamedTuple):
    """Of what a bucket has of a session."""

    values: int
    bytes: int


class Stored(NamedTuple):
    """A session as it was read back; `sizes` by bucket."""

    record: SessionRecord
    back: Back
    sizes: Mapping[str, Size]


async def records(transport: Transport) -> list[SessionRecord]:
    """Of all sessions that the store knows, in the order in which they were opened.  Raises `TransportError`."""
    found: dict[str, SessionRecord] = {}
    for bucket in (STORE, BUCKET):
        for key in await _keys(transport, bucket):
            if "." not in key and (value := await _get(transport, bucket, key)):
                try:
                    found[key] = decode(value, SessionRecord)
                except Malformed:
                    continue
    return sorted(found.values(), key=lambda record: (record.opened, record.sid))


async def stored(transport: Transport, sid: str) -> Stored:
    """Raises `NoSession`, `TransportError`; `Malformed` and `NewerLedger` for what can't be read here."""
    values = [await _get(transport, bucket, sid) for bucket in (BUCKET, STORE)]
    value = next(filter(None, values), None)
    if value is None:
        raise NoSession(f"there is no session {sid} in the store")
    record = decode(value, SessionRecord)
    segments: list[Found] = []
    sizes: dict[str, Size] = {}
    for bucket in BUCKETS:
        found = {key: await _get(transport, bucket, key) for key in await _keys(transport, bucket, f"{sid}.")}
        there = {
            key: value for key, value in found.items() if value is not None
        }  # others were deleted meanwhile
        segments += [Found(*place(key), read(value)) for key, value in there.items()]
        sizes[bucket] = Size(len(there), sum(map(len, there.values())))
    return Stored(record, read_back(segments, record.root_epochs), sizes)


async def _keys(transport: Transport, bucket: str, prefix: str = "") -> list[str]:
    try:
        return await (await transport.bucket(bucket, make=False)).keys(prefix)
    except NoBucket:
        return []


async def _get(transport: Transport, bucket: str, key: str) -> bytes | None:
    try:
        entry = await (await transport.bucket(bucket, make=False)).get(key)
    except NoBucket:
        return None
    return None if entry is None else entry.value
