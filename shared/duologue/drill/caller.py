"""A caller who talks at real time until the drill is over, and keeps what is answered and when."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from duologue.client import (
    AudioDelta,
    BadServer,
    Closed,
    ConnectionLost,
    ErrorEvent,
    Info,
    LiveClient,
    TranscriptDelta,
)
from duologue.drill.verdict import Text

SETTLE_S = 5.0
"""Once everything is said: so long without a unit means that no more come."""
END_S = 15.0
"""From asking for the end of the session to the end."""
NO_END = f"no session.closed within {END_S:g} s"
AS_ASKED = "close_requested"
SHED = "input_backlog"


@dataclass(frozen=True, slots=True)
class Place:
    """Where to call.  `unit_s` and `unit_bytes` (int16) are those of the model."""

    url: str
    model: str
    unit_s: float
    unit_bytes: int
    key: str | None = None


@dataclass(slots=True)
class Call:
    """One session as its caller saw it.  Unit u was said at `began` + (u + 1) units, on the event loop's clock."""

    recording: npt.NDArray[np.int16]
    """Of whole units; said over and over."""
    unit_samples: int
    began: float = 0.0
    sid: str = ""
    sent: int = 0
    """Units."""
    came: list[bytes] = field(default_factory=list)
    came_at: list[float] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    notices: Counter[str] = field(default_factory=Counter)
    shed_from: int | None = None
    """The first unit whose input the server may have dropped, as it said."""
    ended: str = ""
    """Why, where it was not the caller who ended it, and when."""
    ended_at: float = 0.0

    @property
    def said(self) -> npt.NDArray[np.int16]:
        """All that was sent, int16."""
        return np.resize(self.recording, self.sent * self.unit_samples)


async def call(place: Place, talk: Call, started: asyncio.Event, stop: asyncio.Event) -> None:
    """A whole session; says no more once `stop` is set, and leaves when everything is answered.  What ends it before
    that is told in `talk`.  Raises `Unreachable`, `SessionRefused` where it does not begin."""
    now = asyncio.get_running_loop().time
    try:
        async with LiveClient.connect(place.url, model=place.model, api_key=place.key) as client:
            talk.sid, talk.began = client.session_id, now()
            started.set()
            receiving = asyncio.create_task(_receive(client, place, talk))
            try:
                await _send(client, place, talk, stop, receiving)
                async with asyncio.timeout(END_S):
                    await receiving
            finally:
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)
    except (ConnectionLost, BadServer, TimeoutError) as error:
        # What the server said before it cut the connection tells more.
        talk.ended, talk.ended_at = talk.ended or str(error) or NO_END, talk.ended_at or now()


async def _send(
    client: LiveClient, place: Place, talk: Call, stop: asyncio.Event, receiving: "asyncio.Task[None]"
) -> None:
    """Until `stop` or the end of `receiving`."""
    now = asyncio.get_running_loop().time
    data = talk.recording.tobytes()
    units = len(data) // place.unit_bytes
    while not stop.is_set() and not receiving.done():
        await asyncio.sleep(talk.began + (talk.sent + 1) * place.unit_s - now())
        at = talk.sent % units * place.unit_bytes
        await client.append(data[at : at + place.unit_bytes])
        talk.sent += 1
    count, since = len(talk.came), now()
    while count < talk.sent and now() - since < SETTLE_S and not receiving.done():
        await asyncio.sleep(place.unit_s / 4)
        if len(talk.came) > count:
            count, since = len(talk.came), now()
    if not receiving.done():
        await client.finish()


async def _receive(client: LiveClient, place: Place, talk: Call) -> None:
    now = asyncio.get_running_loop().time
    async for event in client:
        match event:
            case AudioDelta(audio=audio):
                for at in range(0, len(audio), place.unit_bytes):
                    talk.came.append(audio[at : at + place.unit_bytes])
                    talk.came_at.append(now())
            case TranscriptDelta(heard=False):
                talk.texts.append((event.text, event.start_ms))
            case ErrorEvent() | Info():
                talk.notices[event.code] += 1
                if event.code == SHED and talk.shed_from is None:
                    talk.shed_from = len(talk.came)
            case Closed(reason=reason) if reason != AS_ASKED:
                talk.ended, talk.ended_at = reason, now()
