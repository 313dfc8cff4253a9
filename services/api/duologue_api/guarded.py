"""What ends one session, and not the handling of all the others."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Breakable(Protocol):
    def broke(self, bug: Exception) -> None:
        """Its own code raised `bug`.  Raises nothing."""
        ...


P = ParamSpec("P")
B = TypeVar("B", bound=Breakable)


def guarded(method: Callable[Concatenate[B, P], None]) -> Callable[Concatenate[B, P], None]:
    """For methods that timers and the bus call, where nobody else waits for what they raise."""

    @wraps(method)
    def run(self: B, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as bug:
            self.broke(bug)

    return run
