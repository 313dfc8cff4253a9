"""What a caller asks, and words that a sensible answer has: for tests and benchmarks of the pocket model."""

from datetime import datetime, timedelta
from typing import NamedTuple

from duologue.testing.words import words


class Case(NamedTuple):
    """`expected`: words of the answer in order, others between them; "a|b" takes either."""

    asked: str
    expected: str


CASES: tuple[Case, ...] = (
    Case("What is seven plus five?", "twelve"),
    Case("What's twelve times twelve?", "one hundred forty four"),
    Case("How much is twenty minus eight?", "twelve"),
    Case("What is one hundred divided by four?", "twenty five"),
    Case("What is half of ninety?", "forty five"),
    Case("What is ten percent of two hundred?", "twenty"),
    Case("Can you tell me what nine plus nine is?", "eighteen"),
    Case("What is three times seven?", "twenty one"),
    Case("What is fifty plus fifty?", "one hundred"),
    Case("What is sixteen minus nine?", "seven"),
    Case("What day is it?", "{weekday}"),
    Case("What day is it today?", "{weekday}"),
    Case("What is the date today?", "{month}"),
    Case("What year is it?", "twenty|two twenty|thousand"),
    Case("What time is it?", "it is {hour}"),
    Case("Please tell me the time.", "it is {hour}"),
    Case("Hello!", "hi|hello|hey"),
    Case("Good morning.", "morning|hi|hello"),
    Case("Hi there, how are you?", "well|fine|good|great"),
    Case("Goodbye.", "goodbye|bye"),
    Case("Thank you very much.", "welcome|pleasure|glad"),
    Case("Please repeat: the quick brown fox.", "quick brown fox"),
    Case("Please repeat: the train leaves at nine.", "train leaves nine"),
    Case("Please repeat: my garden is full of roses.", "garden full roses"),
    Case("Repeat after me: winter is coming.", "winter coming"),
    Case("Say: open the window, please.", "open window"),
    Case("Spell the word house.", "h o u s e|house"),
    Case("How do you spell cat?", "c a t|cat"),
    Case("Count to five.", "one two three four five"),
    Case("Count from three to six.", "three four five six"),
    Case("What can you do?", "seven plus five"),
    Case("Help.", "seven plus five"),
    Case("Who are you?", "pocket|duologue"),
    Case("What is your name?", "pocket|duologue"),
    Case("Are you a human?", "models|model|machine|computer"),
    Case("Flip a coin.", "heads|tails"),
    Case("Can you hear me?", "hear|yes"),
    Case("What is the weather like tomorrow?", "know|outside"),
    Case("What is the square root of eighty one?", "nine"),
    Case("What day is tomorrow?", "tomorrow {tomorrow}"),
)


def expected(case: Case, now: datetime) -> list[list[str]]:
    """The alternatives of each expected word."""
    text = case.expected.format(
        weekday=now.strftime("%A"),
        tomorrow=(now + timedelta(days=1)).strftime("%A"),
        month=now.strftime("%B"),
        # As it is said from half past on ("quarter to"), and digits are heard as their number.
        hour="|".join(dict.fromkeys(str(hour % 12 or 12) for hour in (now.hour, now.hour + 1))),
    )
    return [[each for part in one.split("|") for each in words(part)] for one in text.split()]


def answers(case: Case, heard: str, now: datetime) -> bool:
    """Whether what was heard has the expected words in order."""
    rest = words(heard)
    for alternatives in expected(case, now):
        at = next((n for n, word in enumerate(rest) if word in alternatives), None)
        if at is None:
            return False
        rest = rest[at + 1 :]
    return True
