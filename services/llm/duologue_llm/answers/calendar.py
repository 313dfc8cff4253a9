"""Time and date as they are said."""

from datetime import datetime

from duologue_llm.answers.numerals import in_words, ordinal, year


def spoken_time(now: datetime) -> str:
    """E.g. `twelve oh five in the afternoon`."""
    if now.minute == 0 and now.hour in (0, 12):
        return "midnight" if now.hour == 0 else "noon"
    hour = in_words(now.hour % 12 or 12)
    minute = "o'clock" if now.minute == 0 else f"{'oh ' if now.minute < 10 else ''}{in_words(now.minute)}"
    return f"{hour} {minute} {_part_of_day(now.hour)}"


def _part_of_day(hour: int) -> str:
    if hour < 12:
        return "in the morning"
    return "in the afternoon" if hour < 18 else "in the evening"


def spoken_date(day: datetime) -> str:
    """E.g. `Tuesday, December first, twenty twenty-six`."""
    return f"{day:%A}, {day:%B} {ordinal(day.day)}, {year(day.year)}"
