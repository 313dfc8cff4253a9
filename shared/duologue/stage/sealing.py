"""How a worker answers a seal: from the event loop, whatever the model thread does (CONTINUITY §3.1)."""

from collections.abc import Collection, Iterator

from duologue.bus import messages as m
from duologue.stage.owner import Owner


def seal(owners: Collection[Owner], asked: m.SealOf) -> m.SealedOf:
    """Fences the replaced owners of one session out of its `owners` here, and tells how these stand."""
    living = [owner for owner in owners if owner.sid == asked.sid and owner.epoch not in asked.epochs]
    for owner in living:
        owner.endpoint.seal(asked.epochs, asked.fresh)
        owner.hear()
    standings = [owner.standing(asked.since) for owner in living]
    return m.SealedOf(asked.sid, asked.root_epoch, asked.round, standings)


def answers(address: str, sealed: Collection[m.SealedOf]) -> Iterator[bytes]:
    """Messages that stay below `MAX_MESSAGE_BYTES` each, with whole sessions (a single larger one is by itself)."""
    part: list[m.SealedOf] = []
    size = 0
    for each in sealed:
        bytes_ = len(m.encode(each))
        if part and size + bytes_ > m.MAX_MESSAGE_BYTES:
            yield m.encode(m.Sealed(m.WIRE, address, part))
            part, size = [], 0
        part.append(each)
        size += bytes_
    if part:
        yield m.encode(m.Sealed(m.WIRE, address, part))
