"""What heartbeats and events tell about a deployment."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import Message
from duologue.models import STAGES

MISSING_S = 0.750
"""Three heartbeats."""
SETTLE_S = 1.0
"""After one's own reconnect nobody can be judged for so long."""
FORGET_S = 60.0
CLOSED_S = 10.0
"""So long a session that has ended is still told of."""
MOST_SESSIONS = 1000
SILENT = "silent"
ORDER = (subjects.API, *STAGES)


@dataclass(slots=True)
class _Beat:
    beat: m.Heartbeat
    at: float


@dataclass(slots=True)
class _Session:
    model: str
    state: str
    began: float | None
    changed: float
    detail: dict[str, Any] = field(default_factory=dict)


class Watch:
    """`settled_s`: for how long there has been a connection to the bus, 0 while there is none."""

    def __init__(self, *, clock: Callable[[], float], settled_s: Callable[[], float]) -> None:
        self.unreadable = 0
        """Messages that are no heartbeat or event as this version knows them."""
        self._clock, self._settled_s = clock, settled_s
        self._beats: dict[str, _Beat] = {}
        self._sessions: dict[str, _Session] = {}

    def on_heartbeat(self, message: Message) -> None:
        try:
            beat = m.decode(message.data, m.Heartbeat)
        except m.Malformed:
            self.unreadable += 1
            return
        self._beats[beat.address] = _Beat(beat, self._clock())

    def on_event(self, message: Message) -> None:
        try:
            event = m.decode(message.data, m.Event)
        except m.Malformed:
            self.unreadable += 1
            return
        now = self._clock()
        session = self._sessions.pop(event.sid, None) or _Session("", "", None, now)
        if event.kind == "opened":
            session.began = now
        session.state, session.changed = event.kind, now
        session.model = str(event.detail.get("model", session.model))
        session.detail = {name: value for name, value in event.detail.items() if name != "model"}
        self._sessions[event.sid] = session  # the newest last
        if len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]

    def picture(self) -> dict[str, Any]:
        """What is known now, as JSON has it: `pods` and `workers` in order of stage and id; `sessions`, those of which
        an event came, the newest first."""
        now = self._clock()
        self._forget(now)
        judged = self._settled_s() >= SETTLE_S
        found = [self._process(each, now, judged) for each in self._beats.values()]
        order = {role: place for place, role in enumerate(ORDER)}
        found.sort(key=lambda row: (order.get(row["stage"], len(order)), row["id"]))
        return {
            "connected": self._settled_s() > 0,
            "pods": [row for row in found if row["stage"] == subjects.API],
            "workers": [row for row in found if row["stage"] != subjects.API],
            "sessions": [self._session(sid, now) for sid in reversed(self._sessions)],
            "unreadable": self.unreadable,
        }

    def _process(self, seen: _Beat, now: float, judged: bool) -> dict[str, Any]:
        beat, age_s = seen.beat, now - seen.at
        return {
            "stage": subjects.role_of(beat.address),
            "id": beat.address.partition(".")[2],
            "state": SILENT if judged and age_s > MISSING_S else beat.state,
            "models": {
                model: {"free": places.free, "sessions": places.sessions}
                for model, places in beat.models.items()
            },
            "sessions": beat.sessions,
            "queue_ms": beat.queue_ms,
            "step_ms": beat.step_ms,
            "unit_ms": beat.unit_ms,
            "due_age_s": beat.due_age,
            "step_age_s": beat.step_age,
            "heartbeat_age_s": age_s,
            "wire": beat.v,
            "ledger": beat.ledger,
        }

    def _session(self, sid: str, now: float) -> dict[str, Any]:
        session = self._sessions[sid]
        return {
            "sid": sid,
            "model": session.model,
            "state": session.state,
            "age_s": None if session.began is None else now - session.began,
            "changed_s": now - session.changed,
            "detail": session.detail,
        }

    def _forget(self, now: float) -> None:
        for address in [a for a, seen in self._beats.items() if now - seen.at > FORGET_S]:
            del self._beats[address]
        for sid in [
            sid
            for sid, session in self._sessions.items()
            if session.state == "closed" and now - session.changed > CLOSED_S
        ]:
            del self._sessions[sid]
