"""How a command fails: one clear line."""

from duologue.supervisor import LAST_WORDS

__all__ = ["LAST_WORDS", "Failure", "Misuse", "exit_code", "line_of"]


class Failure(Exception):
    """The message is all that a user needs to know."""


class Misuse(Failure):
    """The command line is wrong."""

    exit_code = 2


def line_of(error: Exception) -> str:
    """What is shown of an error; nothing where it was shown already.  Our own errors say what is wrong; of any other
    the type matters, too."""
    usage = getattr(error, "format_message", None)
    if usage is not None:
        # typer's own; it does not export their base class.
        hint = getattr(getattr(error, "ctx", None), "command_path", "")
        message = str(usage()).rstrip(".")
        return f"{message} (see {hint} --help)" if message and hint else message
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0].startswith("duologue"):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error} (--debug shows where)"


def exit_code(error: Exception) -> int:
    """2 for a wrong command line, else 1."""
    found = getattr(error, "exit_code", 1)
    return found if isinstance(found, int) else 1
