"""The command line `duologue` (DESIGN §10).  One module a command; what a command runs is imported when it runs."""

from duologue.cli.app import main

__all__ = ["main"]
