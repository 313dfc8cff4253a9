"""How a command is refused."""

from duologue_api.live.events import ErrorEvent, error


class Refused(Exception):
    """The client's error: it is answered with `error`.  `code` is a key of `duologue.errors.TABLE`."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        event_id: str | None = None,
        command: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.event_id = event_id
        """The refused command's own, where it could be read."""
        self.command = command
        """The refused command's type, where it could be read."""

    def event(self) -> ErrorEvent:
        return error(self.code, self.message, param=self.param, client_event_id=self.event_id)


def shown(value: object, limit: int = 64) -> str:
    """`value` as a message may quote it, at most `limit` characters."""
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit else f"{text[:limit]}…"
