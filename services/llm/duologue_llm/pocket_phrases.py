"""Things people say that steer a conversation instead of carrying it on, however a recogniser spells them."""

import re

_NO_WORD = re.compile(r"[^\w\s'%+*/×÷.:-]|(?<!\d)[.:](?!\d)|[.:](?!\d)|(?<!\w)'|'(?!\w)")
_CONTRACTIONS = {
    "what's": "what is",
    "whats": "what is",
    "who's": "who is",
    "how's": "how is",
    "where's": "where is",
    "it's": "it is",
    "that's": "that is",
    "let's": "let us",
    "i'm": "i am",
    "you're": "you are",
    "can't": "can not",
    "cannot": "can not",
    "don't": "do not",
    "o'clock": "oclock",
}
_OLD = re.compile(r"\bto-(day|morrow|night)\b")
"""As books had it, which recognisers have read."""
_POLITE = re.compile(
    r"^((um+|uh+|er+|so|and|well|now|oh|hey|ok|okay|alright|please|hi|hello|computer|duologue)\s+)+(?=\S)"
)
_ADDRESS = re.compile(r"\s+(please|now|thanks|thank you|for me|will you|would you|computer|duologue)$")

_QUIET = re.compile(
    r"(no )*(please )?(stop(( please| now)? stop)*|quiet|silence|enough|hush|shush|sh+|be (quiet|silent|still)|shut up|"
    r"stop (it|that|talking|speaking|there)|(that is|that will be) enough|"
    r"never ?mind|hold on|wait|pause|hang on|cancel)"
)
_BACKCHANNEL = re.compile(
    r"(uh huh|uh-huh|mm+|mm+[ -]?hmm*|mhm+|hmm+|hm|yeah|yes|yep|right|okay|ok|i see|ah+|oh+|sure|aha)"
    r"( (yeah|yes|right|okay|ok|sure))?"
)
_GREETS_FIRST = re.compile(
    r"\b(greet|welcome) the (user|caller|customer|guest)|\b(speak|talk|say something) first\b|"
    r"\b(start|begin|open)\b[^.]{0,40}\b(by|with)\b[^.]{0,20}\b(greet|welcom|introduc|say)",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """Lower case, without punctuation that is no part of a number, contractions in full."""
    text = text.lower().replace("’", "'").replace("‘", "'")
    found = re.sub(r"(?<=\d),(?=\d{3})", "", _OLD.sub(r"to\1", text).replace("-", " "))
    return " ".join(_CONTRACTIONS.get(word, word) for word in _NO_WORD.sub(" ", found).split())


def core(text: str) -> str:
    """`plain`, without fillers and politeness around it."""
    found = plain(text)
    while (shorter := _ADDRESS.sub("", _POLITE.sub("", found))) != found:
        found = shorter
    return found


def is_quiet(text: str) -> bool:
    """Whether this asks for silence."""
    return _QUIET.fullmatch(core(text)) is not None


def is_backchannel(text: str) -> bool:
    """Whether this only says "I'm listening"."""
    return _BACKCHANNEL.fullmatch(plain(text)) is not None


def greets_first(instructions: str | None) -> bool:
    """Whether the model is told to speak before the user does."""
    return instructions is not None and _GREETS_FIRST.search(instructions) is not None
