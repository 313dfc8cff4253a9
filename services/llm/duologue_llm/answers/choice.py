"""Which answerer a worker has, by its options."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from duologue_llm.answers.question import Answerer
from duologue_llm.answers.rules import Rules


def choose(options: Mapping[str, Any]) -> Answerer:
    """`clock` among the options tells the local time; without it the machine's does."""
    clock = options.get("clock") or (lambda: datetime.now().astimezone())
    return Rules(clock)
