"""Which of the rules' answers belongs to which phrases.

A phrase is a pattern for all that was asked, as `plain` or `core` spell it; what an answer wants to know of it is a named group.
The first one that matches counts.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from duologue_llm.answers import replies
from duologue_llm.answers.question import Question


class Asked(NamedTuple):
    """What an answer is made from."""

    question: Question
    now: datetime
    found: re.Match[str]


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    answer: Callable[[Asked], str]


def _rule(answer: Callable[[Asked], str], *phrases: str) -> Rule:
    return Rule(re.compile("|".join(phrases)), answer)


_TELL = (
    r"(((can|could|would) you )?(please )?(tell|give) (me|us) |do you (know|have) |"
    r"i (want|would like) to know |may i ask )?"
)
_WHAT = rf"{_TELL}(what|which) "
_YOU = r"((can|could|would) you )?"

RULES: tuple[Rule, ...] = (
    _rule(
        replies.time,
        rf"{_WHAT}(is )?(the )?time( is it)?( (right )?now)?",
        rf"{_WHAT}time it is.*",
        rf"{_TELL}the (current )?time",
        r"how late is it",
    ),
    _rule(
        replies.date,
        rf"{_WHAT}(is )?(day|weekday) (is )?(it|today|of the week).*",
        rf"{_WHAT}day of the week is.*",
        rf"{_WHAT}(is )?(the |today's |todays )?(current )?date( is it)?( today| of today)?",
        rf"{_TELL}the date( today)?",
        r"what is today",
    ),
    _rule(
        replies.other_day,
        rf"{_WHAT}(is |was |will be )?(the )?(day |date )?(will it be |is it |is |was |of )?"
        r"(?P<day>tomorrow|yesterday)('s (date|day))?( be)?",
    ),
    _rule(replies.year, rf"{_WHAT}(is )?(the )?(current )?year( is it)?.{{0,12}}"),
    _rule(replies.month, rf"{_WHAT}(is )?(the )?(current )?month( is it)?.{{0,12}}"),
    _rule(
        replies.greeting,
        r"(hello|hi|hey|good (morning|afternoon|evening|day)|greetings|howdy|hiya)"
        r"( (there|hello|hi|again|you|everybody|everyone|pocket))*",
    ),
    _rule(
        replies.goodbye,
        r"(good ?by|by by|good ?bye|bye|bye bye|good night|farewell|so long|talk to you later)( .{0,30})?",
        r"see you( later| soon| tomorrow)?",
        r"have a (nice|good) (day|evening|one)",
    ),
    _rule(
        replies.how_are_you,
        r"how (are|is) (you|it going|things|everything|life|your day)( (doing|going|today|feeling|now))*",
        r"how do you (do|feel).*",
        r"are you (ok|okay|well|fine|good)",
        r"(what is up|what is new|what are you doing).*",
    ),
    _rule(
        replies.thanks,
        r"(thank you|thanks|cheers|many thanks)( .{0,40})?",
        r"(great|perfect|wonderful|nice|cool|awesome|excellent|very good|good|well done)( (job|work|one))?",
    ),
    _rule(
        replies.name,
        rf"{_WHAT}(is|are) your names?",
        r"who (are|is this|am i (talking|speaking) (to|with)).{0,12}",
        rf"{_TELL}your name",
        r"what (should|can|do) i call you",
    ),
    _rule(
        replies.nature,
        rf"{_WHAT}(are you|kind of .* are you|model .*|is this)( exactly)?",
        r"what are you made (of|from)|how do you work|how old are you.*|where are you( from)?",
        r"(are|is) (you|this) (a |an )?(human|person|robot|real|machine|computer|bot|ai|a i|artificial|program"
        r"|recording|language model|chat ?bot|chat ?gpt|assistant)\b.*",
        rf"{_TELL}(something )?(about yourself|who you are|what you are)",
        r"(who|what company) (made|built|created|trained|wrote) you.*",
    ),
    _rule(replies.duologue, r"(who|what) is duologue.*|tell me about duologue|duologue"),
    _rule(
        replies.help,
        r"help( me)?|i need help|can you help( me)?",
        r"what (else )?(can|could|do) (you|i) (do|say|ask|know|help).*",
        r"what are you (able|good).*",
        r"how (can|do) (i|you) (use|help).*|what should i (say|ask).*",
    ),
    _rule(
        replies.hearing,
        r"(can|do|did) you (hear|understand|listen).*",
        r"are you (there|listening|still there|awake|ready)",
        r"(is )?(anybody|anyone|somebody) (there|here|home)",
        r"(mic |mike |sound |audio )?(check|test|testing)( .*)?",
    ),
    _rule(
        replies.what_i_said,
        r".*\bwhat (did|have) i (just )?(say|said|ask|asked|tell|told)\b.*",
        r".*\bwhat was my (last )?(question|sentence)\b.*",
        r".*\bwhat i (just )?said\b.*",
    ),
    _rule(replies.your_name, r"(what is|do you (know|remember)|tell me|say) my name( is)?|who am i"),
    _rule(replies.my_name, r"(my name is|i am called|call me|the name is) (?P<name>[a-z][a-z' ]{0,30})"),
    _rule(replies.coin, r".*\b(flip|toss|throw)\b.*\bcoin\b.*|heads or tails"),
    _rule(replies.die, r".*\b(roll|throw)\b.*\b(die|dye|dice)\b.*"),
    _rule(
        replies.any_number,
        r".*\b(pick|choose|give me|tell me|think of|say)\b.*\bnumber\b"
        r"( (between|from) (?P<low>.+?) (and|to) (?P<high>.+))?",
    ),
    _rule(replies.count, rf"{_YOU}count\b.*"),
    _rule(
        replies.spell,
        rf"{_YOU}(how do (you|i) |how would you )?spell( out)?( the)?( word)? (?P<word>.+)",
        # A recogniser may write it in one.
        r"spell(?P<joined>[a-z]{2,})(?<!spelling)(?<!spelled)",
    ),
    _rule(replies.spell, r"how (is|do you spell|is the word) (?P<word>.+?) (spelled|spelt)( out)?"),
    _rule(replies.joke, r".*\b(joke|something funny|make me laugh)\b.*"),
    _rule(replies.no_world, r".*\b(weather|temperature|forecast|news|headlines|stock|traffic|score)\b.*"),
    _rule(
        replies.no_hands,
        r".*\b(play|sing|music|song|alarm|timer|remind|email|message|search|lights?|turn (on|off))\b.*",
    ),
    _rule(
        replies.go_on,
        r"(yes|yeah|yep|ok|okay|sure|right|alright|no|nope|not really|i see|maybe|hmm+|mm+|uh huh)( .{0,12})?",
    ),
    _rule(
        replies.compliment,
        r"i (love|like) you|you are (great|nice|funny|good|smart|clever|cute|awesome|amazing).*",
    ),
    _rule(
        replies.criticism,
        r"you are (stupid|dumb|bad|wrong|useless|terrible|slow).*",
        r"that (is|was) (wrong|not right|bad|incorrect).*",
    ),
)
