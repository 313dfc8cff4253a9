"""The root's states and what may happen in each (DESIGN §6)."""

from enum import Enum


class State(Enum):
    """`connecting → starting → active ⇄ suspended → closing → closed`."""

    CONNECTING = "connecting"
    STARTING = "starting"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    CLOSING = "closing"
    CLOSED = "closed"


class Input(Enum):
    """Everything that can happen to a root."""

    START = "start"
    """`session.start` with a valid configuration."""
    AUDIO = "audio"
    COMMAND = "command"
    """Any other command of the client's: mute, unmute, `session.update`."""
    CLOSE = "close"
    """`session.close`."""
    GONE = "gone"
    """The client's transport ended."""
    OPENED = "opened"
    """Every stage has an owner."""
    REFUSED = "refused"
    """The session can't be started."""
    UNIT = "unit"
    """An output unit came."""
    LOST = "lost"
    """An owner's worker fell silent."""
    BACK = "back"
    """All owners' workers are alive again."""
    EXPIRED = "expired"
    """The session's lifetime is over."""
    FAILED = "failed"
    """A stage lost the session beyond recovery, the server made a mistake, or a limit ends the session."""
    DRAINED = "drained"
    """The last unit's output has gone out, or the drain took too long."""


class IllegalStep(RuntimeError):
    """A bug: something happened that can't happen in that state."""


S, I = State, Input  # noqa: E741 - two letters keep the table one row a line
TABLE: dict[tuple[State, Input], State] = {
    (S.CONNECTING, I.START): S.STARTING,
    (S.CONNECTING, I.GONE): S.CLOSED,
    (S.CONNECTING, I.FAILED): S.CLOSED,
    (S.STARTING, I.AUDIO): S.STARTING,
    (S.STARTING, I.COMMAND): S.STARTING,
    (S.STARTING, I.CLOSE): S.STARTING,
    (S.STARTING, I.GONE): S.CLOSED,
    (S.STARTING, I.OPENED): S.ACTIVE,
    (S.STARTING, I.REFUSED): S.CLOSED,
    (S.STARTING, I.FAILED): S.CLOSED,
    (S.ACTIVE, I.AUDIO): S.ACTIVE,
    (S.ACTIVE, I.COMMAND): S.ACTIVE,
    (S.ACTIVE, I.UNIT): S.ACTIVE,
    (S.ACTIVE, I.LOST): S.SUSPENDED,
    (S.ACTIVE, I.CLOSE): S.CLOSING,
    (S.ACTIVE, I.EXPIRED): S.CLOSING,
    (S.ACTIVE, I.FAILED): S.CLOSED,
    (S.ACTIVE, I.GONE): S.CLOSED,
    (S.SUSPENDED, I.AUDIO): S.SUSPENDED,
    (S.SUSPENDED, I.COMMAND): S.SUSPENDED,
    (S.SUSPENDED, I.UNIT): S.SUSPENDED,
    (S.SUSPENDED, I.BACK): S.ACTIVE,
    (S.SUSPENDED, I.CLOSE): S.CLOSING,
    (S.SUSPENDED, I.EXPIRED): S.CLOSING,
    (S.SUSPENDED, I.FAILED): S.CLOSED,
    (S.SUSPENDED, I.GONE): S.CLOSED,
    (S.CLOSING, I.AUDIO): S.CLOSING,
    (S.CLOSING, I.COMMAND): S.CLOSING,
    (S.CLOSING, I.UNIT): S.CLOSING,
    (S.CLOSING, I.CLOSE): S.CLOSING,
    (S.CLOSING, I.EXPIRED): S.CLOSING,
    (S.CLOSING, I.DRAINED): S.CLOSED,
    (S.CLOSING, I.FAILED): S.CLOSED,
    (S.CLOSING, I.GONE): S.CLOSED,
    # What was under way when the session ended comes to nothing.
    **{
        (S.CLOSED, late): S.CLOSED
        for late in (I.AUDIO, I.COMMAND, I.CLOSE, I.GONE, I.OPENED, I.REFUSED, I.UNIT, I.FAILED)
    },
}


def after(state: State, what: Input) -> State:
    """The state that follows.  Raises `IllegalStep`, naming what was expected and what came."""
    following = TABLE.get((state, what))
    if following is None:
        expected = ", ".join(i.value for s, i in TABLE if s is state)
        raise IllegalStep(f"{what.value!r} came while {state.value}; expected: {expected}")
    return following
