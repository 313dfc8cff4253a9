"""Batches of a stage that has nothing to gain from stepping its rows together."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from duologue.stage.model import Result, SessionError, Unit

State = TypeVar("State")


def one_by_one(
    step: Callable[[State, Unit], Result], batch: Sequence[tuple[State, Unit]]
) -> Sequence[Result | SessionError]:
    """What `StageModel.step` returns: a `SessionError` that `step` raises is that row's result."""
    results: list[Result | SessionError] = []
    for state, unit in batch:
        try:
            results.append(step(state, unit))
        except SessionError as error:
            results.append(error)
    return results
