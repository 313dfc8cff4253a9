"""Answers by rule: small, honest about it, and right.

A rule is a pattern for what was asked, as `core` spells it, and a function that answers.  The first that matches counts.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from duologue_llm.answers import replies
from duologue_llm.answers.question import Answering, Question, Whole
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


class Asked(NamedTuple):
    """What a rule may look at."""

    question: Question
    now: datetime
    found: re.Match[str]


Rule = tuple[re.Pattern[str], Callable[[Asked], str]]


def _rules(*rows: tuple[str, Callable[[Asked], str]]) -> tuple[Rule, ...]:
    return tuple((re.compile(pattern), answer) for pattern, answer in rows)


_TELL = r"(?:(?:(?:can|could|would) you )?(?:please )?(?:tell|give) (?:me|us) |do you (?:know|have) |i (?:want|would like) to know |may i ask )?"
_WHAT = rf"{_TELL}(?:what|which) "
RULES: tuple[Rule, ...] = _rules(
    (
        rf"{_WHAT}(?:is )?(?:the )?time(?: is it)?(?: (?:right )?now)?|{_TELL}the (?:current )?time|{_WHAT}time it is.*",
        replies.time,
    ),
    (r"how late is it|what hour is it", replies.time),
    (
        rf"{_WHAT}(?:is )?(?:day|weekday) (?:is )?(?:it|today|of the week).*|{_WHAT}day of the week is.*|what is today",
        replies.date,
    ),
    (
        rf"{_WHAT}(?:is )?(?:the |today's |todays )?(?:current )?date(?: is it)?(?: today| of today)?|{_TELL}the date.*",
        replies.date,
    ),
    (
        rf"{_WHAT}(?:is )?(?:day |date )?(?:will it be |is it |is |was )?(tomorrow|yesterday)(?:'s date)?(?: be)?",
        replies.other_day,
    ),
    (rf"{_WHAT}(?:is )?(?:the )?(?:current )?(year|month) .*|{_WHAT}(year|month)", replies.year_or_month),
    (
        r"(?:hello|hi|hey|good (?:morning|afternoon|evening|day)|greetings|howdy|hiya)(?: (?:there|hello|hi|again|you|everybody|everyone|pocket))*",
        replies.greeting,
    ),
    (
        r"(?:good ?bye|bye|bye bye|good night|see you(?: later| soon| tomorrow)?|farewell|talk to you later|so long|have a (?:nice|good) (?:day|evening|one))(?: .*)?",
        replies.goodbye,
    ),
    (
        r"how (?:are|is) (?:you|it going|things|everything|life|your day)(?: (?:doing|going|today|feeling|now))*|how do you (?:do|feel).*|are you (?:ok|okay|well|fine|good)",
        replies.how_are_you,
    ),
    (r"(?:what is up|what is new|what are you doing).*", replies.how_are_you),
    (
        r"(?:thank(?:s| you)|cheers|many thanks|thanks a lot|great|perfect|wonderful|nice|cool|awesome|excellent|very good|good|well done|good job)(?: .*)?",
        replies.thanks,
    ),
    (
        rf"{_WHAT}(?:is|are) your (?:name|names)|who (?:are|is this|am i (?:talking|speaking) (?:to|with)).*|{_TELL}your name|what (?:should|can|do) i call you",
        replies.name,
    ),
    (
        rf"{_WHAT}(?:are you|kind of .* are you|model .*|is this)(?: exactly)?|what are you made (?:of|from)|how do you work|(?:are|is) (?:you|this) (?:a |an )?(?:human|person|robot|real|machine|computer|bot|ai|a i|artificial.*|program|recording|language model|chat ?bot|chat ?gpt|assistant).*|{_TELL}(?:something )?(?:about yourself|who you are|what you are)|(?:who|what company) (?:made|built|created|trained|wrote) you.*|where are you(?: from)?|how old are you.*",
        replies.nature,
    ),
    (
        r"(?:help|help me|i need help|can you help(?: me)?|what (?:else )?(?:can|could|do) (?:you|i) (?:do|say|ask|know|help).*|what are you (?:able|good).*|how (?:can|do) (?:i|you) (?:use|help).*|what should i (?:say|ask).*)",
        replies.help,
    ),
    (
        r"(?:can|do|did) you (?:hear|understand|listen).*|are you (?:there|listening|still there|awake|ready)|(?:is )?(?:anybody|anyone|somebody) (?:there|here|home)|(?:mic |mike |sound |audio )?(?:check|test|testing)(?: .*)?",
        replies.hearing,
    ),
    (
        r".*\b(?:what (?:did|have) i (?:just )?(?:say|said|ask|asked|tell|told)|what was my (?:last )?(?:question|sentence)|what i (?:just )?said)\b.*",
        replies.what_i_said,
    ),
    (r"(?:what is|do you (?:know|remember)|tell me|say) my name(?: is)?|who am i", replies.your_name),
    (r"(?:my name is|i am called|call me|the name is) ([a-z][a-z' ]{0,30})", replies.my_name),
    (r".*\b(?:flip|toss|throw)\b.*\bcoin\b.*|heads or tails", replies.coin),
    (r".*\b(?:roll|throw)\b.*\b(?:die|dice)\b.*", replies.die),
    (
        r".*\b(?:pick|choose|give me|tell me|think of|say)\b.*\bnumber\b(?: (?:between|from) (.+?) (?:and|to) (.+))?",
        replies.any_number,
    ),
    (r"(?:count|can you count|could you count)(?: (?:up|down|backwards?))?\b.*", replies.count),
    (
        r"(?:(?:can|could) you )?(?:how do (?:you|i) |how would you )?spell(?: out)?(?: the)?(?: word)? (.+)",
        replies.spell,
    ),
    (r"how (?:is|do you spell|is the word) (.+?) (?:spelled|spelt|spelled out)", replies.spell),
    (r".*\b(?:joke|something funny|make me laugh)\b.*", replies.joke),
    (r".*\b(?:weather|temperature|forecast|rain|news|headlines|stock|traffic|score)\b.*", replies.no_world),
    (
        r".*\b(?:play|sing|music|song|alarm|timer|remind|call|email|message|search|lights?|turn (?:on|off))\b.*",
        replies.no_hands,
    ),
    (
        r"(?:yes|yeah|yep|ok|okay|sure|right|alright|no|nope|not really|i see|maybe|hmm+|mm+|uh huh)(?: .{0,12})?",
        replies.go_on,
    ),
    (r"(?:who|what) is duologue.*|tell me about duologue|duologue", replies.duologue),
    (
        r"i (?:love|like) you|you are (?:great|nice|funny|good|smart|clever|cute|awesome|amazing).*",
        replies.compliment,
    ),
    (
        r"you are (?:stupid|dumb|bad|wrong|useless|terrible|slow).*|that (?:is|was) (?:wrong|not right|bad|incorrect).*",
        replies.criticism,
    ),
)


class Rules:
    """Answers at once.  `known` leaves what no rule knows to somebody else."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def ask(self, question: Question) -> Answering:
        return Whole("" if question.begun else self.known(question) or replies.unknown(question))

    def known(self, question: Question) -> str | None:
        """The answer, if there is a rule for it."""
        if not question.asked.strip():
            return replies.opening(question)
        now = self._clock()
        for text in _readings(question.asked):
            if answer := _answer(question, text, now):
                return answer
        return None


def _readings(asked: str) -> Iterator[str]:
    """All of it; then its sentences, the last first, since that is mostly the question."""
    yield asked
    sentences = _SENTENCES.split(asked.strip())
    if len(sentences) > 1:
        yield from reversed(sentences)


def _answer(question: Question, text: str, now: datetime) -> str | None:
    spelled = plain(with_signs(text))
    spellings = list(dict.fromkeys((spelled, core(with_signs(text)))))
    if any(_AGAIN.fullmatch(each) for each in spellings):
        return replies.again(question)
    if (wanted := _REPEAT.match(text.strip())) and not _names_something_else(wanted[1]):
        return replies.repeat(wanted[1])
    for each in spellings:
        for pattern, answer in RULES:
            if found := pattern.fullmatch(each):
                return answer(Asked(question, now, found))
        if (solved := solve(each)) is not None:
            return solved
    return None


def _names_something_else(what: str) -> bool:
    """`say something`, `say a number`: no words to be repeated."""
    return (
        re.fullmatch(r"(?:something|anything|a number|any number|my name|what i|that|it)\b.*", core(what))
        is not None
    )
