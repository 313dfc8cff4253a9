"""What a setting says about itself beyond its type and default."""

from collections.abc import Mapping
from dataclasses import dataclass

EVERY = "every"


@dataclass(frozen=True, slots=True)
class Use:
    """`by` are the commands that use the setting, separated by spaces, or `EVERY`; `required` those that can't do
    without.  `flag` is how it is written on the command line where that is not `--<key>`; without dashes it names a
    positional argument.  `otherwise` says what happens without a value, by command where they differ (`EVERY`: all
    others)."""

    by: str
    flag: str = ""
    metavar: str | None = None
    otherwise: str | Mapping[str, str] = ""
    required: str = ""
    secret: bool = False

    def without(self, command: str = "") -> str:
        """What happens without a value, in a command or in all of them."""
        if isinstance(self.otherwise, str):
            return self.otherwise
        if command:
            return self.otherwise.get(command, self.otherwise.get(EVERY, ""))
        return "; ".join(
            text if name == EVERY else f"{name}: {text}" for name, text in self.otherwise.items()
        )

    def required_by(self, command: str) -> bool:
        return command in self.required.split()
