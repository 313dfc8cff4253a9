"""What the parrot has to answer, and the assertion that a session got exactly that."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from duologue.testing.parrot_reference import Reference, reference
from live_client import RATE, UNIT, Fragment, LiveSession, Pcm

UNIT_MS = 80


@dataclass(frozen=True)
class Settings:
    """What the answer depends on beside the input."""

    seed: int = 7
    loop: bool = False
    context_units: int = 4096

    @property
    def options(self) -> dict[str, object]:
        """The model options that a deployment is started with."""
        chosen: dict[str, object] = {"loop": True} if self.loop else {}
        return {**chosen, "context_units": self.context_units} if self.context_units != 4096 else chosen


def expected(recording: Pcm, settings: Settings) -> Reference:
    return _expected(recording.tobytes(), settings)


@cache
def _expected(data: bytes, settings: Settings) -> Reference:
    return reference(
        np.frombuffer(data, np.int16), settings.seed, loop=settings.loop, context_units=settings.context_units
    )


def fragments(answer: Reference) -> list[Fragment]:
    """The transcript: one fragment for each spoken unit, at the time of that unit."""
    return [
        Fragment(text, unit * UNIT_MS, (unit + 1) * UNIT_MS) for unit, text in enumerate(answer.texts) if text
    ]


def assert_exact(live: LiveSession, recording: Pcm, settings: Settings, errors: Sequence[str] = ()) -> None:
    """The session got one output unit for each input unit, sample by sample what the reference function says, with
    its transcript, its numbers and its end, and no word of trouble but `errors`, by their codes."""
    answer = expected(recording, settings)
    assert ([error["code"] for error in live.errors], live.notices) == ([*errors], [])
    assert len(live.units) == -(-len(recording) // UNIT)
    assert {len(unit) for unit in live.units} == {2 * UNIT}
    wrong = np.flatnonzero(live.pcm16 != answer.pcm16)
    assert wrong.size == 0, f"{wrong.size} samples differ, the first in unit {wrong[0] // UNIT}"
    assert live.transcript == fragments(answer)
    last_start = answer.records[-1]["llm"][2]
    ratio = (len(answer.records) - last_start) / settings.context_units
    seconds = float(len(recording) // RATE)
    assert [usage["usage"] for usage in live.usage][-1:] == [{"seconds": seconds}]
    assert live.usage[-1]["context_window"] == {"usage_ratio": ratio}
    assert live.closed is not None
    assert (live.closed["reason"], live.closed["usage"]) == ("close_requested", {"seconds": seconds})
    assert live.closed["session"] == live.started
    assert live.close_code == 1000
