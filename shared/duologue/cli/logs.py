"""Logs go to standard error, for people where that is a terminal, else as JSON lines."""

import logging
import sys

import structlog

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(level: str, form: str = "auto") -> None:
    """`form` is `text`, `json` or `auto`.  Raises `ValueError` for others, and for a level that is none."""
    number = LEVELS.get(level.lower())
    if number is None:
        raise ValueError(f"{level!r} is none of {', '.join(LEVELS)}")
    logging.basicConfig(stream=sys.stderr, level=max(number, logging.WARNING), format="%(name)s: %(message)s")
    terminal = sys.stderr.isatty()
    if form not in ("auto", "text", "json"):
        raise ValueError(f"{form!r} is none of auto, text, json")
    text = terminal if form == "auto" else form == "text"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if text else [structlog.processors.format_exc_info]),
            structlog.dev.ConsoleRenderer(colors=terminal) if text else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # Looked up anew each time, since standard error may be replaced.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
