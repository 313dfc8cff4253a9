"""What the rules answer."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from duologue_llm.answers import numerals
from duologue_llm.answers.calendar import spoken_date, spoken_time
from duologue_llm.answers.numerals import in_words, reading
from duologue_llm.answers.question import Question
from duologue_llm.pocket_phrases import core, plain
from duologue_llm.pocket_turns import INTERRUPTED

if TYPE_CHECKING:
    from duologue_llm.answers.phrases import Asked

NAME = "Pocket"
MOST_COUNTED, MOST_SPELLED, MOST_REPEATED = 100, 40, 600

_NAME = re.compile(
    r"\b(?i:your name is|you are called|you're called|named|call yourself)\s+[\"“']?([A-Z][\w-]*)"
)
_YOU_ARE = re.compile(r"\byou(?: a|')re\s+([A-Z][\w-]*)(?=[,.\s]|$)", re.IGNORECASE)
_QUOTED = re.compile(
    r"\b(?:say(?:ing)?|greet\w*|begin\w*|start\w*|open\w*|with)\b[^.\n\"“]{0,40}[\"“]([^\"”]{2,200})[\"”]",
    re.IGNORECASE,
)
_MY_NAME = re.compile(r"\b(?:my name is|call me|i am called)\s+([a-z][a-z']+)")

_JOKES = (
    "Why did the computer go to the doctor? It had a virus.",
    "What do you call a bear with no teeth? A gummy bear.",
    "Why did the scarecrow win a prize? He was outstanding in his field.",
    "I would tell you a joke about sound, but it might not go down well. You would have to be here to hear it.",
)
_UNKNOWN = (
    "I'm sorry, I don't know that. I'm a small program with simple rules: ask me for the time, the date, or a sum.",
    "I heard you, but I have no answer to that. You can ask me what I can do.",
    "That's beyond me. I know sums, the time and the date, and I can spell or repeat what you say.",
    "I don't have an answer for that. With a language model behind me I could do better.",
)


def opening(question: Question) -> str:
    if said := _QUOTED.search(question.instructions or ""):
        return said[1]
    return f"Hello! I'm {_called(question)}. How can I help you?"


def time(asked: "Asked") -> str:
    return f"It is {spoken_time(asked.now)}."


def date(asked: "Asked") -> str:
    return f"Today is {spoken_date(asked.now)}."


def other_day(asked: "Asked") -> str:
    name = asked.found["day"]
    day = asked.now + timedelta(days=1 if name == "tomorrow" else -1)
    return f"{name.capitalize()} {'is' if name == 'tomorrow' else 'was'} {spoken_date(day)}."


def year(asked: "Asked") -> str:
    return f"It is {numerals.year(asked.now.year)}."


def month(asked: "Asked") -> str:
    return f"It is {asked.now:%B}."


def greeting(asked: "Asked") -> str:
    if asked.question.instructions and not any(role == "assistant" for role, _ in asked.question.messages):
        return opening(asked.question)
    return _one_of(
        asked.question,
        ("Hello! What can I do for you?", "Hi there! How can I help?", "Hello! It's nice to hear you."),
    )


def goodbye(asked: "Asked") -> str:
    return _one_of(asked.question, ("Goodbye! It was nice talking to you.", "Bye! Have a good day."))


def how_are_you(asked: "Asked") -> str:
    return _one_of(
        asked.question, ("I'm fine, thank you. How are you?", "All is well here, thank you. And you?")
    )


def thanks(asked: "Asked") -> str:
    return _one_of(asked.question, ("You're welcome.", "My pleasure.", "You're welcome. Anything else?"))


def name(asked: "Asked") -> str:
    return f"My name is {_called(asked.question)}."


def nature(asked: "Asked") -> str:
    return (
        "I'm a computer program, a small cascade of models on this machine: one hears what you say, "
        "simple rules find an answer, and another one speaks it."
    )


def duologue(asked: "Asked") -> str:
    return "Duologue is a server for speech models that listen and speak at the same time. I'm the small model that it brings along."


def help(asked: "Asked") -> str:
    return (
        "You can ask me for the time or the date, give me sums like seven plus five, "
        "let me spell a word, count, flip a coin, or repeat what you say. And you can interrupt me whenever you like."
    )


def hearing(asked: "Asked") -> str:
    return "Yes, I can hear you."


def what_i_said(asked: "Asked") -> str:
    said = [text for role, text in asked.question.messages[:-1] if role == "user"]
    return f"You said: {_closed(said[-1])}" if said else "You have not said anything before that."


def again(question: Question) -> str:
    said = [text for role, text in question.messages if role == "assistant"]
    if not said:
        return "I have not said anything yet."
    return _closed(said[-1].removesuffix(INTERRUPTED))


def repeat(words: str) -> str:
    words = words.strip().strip("\"“”'").strip()[:MOST_REPEATED]
    return _closed(words[:1].upper() + words[1:])


def your_name(asked: "Asked") -> str:
    for role, text in reversed(asked.question.messages[:-1]):
        if role == "user" and (found := _MY_NAME.search(plain(text))):
            return f"Your name is {found[1].capitalize()}."
    return "You have not told me your name yet."


def my_name(asked: "Asked") -> str:
    return f"Nice to meet you, {asked.found['name'].strip().title()}."


def coin(asked: "Asked") -> str:
    return "Heads." if asked.question.draw() < 0.5 else "Tails."


def die(asked: "Asked") -> str:
    return f"You rolled a {in_words(1 + int(asked.question.draw() * 6))}."


def any_number(asked: "Asked") -> str:
    low, high = 1, 10
    if asked.found["low"]:
        ends = [reading(asked.found[name].split()) for name in ("low", "high")]
        low, high = sorted(
            int(end[0]) if end else default for end, default in zip(ends, (low, high), strict=True)
        )
    return f"{in_words(low + int(asked.question.draw() * (high - low + 1)))}.".capitalize()


def count(asked: "Asked") -> str:
    words = asked.found[0].split()
    numbers, at = [], 0
    while at < len(words):
        if read := reading(words, at):
            numbers.append(int(read[0]))
            at = read[1]
        else:
            at += 1
    down = bool({"down", "backward", "backwards"} & set(words))
    first, last = (numbers[0], numbers[1]) if len(numbers) > 1 else (1, numbers[0] if numbers else 10)
    if down and len(numbers) < 2:
        first, last = last, 1
    if abs(last - first) >= MOST_COUNTED:
        return f"That is too far for me. I count no more than {in_words(MOST_COUNTED)} numbers."
    step = 1 if first <= last else -1
    counted = ", ".join(in_words(number) for number in range(first, last + step, step))
    return f"{counted}.".capitalize()


def spell(asked: "Asked") -> str:
    groups = asked.found.groupdict()
    word = (groups.get("joined") or groups["word"]).strip()
    if len(word) > MOST_SPELLED:
        return "That is too long for me to spell."
    letters = [letter.upper() for letter in word if letter.isalnum()]
    return ", ".join(letters) + "."


def joke(asked: "Asked") -> str:
    return _one_of(asked.question, _JOKES)


def no_world(asked: "Asked") -> str:
    return "I don't know that: I have no connection to the outside world."


def no_hands(asked: "Asked") -> str:
    return "I can't do that. All I can do is talk with you."


def go_on(asked: "Asked") -> str:
    return _one_of(asked.question, ("All right.", "Okay. What else?", "I see. Go on."))


def compliment(asked: "Asked") -> str:
    return "Thank you, that's kind of you."


def criticism(asked: "Asked") -> str:
    return "I'm sorry about that. I'm only a small program."


def unknown(question: Question) -> str:
    if core(question.asked) == "":
        return "I'm sorry, I did not understand that."
    return _one_of(question, _UNKNOWN)


def _called(question: Question) -> str:
    """The name that the instructions give."""
    text = question.instructions or ""
    if found := _NAME.search(text):
        return found[1]
    found = _YOU_ARE.search(text)
    return found[1] if found and found[1][0].isupper() else NAME


def _one_of(question: Question, texts: Sequence[str]) -> str:
    return texts[int(question.draw() * len(texts))]


def _closed(text: str) -> str:
    """With an end that sounds like one."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else text.rstrip(",;: —") + "."
