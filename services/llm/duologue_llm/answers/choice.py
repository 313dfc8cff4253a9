"""Which answerer a worker has, by its options."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from duologue_llm.answers.question import Answerer
from duologue_llm.answers.rules import Rules

AUTO, NONE = "auto", "none"
"""Values of the option `llm` that are no file."""

log = structlog.get_logger()


def choose(options: Mapping[str, Any]) -> Answerer:
    """`chat_url` (with `chat_model`, `chat_key`): an endpoint.  Else `llm`: a GGUF file, or, with `auto`, SmolLM2 where its
    packages are installed.  Else rules.  `clock` tells the local time; without it the machine's does.  Raises
    `ImportError` that names what is to be installed."""
    clock = options.get("clock") or (lambda: datetime.now().astimezone())
    inline = bool(options.get("inline", False))
    if url := options.get("chat_url"):
        answerer = _chat(url, options, clock, inline)
        log.info("answers come from a chat endpoint")
        return answerer
    rules = Rules(clock)
    if path := _weights(options.get("llm", NONE)):
        log.info("answers come from a language model on this machine", file=path.name)
        return _local(path, rules, inline)
    log.info("answers come from rules")
    return rules


def _chat(url: str, options: Mapping[str, Any], clock: Any, inline: bool) -> Answerer:
    from duologue_llm.answers.chat import Chat

    model, key = options.get("chat_model", ""), options.get("chat_key", "")
    try:
        return Chat(url, model, key, clock=clock, inline=inline)
    except ImportError as error:
        raise ImportError(
            "a chat endpoint needs the openai package: pip install 'duologue[pocket]'"
        ) from error


def _weights(llm: str) -> Path | None:
    from duologue_llm.answers import local

    if llm == AUTO:
        return local.packaged() if local.available() else None
    return None if llm == NONE else Path(llm)


def _local(path: Path, rules: Rules, inline: bool) -> Answerer:
    from duologue_llm.answers.local import Local

    try:
        return Local(path, rules, inline=inline)
    except ImportError as error:
        raise ImportError("a GGUF file needs xllamacpp: pip install 'duologue[pocket-llm]'") from error
