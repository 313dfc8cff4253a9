"""Answers from an endpoint that speaks OpenAI's chat completions: Ollama, vLLM, llama.cpp, OpenAI itself."""

import ipaddress
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from duologue.models import Message
from duologue.stage.background import Background
from duologue_llm.answers.call import GAP_S, MOST_S, Call, Take, Unanswered
from duologue_llm.answers.question import Answering, Needs, Question

THREADS = 64
"""As many answers may hang as a worker has sessions by default, before one waits for another."""
CONNECT_S = 3.0
INSTRUCTIONS = "You are a friendly voice assistant."
SPOKEN = (
    "You are heard, not read: answer in one to three short sentences as one speaks, "
    "without lists, markup or emoji. What the user says comes from a speech recogniser, which may have misheard."
)
CUT_OFF = "Go on exactly where you were cut off, and repeat nothing."
SPEAK_FIRST = "(I have just joined. You speak first.)"


class Chat:
    """`url` is the base, as `http://127.0.0.1:11434/v1`; without `model` the first that the endpoint offers."""

    needs = Needs()

    def __init__(
        self,
        url: str,
        model: str = "",
        key: str = "",
        *,
        clock: Callable[[], datetime],
        inline: bool = False,
        gap_s: float = GAP_S,
        most_s: float = MOST_S,
    ) -> None:
        import openai

        from duologue_llm.answers.bounded import bounded

        # At debug level they log what was said.
        for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = openai.OpenAI(
            base_url=url,
            api_key=key or "none",
            max_retries=1,
            timeout=openai.Timeout(gap_s, connect=CONNECT_S),
            # A proxy of the environment does not reach this machine's loopback.
            http_client=openai.DefaultHttpxClient(
                trust_env=not _is_loopback(url), event_hooks={"response": [bounded(most_s)]}
            ),
        )
        self._model, self._clock, self._gap_s, self._most_s = model, clock, gap_s, most_s
        self._at = urlsplit(url).netloc.rpartition("@")[2]
        self._background = Background("pocket-chat", THREADS, inline)

    def ask(self, question: Question) -> Answering:
        messages = chat_messages(question, self._clock())
        think = partial(self._think, messages)
        return Call(self._background, think, what="chat", gap_s=self._gap_s, most_s=self._most_s)

    def _think(self, messages: list[Any], take: Take) -> bool:
        import openai

        try:
            return self._stream(messages, take)
        except openai.APIStatusError as error:
            raise Unanswered(f"{self._at} answered with status {error.status_code}") from error
        except openai.APIConnectionError as error:
            raise Unanswered(f"{self._at} can't be reached: {_first(error)}") from error

    def _stream(self, messages: list[Any], take: Take) -> bool:
        if not self._model:
            self._model = self._client.models.list().data[0].id
        with self._client.chat.completions.create(
            model=self._model, messages=messages, stream=True
        ) as chunks:
            reason = None
            for chunk in chunks:
                # One without text counts too: the model is at work.
                if not take((chunk.choices[0].delta.content or "") if chunk.choices else ""):
                    break
                reason = chunk.choices[0].finish_reason if chunk.choices else reason
            return reason != "length"


def _first(error: BaseException) -> str:
    """The type of what an error came from in the end."""
    while before := error.__cause__ or error.__context__:
        error = before
    return type(error).__name__


def chat_messages(question: Question, now: datetime) -> list[dict[str, str]]:
    """As every chat template takes them: one system message, then user and assistant by turns."""
    said = [(role, text) for role, text in question.messages if role != "developer"]
    told = [text for role, text in question.messages if role == "developer"]
    system = [
        question.instructions or INSTRUCTIONS,
        *told,
        SPOKEN,
        f"It is {now:%A, %B} {now.day}, {now:%Y, %H:%M}.",
    ]
    if not question.asked.strip():
        said[-1] = ("user", SPEAK_FIRST)
    if question.begun:
        said += [("assistant", question.begun), ("user", CUT_OFF)]
    return [
        {"role": role, "content": text} for role, text in [("system", "\n\n".join(system)), *_by_turns(said)]
    ]


def _by_turns(messages: Sequence[Message]) -> Iterator[Message]:
    role, texts = "", list[str]()
    for who, text in messages:
        if who != role and texts:
            yield role, "\n".join(texts)
            texts = []
        role = who
        texts.append(text)
    if texts:
        yield role, "\n".join(texts)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
