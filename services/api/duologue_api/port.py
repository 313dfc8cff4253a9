"""The seam between the edge, which knows sockets and HTTP, and the pod with its roots, which know neither."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from duologue_api.live.config import SessionConfig
from duologue_api.live.events import ServerEvent


class Draining(Exception):
    """The pod takes no more sessions."""


class Crowded(Exception):
    """Too many clients are connected that have not started a session."""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A model of this deployment, as clients see it."""

    id: str
    description: str
    ready: bool
    """Each of the four stages has a live worker."""
    voices: tuple[str, ...]
    """The first is the default; none: the model has one voice of its own, without a name."""
    unit_s: float
    unsupported: tuple[str, ...] = ()
    """What the model has not, of `Manifest.unsupported`."""
    input_rate: int = 24_000
    """Samples a second that it hears; sessions may have others."""
    output_rate: int = 24_000
    """Samples a second that it makes."""


class Client(Protocol):
    """What a root talks to: the edge, `offline`, a test."""

    def send(self, event: ServerEvent) -> None:
        """Never waits; what it queues is bounded.  Nothing is sent after `end`."""
        ...

    def end(self, code: int, reason: str) -> None:
        """Closes the transport with `code` once everything sent before is out.  Only the first call counts."""
        ...


class Session(Protocol):
    """A root as the edge sees it.  All but `room` return at once.  What any of them raises beside `Refused` is a bug,
    for `broke`."""

    def start(self, config: SessionConfig, event_id: str | None) -> None:
        """Called at most once, before all others."""
        ...

    def append(self, audio: bytes, event_id: str | None) -> None:
        """`audio`: whole samples in the session's format, at least one.  May come before `session.started` went
        out, as the two following."""
        ...

    def mute(self, on: bool, event_id: str | None) -> None:
        """Mutes the input from here on, or unmutes it.  Raises `Refused`."""
        ...

    def update(self, config: SessionConfig, event_id: str | None) -> None:
        """`config`: that of the start, changed (`config.update`); its notices are those of the change.  Raises
        `Refused`."""
        ...

    def request_close(self, event_id: str | None) -> None:
        """Called at most once; no `append`, `mute` or `update` follows it."""
        ...

    def broke(self, bug: Exception) -> None:
        """Ends the session with `internal_error`; `disconnected` follows.  Raises nothing."""
        ...

    def disconnected(self) -> None:
        """The last call, made exactly once: the transport is gone or going, also when the root itself ended it."""
        ...

    async def room(self) -> None:
        """Returns when more input may be read.  The socket is not read in the meantime, its pongs included: with
        20 s of waiting and of input still unread in the network, the transport gives the client up."""
        ...


class Host(Protocol):
    """The pod."""

    def connect(self, client: Client) -> Session:
        """A root in the state before `session.start`.  Raises `Draining`, `Crowded`."""
        ...

    def models(self) -> Sequence[ModelStatus]: ...

    def ready(self) -> tuple[bool, str]:
        """Readiness, and why not."""
        ...
