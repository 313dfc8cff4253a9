"""A client of any Live server: one session, its events typed, and the streaming of whole recordings."""

from duologue.client.address import Address, BadUrl
from duologue.client.catalogue import Model, models
from duologue.client.events import (
    AudioDelta,
    Closed,
    ErrorEvent,
    Event,
    Info,
    Other,
    TranscriptDelta,
    UsageUpdated,
)
from duologue.client.live import BadServer, ConnectionLost, LiveClient, SessionRefused, Unreachable
from duologue.client.talk import Stalled, TalkResult, stream

__all__ = [
    "Address",
    "AudioDelta",
    "BadServer",
    "BadUrl",
    "Closed",
    "ConnectionLost",
    "ErrorEvent",
    "Event",
    "Info",
    "LiveClient",
    "Model",
    "Other",
    "SessionRefused",
    "Stalled",
    "TalkResult",
    "TranscriptDelta",
    "Unreachable",
    "UsageUpdated",
    "models",
    "stream",
]
