"""Logs go to standard error, for people where that is a terminal, else as JSON lines: ids and sizes, never audio, text
or keys.  An exception is told by its type and place, without its message, which may quote what a client said."""

import asyncio
import logging
import re
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from duologue.errors import place_of

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(level: str, form: str = "auto") -> None:
    """`form` is `text`, `json` or `auto`.  Other libraries' warnings become lines of the same form.  Raises
    `ValueError` for others, and for a level that is none."""
    number = LEVELS.get(level.lower())
    if number is None:
        raise ValueError(f"{level!r} is none of {', '.join(LEVELS)}")
    if form not in ("auto", "text", "json"):
        raise ValueError(f"{form!r} is none of auto, text, json")
    terminal = sys.stderr.isatty()
    text = terminal if form == "auto" else form == "text"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_message,
    ]
    render = structlog.dev.ConsoleRenderer(colors=terminal) if text else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # Looked up anew each time, since standard error may be replaced.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    # Below a warning, libraries tell what passes through them.
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING))


def report_bug(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The exception handler of a service's loop: what asyncio would say quotes arguments."""
    del loop
    error = context.get("exception")
    message = re.split(r"[(<:\n]", context["message"])[0].strip()
    structlog.get_logger().error("bug", what=message, exc_info=error)


def _without_message(_: Any, __: str, event: EventDict) -> EventDict:
    found = event.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event.update(place_of(error))
    return event
