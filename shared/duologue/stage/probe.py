"""What a step costs, measured before a worker is ready: sessions of nothing but listening units, stepped in batches of
growing size."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import structlog

from duologue.bus.messages import AnyBody, Audio, Codes, Condition, Features, Speech, Start
from duologue.models import ROOT, Edge, Manifest
from duologue.stage.engine import Engine
from duologue.stage.model import History, SessionError, StageModel, Unit

TRIES = 3
"""The shortest step of so many counts: others were held up, or the first of their size."""
PROBE_S = 5.0
"""No larger batch is tried after so long."""
LISTENING: dict[str, AnyBody] = {
    ROOT: Audio(),
    "encoder": Features(),
    "llm": Condition(),
    "talker": Codes(),
    "codec": Speech(),
}
"""Markers by their sender."""

T = TypeVar("T")

log = structlog.get_logger()


class Probe:
    """Measures one stage of one model."""

    def __init__(
        self,
        stage: str,
        manifest: Manifest,
        model: StageModel[Any],
        engine: Engine,
        clock: Callable[[], float],
    ) -> None:
        options = manifest.session_options({})
        self._inputs = [edge for edge in manifest.edges(options) if edge.dst == stage]
        self._start = Start(0, options)
        self._stage, self._model, self._engine, self._clock = stage, model, engine, clock
        self._states: list[Any] = []
        self._units: list[int] = []

    async def run(self, most_rows: int, longest_step_s: float) -> dict[int, float]:
        """Seconds of a step by its rows: 1, 2, 4, … up to `most_rows`, or to the first size whose step takes longer
        than `longest_step_s`.  Empty if the model can't step such sessions.  Raises what the model raises."""
        found: dict[int, float] = {}
        began = self._clock()
        try:
            for rows in _sizes(most_rows):
                await self._open(rows)
                found[rows] = min([await self._step() for _ in range(TRIES)])
                if found[rows] > longest_step_s or self._clock() - began > PROBE_S:
                    break
        except SessionError as error:
            log.warning("probe ended early", stage=self._stage, rows=len(self._states), why=str(error))
        finally:
            await self._job(self._close)
        return found

    async def _open(self, rows: int) -> None:
        """Opens states until there are `rows`."""

        def job() -> Any:
            *_, state = self._model.open(self._start, History())
            return state

        while len(self._states) < rows:
            self._states.append(await self._job(job))
            self._units.append(0)

    def _close(self) -> None:
        for state in self._states:
            self._model.close(state)

    async def _step(self) -> float:
        """Steps all states once; returns how long that took."""
        batch = [(state, self._unit(unit)) for state, unit in zip(self._states, self._units, strict=True)]
        began = self._clock()
        results = await self._job(lambda: self._model.step(batch))
        took_s = self._clock() - began
        for result in results:
            if isinstance(result, SessionError):
                raise result
        self._units = [unit + 1 for unit in self._units]
        return took_s

    def _unit(self, number: int) -> Unit:
        def due(edge: Edge) -> bool:
            return number >= edge.lag

        return Unit(number, {edge.src: LISTENING[edge.src] for edge in self._inputs if due(edge)})

    async def _job(self, job: Callable[[], T]) -> T:
        """Runs it where the model runs."""
        ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if error is not None:
                ended.set_exception(error)
            else:
                ended.set_result(result)

        self._engine.submit(job, done)
        return await ended


def _sizes(most: int) -> Iterator[int]:
    rows = 1
    while rows < most:
        yield rows
        rows *= 2
    if most > 0:
        yield most
