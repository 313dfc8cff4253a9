"""A model half that does what a test says, and remembers what was done with it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from duologue.bus.messages import Codes, Condition, Features, Speech, Start
from duologue.stage.model import Footprint, History, Result, SessionError, Unit

OUT = {
    "encoder": {"llm": Features()},
    "llm": {"talker": Condition()},
    "talker": {"codec": Codes()},
    "codec": {"root": Speech()},
}


@dataclass(eq=False)
class Opened:
    """A state; `name` is the seed that it was opened with."""

    name: int
    units: list[int] = field(default_factory=list)
    closed: int = 0


class Scripted:
    """`open_s` and `step_s`: what a quantum of an opening, of which there are `quanta`, and a step take.

    `log` has one entry a call: ("open", name, quantum), ("step", names), ("close", name), and ("left", name) where
    an opening was given up half-way.
    """

    def __init__(self, stage: str, *, quanta: int = 0, open_s: float = 0.0, step_s: float = 0.0) -> None:
        self.out = OUT[stage]
        self.quanta, self.open_s, self.step_s = quanta, open_s, step_s
        self.sleep: Callable[[float], object] = lambda seconds: None
        self.bytes = Footprint()
        self.log: list[tuple[object, ...]] = []
        self.states: list[Opened] = []
        self.records: list[object] = []
        self.threads: set[int] = set()
        self.raises: dict[str, BaseException] = {}
        """What `open`, `step`, `horizon` or `close` raise."""
        self.fails: set[tuple[int, int]] = set()
        """(name, unit) of rows that end in a `SessionError`."""
        self.during: Callable[[str], None] = lambda what: None

    def _enter(self, what: str, *detail: object) -> None:
        self.log.append((what, *detail))
        self.threads.add(threading.get_ident())
        self.during(what)
        if what in self.raises:
            raise self.raises[what]

    def open(self, start: Start, history: History) -> Iterator[Opened | None]:
        name = start.seed
        try:
            for quantum in range(self.quanta):
                self._enter("open", name, quantum)
                self.sleep(self.open_s)
                yield None
            self._enter("open", name, self.quanta)
            self.sleep(self.open_s)
        except GeneratorExit:
            self._enter("left", name)
            raise
        state = Opened(name)
        self.states.append(state)
        try:
            yield state
        finally:
            self.threads.add(threading.get_ident())

    def step(self, batch: Sequence[tuple[Opened, Unit]]) -> list[Result | SessionError]:
        self._enter("step", tuple(state.name for state, _ in batch))
        self.sleep(self.step_s)
        results: list[Result | SessionError] = []
        for state, unit in batch:
            assert not state.closed, "a closed state was stepped"
            state.units.append(unit.number)
            self.records.append(unit.record)
            failed = (state.name, unit.number) in self.fails
            results.append(SessionError("told to") if failed else Result(self.out, record=unit.number))
        return results

    def horizon(self, state: Opened) -> int:
        if "horizon" in self.raises:
            raise self.raises["horizon"]
        return state.units[-1]

    def close(self, state: Opened) -> None:
        self._enter("close", state.name)
        state.closed += 1

    def footprint(self) -> Footprint:
        return self.bytes

    def did(self, what: str) -> list[tuple[object, ...]]:
        """Details of all calls of one kind, in order."""
        return [entry[1:] for entry in self.log if entry[0] == what]
