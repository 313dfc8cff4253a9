"""Which of the messages that pass are wanted."""

from collections.abc import Collection

from duologue.bus import subjects
from duologue.bus.tape import Copy
from duologue.tap.decoding import Decoded, decode

MOST_INBOXES = 256


class NoSubject(ValueError):
    """A pattern that no message of the bus can match."""


def kinds_of(pattern: str) -> tuple[str, ...]:
    """The kinds of messages that a pattern of subjects can match.  Raises `NoSubject`."""
    kinds = tuple(kind for kind in subjects.KINDS if _may_meet(pattern, subjects.of_kind(kind)))
    if not kinds:
        known = ", ".join(subjects.of_kind(kind) for kind in subjects.KINDS)
        raise NoSubject(f"{pattern!r} matches nothing on the bus; there is {known}")
    return kinds


def _may_meet(pattern: str, all_of_kind: str) -> bool:
    """Whether there are subjects that both match."""
    for wanted, given in zip(pattern.split("."), all_of_kind.split("."), strict=False):
        if ">" in (wanted, given):
            return True
        if wanted not in ("*", given):
            return False
    return False


class Choice:
    """By kind, by a pattern of subjects, by session: what every one of them lets pass.  Of a session, bundles and
    acknowledgements are shown with its own units alone, and the 503s of whom it sent something to."""

    def __init__(
        self,
        kinds: Collection[str],
        *,
        pattern: str | None = None,
        sid: str | None = None,
        whole: bool = False,
    ) -> None:
        self._kinds, self._pattern, self._sid, self._whole = kinds, pattern, sid, whole
        self._inboxes: set[str] = set()

    def read(self, copy: Copy) -> Decoded | None:
        """The message, decoded, or as far as it is wanted; `None` where it is not."""
        if self._pattern is not None and not subjects.matches(self._pattern, copy.subject):
            return None
        if self._sid is not None and not copy.no_responders and self._sid.encode() not in copy.data:
            return None
        decoded = decode(copy, self._whole)
        if decoded.kind not in self._kinds:
            return None
        return decoded if self._sid is None else self._of_session(copy, decoded, self._sid)

    def _of_session(self, copy: Copy, decoded: Decoded, sid: str) -> Decoded | None:
        if copy.no_responders:
            return decoded if copy.subject in self._inboxes else None
        if len(self._inboxes) >= MOST_INBOXES:
            self._inboxes.clear()
        self._inboxes.add(copy.subject)
        name = {"Bundle": "units", "Acks": "acks"}.get(decoded.type)
        if name is None:
            return decoded
        own = [each for each in decoded.fields.get(name, []) if each.get("sid") == sid]
        return decoded._replace(fields={**decoded.fields, name: own}) if own else None
