"""Answers by rule: small, honest about it, and right."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from duologue_llm.answers import replies
from duologue_llm.answers.phrases import RULES, Asked
from duologue_llm.answers.question import Answering, Needs, Question, Whole
from duologue_llm.answers.sums import solve, with_signs
from duologue_llm.pocket_phrases import core, plain

Clock = Callable[[], datetime]
"""Local time of the worker."""

_REPEAT = re.compile(
    r"^(?:.*?\b(?:please|can you|could you|will you|would you|now)\b[,\s]*)?(?:please\s+)?"
    r"(?:repeat(?: after me| the words| this| the following)?|say(?: after me| the words)?)\b\s*[,:;.—-]*\s*(.+)$",
    re.IGNORECASE | re.DOTALL,
)
_AGAIN = re.compile(
    r"(?:(?:repeat|say) (?:that|it|this)(?: again)?|repeat|again|say again|come again|pardon(?: me)?|sorry|excuse me|what|"
    r"what did you (?:just )?say|what was that|once more|one more time|i did (?:not|n't) (?:hear|catch|get) (?:that|you))"
)
_SENTENCES = re.compile(r"(?<=[.?!])\s+")
_GREETING = re.compile(
    r"^(?:hello|hi|hey|hiya|good (?:morning|afternoon|evening|day))\b[^,]{0,20},\s*(?=\S)", re.IGNORECASE
)
MOST_CHARACTERS = 600
"""Of what is asked, half a minute of speech: rules are read within a step, and take longer than in proportion to it.  Of
more, which only a message that was typed has, the end counts."""


class Rules:
    """Answers at once.  `known` leaves what no rule knows to somebody else."""

    needs = Needs()

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def ask(self, question: Question) -> Answering:
        if question.begun:
            return Whole("")
        asked = _bounded(question)
        return Whole(self.known(asked) or replies.unknown(asked))

    def known(self, question: Question) -> str | None:
        """The answer, if there is a rule for it."""
        if not question.asked.strip():
            return replies.opening(question)
        now, question = self._clock(), _bounded(question)
        for text in _readings(question.asked):
            if answer := _answer(question, text, now):
                return answer
        return None


def _bounded(question: Question) -> Question:
    *earlier, (role, asked) = question.messages
    return replace(question, messages=(*earlier, (role, asked[-MOST_CHARACTERS:])))


def _readings(asked: str) -> Iterator[str]:
    """All of it; then its sentences, the last first, since that is mostly the question; each then without a greeting."""
    sentences = _SENTENCES.split(asked.strip())
    for text in [asked, *(reversed(sentences) if len(sentences) > 1 else ())]:
        yield text
        if (greeting := _GREETING.match(text)) is not None:
            yield text[greeting.end() :]


def _answer(question: Question, text: str, now: datetime) -> str | None:
    spelled = plain(with_signs(text))
    spellings = list(dict.fromkeys((spelled, core(with_signs(text)))))
    if any(_AGAIN.fullmatch(each) for each in spellings):
        return replies.again(question)
    if (wanted := _REPEAT.match(text.strip())) and not _names_something_else(wanted[1]):
        return replies.repeat(wanted[1])
    for each in spellings:
        for rule in RULES:
            if found := rule.pattern.fullmatch(each):
                return rule.answer(Asked(question, now, found))
        if (solved := solve(each)) is not None:
            return solved
    return None


def _names_something_else(what: str) -> bool:
    """`say something`, `say a number`: no words to be repeated."""
    return (
        re.fullmatch(r"(?:something|anything|a number|any number|my name|what i|that|it)\b.*", core(what))
        is not None
    )
