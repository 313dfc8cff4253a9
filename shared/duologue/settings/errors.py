"""What is wrong with settings, and the nearest to a name that is none."""

import difflib
from collections.abc import Iterable


class BadSetting(Exception):
    """The message says which setting, from where, and what is wrong with it; it holds no secrets."""

    exit_code = 2


def nearest(name: str, known: Iterable[str]) -> str:
    """That of the known names that looks most like `name`."""
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
