"""What the model thread does next: step those that are ready, advance an opening in between, free who left."""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from duologue.bus.messages import Epoch
from duologue.errors import place_of
from duologue.stage.batch import Batcher, Due
from duologue.stage.engine import Engine
from duologue.stage.model import Result, SessionError, StageModel
from duologue.stage.owner import Owner, Phase, Times
from duologue.stage.recent import Recent
from duologue.stage.watch import Watch

Stepped = list[tuple[Result | SessionError, int]]


class Ticks:
    """Callbacks: `opened` an owner; an owner `failed`; the process must end (`fatal`, with a reason); a step was
    `measured`, with its seconds and those of each of its units since it was ready."""

    def __init__(
        self,
        stage: str,
        model: StageModel[Any],
        engine: Engine,
        *,
        owners: Mapping[tuple[str, Epoch], Owner],
        clock: Callable[[], float],
        gather_s: float,
        limit: int,
        watch: Watch,
        opened: Callable[[Owner], None],
        failed: Callable[[Owner, SessionError], None],
        fatal: Callable[[str], None],
        measured: Callable[[float, Sequence[float]], None] = lambda step_s, unit_s: None,
    ) -> None:
        self.count = 0
        """Jobs begun."""
        self.queue_s, self.step_s = Recent(clock), Recent(clock)
        """Of a step: how long its oldest unit has waited for it, and how long it took."""
        self._stage, self._model, self._engine, self._owners, self._clock = (
            stage,
            model,
            engine,
            owners,
            clock,
        )
        self._on_opened, self._on_failed, self._fatal, self._measured = opened, failed, fatal, measured
        self._watch = watch
        self._batcher = Batcher(gather_s, limit)
        self._opening: dict[Owner, Generator[Any, None, None]] = {}
        self._leaving: list[Callable[[], None]] = []
        """What frees the states and half-done openings of those who left: one each of an owner."""
        self._stopped = False
        self._opening_next = False
        self._wake: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        return self._engine.busy

    @property
    def due_age(self) -> float:
        """Seconds that the oldest due unit has waited."""
        return self._batcher.oldest_age(self._clock())

    def open(self, owner: Owner) -> None:
        self._opening[owner] = owner.opening(self._model)
        self._kick()

    def close(self, owner: Owner) -> None:
        """The state, or what of it was opened so far, is freed on the model thread, after the running job."""
        self._batcher.drop(owner)
        if opening := self._opening.pop(owner, None):
            self._leaving.append(opening.close)
        if owner.state is not None:
            self._leaving.append(partial(self._model.close, owner.state))
            owner.state = None
        self._kick()

    def look(self, owner: Owner) -> None:
        """Something happened that may have made this owner ready."""
        self._batcher.look(owner, self._clock())
        self._kick()

    def look_all(self) -> None:
        """Acknowledgements may have made room for anybody."""
        now = self._clock()
        for owner in self._owners.values():
            self._batcher.look(owner, now)
        self._kick()

    def stop(self) -> None:
        """Frees what is still to be freed, and does nothing else any more."""
        self._stopped = True
        if self._wake:
            self._wake.cancel()
        self._engine.stop()

    def _kick(self) -> None:
        """Gives the model thread its next job, if it is free and it is time."""
        if self._engine.busy or (self._stopped and not self._leaving):
            return
        wait = self._batcher.wait_s(len(self._owners), self._clock())
        if self._leaving:
            leaving, self._leaving = self._leaving, []
            self._submit(lambda: [free() for free in leaving], self._closed)
        elif self._opening and (self._opening_next or wait is None or wait > 0):
            self._opening_next = False
            owner, iterator = next(iter(self._opening.items()))
            self._submit(
                lambda: _advance(iterator), lambda state, error: self._opened(owner, iterator, state, error)
            )
        elif wait == 0:
            self._opening_next = True
            self._step(self._batcher.take())
        elif wait is not None and self._wake is None:
            self._wake = asyncio.get_running_loop().call_later(wait, self._woken)

    def _woken(self) -> None:
        self._wake = None
        self._kick()

    def _submit(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.count += 1
        self._engine.submit(job, done)

    def _closed(self, _: Any, error: BaseException | None) -> None:
        if error is not None:
            self._fatal(f"{self._stage}: close: {_bug(error)}")
            return
        self._kick()

    def _opened(
        self, owner: Owner, iterator: Generator[Any, None, None], state: Any, error: BaseException | None
    ) -> None:
        self._opening.pop(owner, None)
        if isinstance(error, SessionError):
            if owner.phase is not Phase.CLOSED:
                self._on_failed(owner, error)
        elif error is not None:
            self._fatal(f"{self._stage}: open: {_bug(error)}")
            return
        elif owner.phase is Phase.CLOSED:
            if state is not None:
                self._leaving.append(partial(self._model.close, state))
        elif state is None:
            self._opening[owner] = iterator
        else:
            owner.state, owner.phase = state, Phase.OPEN
            self._on_opened(owner)
            self._batcher.look(owner, self._clock())
        self._kick()

    def _step(self, batch: list[tuple[Owner, Due]]) -> None:
        now = self._clock()
        for owner, _ in batch:
            owner.stepping = True
        self.queue_s.add(now - batch[0][1].since)
        self._watch.begins(batch, now)
        rows = [(owner.state, due.unit) for owner, due in batch]

        def job() -> Stepped:
            results = self._model.step(rows)
            return [
                (result, self._model.horizon(state)) for result, (state, _) in zip(results, rows, strict=True)
            ]

        self._submit(job, lambda results, error: self._stepped(batch, now, results, error))

    def _stepped(
        self,
        batch: list[tuple[Owner, Due]],
        began: float,
        results: Stepped | None,
        error: BaseException | None,
    ) -> None:
        if results is None:
            self._fatal(f"{self._stage}: step: {_bug(error)}")
            return
        now = self._clock()
        self.step_s.add(now - began)
        self._watch.ends(now - began)
        self._measured(now - began, [now - due.since for _, due in batch])
        for (owner, due), (result, horizon) in zip(batch, results, strict=True):
            owner.stepping = False
            if owner.phase is Phase.CLOSED:
                continue
            if isinstance(result, SessionError):
                self._on_failed(owner, result)
            else:
                try:
                    main, came = owner.stepped(result, horizon)
                except KeyError as error:
                    self._fatal(f"{self._stage}: step: no body for {error}")
                    return
                times = Times(due.unit.number, main.sent, came, due.since, began, now, len(batch))
                self._watch.left(owner, times, main.trace)
                self._batcher.look(owner, now)
        self._kick()


def _bug(error: BaseException | None) -> str:
    """What the log is told of a model's bug."""
    return "nothing came" if error is None else ", ".join((type(error).__name__, *place_of(error)["where"]))


def _advance(opening: Generator[Any, None, None]) -> Any:
    """The next item; what the model does after the last one, the state, is done with it."""
    state = next(opening)
    if state is not None:
        opening.close()
    return state
