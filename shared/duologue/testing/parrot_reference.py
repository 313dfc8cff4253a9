"""The model `parrot` as one plain function, to hold the served model against.

Written from the specification alone (DESIGN §8) and sample by sample, with numpy for the draws and the arrays at
the ends.  It shares no code with the model on purpose: a mistake in either shows as a difference.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

UNIT = 1920
"""Samples of a unit: 80 ms at 24 kHz."""
LSB = 1 / 32768
"""One step of int16 where full scale is 1."""
LISTEN, SPEAK, INTERRUPT = 0, 1, 2

Heard = list[tuple[int, list[float]]]
"""(number of the input unit, its feature[UNIT]), in order."""


@dataclass(frozen=True, eq=False)
class Reference:
    """What parrot answers, unit by unit.  The lists have one entry a unit.

    `pcm16`: the answer, int16[units * UNIT].  `texts`: what the transcript gains, `""` while listening.
    `records`: `{"llm": [kind, m, context_start]}`, for a spoken unit also `"talker": d`.
    `active`: whether the input unit counted as speech.
    """

    pcm16: npt.NDArray[np.int16]
    texts: list[str]
    records: list[dict[str, Any]]
    active: list[bool]


def reference(
    input_pcm16: npt.NDArray[np.int16], seed: int, *, loop: bool = False, context_units: int = 4096
) -> Reference:
    """What parrot answers to `input_pcm16`, int16[samples] at 24 kHz; a last partial unit is filled with zeros.

    `seed` is the session's sampling seed, `loop` the model option, `context_units` the context budget in units.
    Raises `ValueError` for input that is not one row of int16.
    """
    if input_pcm16.dtype != np.int16 or input_pcm16.ndim != 1:
        raise ValueError(f"input must be int16[samples], not {input_pcm16.dtype}{list(input_pcm16.shape)}")
    features = _encoder(input_pcm16)
    active = _active(features)

    texts: list[str] = []
    records: list[dict[str, Any]] = []
    samples: list[list[float] | None] = []  # what the talker gives the codec; None for a listening unit
    heard: Heard = []
    queue: Heard = []
    speaking = False
    active_run = inactive_run = 0
    context_start = 0
    k = 0  # spoken units of this utterance
    m = 0  # the unit spoken last, and its feature
    feature: list[float] = []
    d = 0.0  # the talker's draw in the unit spoken last

    for u in range(len(features)):
        if u - context_start >= context_units:
            context_start = u - context_units // 2
            heard = [entry for entry in heard if entry[0] >= context_start]
            queue = [entry for entry in queue if entry[0] >= context_start]
            if not queue:
                speaking = False

        if active[u]:
            heard.append((u, features[u]))
            active_run += 1
            inactive_run = 0
        else:
            inactive_run += 1
            active_run = 0

        kind = LISTEN
        if speaking:
            if active_run >= 3:
                kind = INTERRUPT
                queue = []
                speaking = False
            else:
                kind = SPEAK
                again = loop and int(d * 2**53) & 1 == 1 and m >= context_start
                if not again:
                    m, feature = queue.pop(0)
                k += 1
        elif heard and inactive_run >= 5:
            kind = SPEAK
            queue = heard
            heard = []
            m, feature = queue.pop(0)
            k = 1

        if kind == SPEAK:
            speaking = len(queue) > 0
            d = _draw(seed, u)
            gain = (0.5 + 0.5 * min(1, k / 5)) * (1 + 0.1 * (d - 0.5))
            samples.append([gain * value for value in feature])
            records.append({"llm": [SPEAK, m, context_start], "talker": d})
            texts.append(f" u{m}")
        else:
            samples.append(None)
            records.append({"llm": [kind, 0, context_start]})
            texts.append("")

    return Reference(_codec(samples), texts, records, active)


def _encoder(input_pcm16: npt.NDArray[np.int16]) -> list[list[float]]:
    """DC blocker y[n] = x[n] - x[n-1] + 0.995 y[n-1] over the whole input, cut into units: [units][UNIT]."""
    values = [value / 32768 for value in input_pcm16.tolist()]
    while len(values) % UNIT:
        values.append(0.0)
    filtered: list[float] = []
    x_before = y = 0.0
    for x in values:
        y = x - x_before + 0.995 * y
        x_before = x
        filtered.append(y)
    return [filtered[start : start + UNIT] for start in range(0, len(filtered), UNIT)]


def _active(features: list[list[float]]) -> list[bool]:
    """Active: RMS above 0.01, or one of the two units after such a unit."""
    active: list[bool] = []
    since_loud = 3
    for feature in features:
        rms = math.sqrt(sum(value * value for value in feature) / UNIT)
        since_loud = 0 if rms > 0.01 else since_loud + 1
        active.append(since_loud <= 2)
    return active


def _draw(seed: int, unit: int) -> float:
    """The counter-based draw of (seed, unit, talker, 0), in [0, 1)."""
    key = np.array([seed % 2**64, 2], np.uint64)
    counter = np.array([unit, 0, 0, 0], np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key, counter=counter)).random())


def _codec(samples: list[list[float] | None]) -> npt.NDArray[np.int16]:
    """Low-pass z[n] = 0.7 z[n-1] + 0.3 y[n], running on through silence until it is below one LSB."""
    out: list[float] = []
    z = 0.0
    for unit in samples:
        if unit is None and abs(z) < LSB:
            z = 0.0
            out.extend([0.0] * UNIT)
            continue
        for y in unit if unit is not None else [0.0] * UNIT:
            z = 0.7 * z + 0.3 * y
            out.append(z)
    pcm16: npt.NDArray[np.int16] = np.clip(np.rint(np.array(out) * 32768), -32768, 32767).astype(np.int16)
    return pcm16
