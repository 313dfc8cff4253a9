"""What an operator may set at the edge."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """Times in seconds."""

    start_timeout_s: float = 60.0
    """From the upgrade to `session.start`.  Frameworks open the socket long before they know their instructions."""
    output_backlog_s: float = 5.0
    """Output audio held for a slow reader before the oldest is dropped."""
    behind_limit_s: float = 30.0
    """A reader that has not caught up so long after the first drop is given up: `output_backlog_close_s`."""
    max_queued_events: int = 1024
    max_queued_bytes: int = 4 << 20
    """Of queued events that are not audio, encoded."""
    close_timeout_s: float = 10.0
    """For what is still queued when the connection ends."""
