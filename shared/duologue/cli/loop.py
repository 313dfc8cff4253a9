"""The event loop of services: uvloop where there is one."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from duologue.cli.logs import report_bug

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`; what goes wrong in a callback is logged."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        pass
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().set_exception_handler(report_bug)
        return runner.run(main)
