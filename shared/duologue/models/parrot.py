"""The parrot: hears an utterance, repeats it, numbers its units in the transcript.  No weights (DESIGN §8).

Everything here is a pure function, but for `Cost`, by which a worker takes as long as a real model would.
"""

import difflib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from duologue.bus.messages import Codes, Malformed, Tensor
from duologue.models.manifest import CHAIN, HISTORY, INSTRUCTIONS, BadOption, Edge, Manifest
from duologue.stage.model import Footprint, SessionError, Unit

UNIT_SAMPLES, RATE = 1920, 24_000
LISTEN, SPEAK, INTERRUPT = 0, 1, 2
"""Kinds of the llm's record `[kind, m, context_start]`; m is the number of the unit repeated, else 0."""

LEAST_CONTEXT, MOST_CONTEXT = 12, 65_536
"""Bounds of `context_units`.  What a trim leaves (at least 6 units) must hold the 5 inactive units that end an
utterance; the other one keeps what a session can collect (15 KiB a unit) under 1 GiB."""

HANG_LOOK_S = 0.05
QUANTUM = 16
"""Units of history that are folded between two yields of an opening."""

Floats = npt.NDArray[np.float64]
T = TypeVar("T")
R = TypeVar("R")

# ---------------------------------------------------------------- options


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("true or false")


def _whole(low: int, high: int | None = None) -> Callable[[Any], int]:
    wanted = f"a whole number of at least {low}" + ("" if high is None else f" and at most {high}")

    def read(value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if type(number) is not int or number < low or (high is not None and number > high):
            raise ValueError(wanted)
        return number

    return read


def _duration(value: Any) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number < 0:
        raise ValueError("milliseconds, 0 or more")
    return number


def _folder(value: Any) -> str:
    if isinstance(value, str) and Path(value).is_absolute():
        return value
    raise ValueError("an absolute path")


Known = Mapping[str, tuple[Any, Callable[[Any], Any]]]
"""Option → (default, reader of a given value; raises `ValueError` that says what is wanted)."""

_SESSION: Known = {"loop": (False, _flag), "context_units": (4096, _whole(LEAST_CONTEXT, MOST_CONTEXT))}
_WORKER: Known = {
    "batch_ms": (0.0, _duration),
    "row_ms": (0.0, _duration),
    "open_ms": (0.0, _duration),
    "session_bytes": (0, _whole(0)),
    "fixed_bytes": (0, _whole(0)),
    "hang_dir": (None, _folder),
}


def _checked(known: Known, given: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: default for name, (default, _) in known.items()}
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.0)[0]
            raise BadOption(f"the parrot has no option {name!r} here; the nearest that it has is {near!r}")
        try:
            options[name] = known[name][1](value)
        except ValueError as wanted:
            raise BadOption(f"{name} must be {wanted}, not {value!r}") from None
    return options


def session_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """`loop` (the talker's records feed back to the llm) and `context_units` (budget of the llm's context); text
    values, as from a command line, are read.  Raises `BadOption`."""
    return _checked(_SESSION, given)


def worker_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The cost model, see `Cost`.  Raises `BadOption`."""
    return _checked(_WORKER, given)


def opened_with(given: Mapping[str, Any]) -> dict[str, Any]:
    """A session's options, as a stage finds them in its `Start`.  Raises `SessionError`."""
    try:
        return session_options(given)
    except BadOption as error:
        raise SessionError(str(error)) from error


class Cost:
    """What a worker costs, by its options: a step takes `batch_ms` + rows * `row_ms`, each quantum of an opening
    `open_ms`; a session takes `session_bytes` and the stage `fixed_bytes`.  A step does not end while there is a file in
    `hang_dir` whose name is the number of this process.

    With the extra option `sleep`, a function of seconds, time is the caller's: then computing takes none.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._batch_s, self._row_s, self._open_s = (
            options.get(name, 0.0) / 1000 for name in ("batch_ms", "row_ms", "open_ms")
        )
        sleep: Callable[[float], object] | None = options.get("sleep")
        self._sleep = sleep or time.sleep
        self._clock = time.perf_counter if sleep is None else lambda: 0.0
        self._footprint = Footprint(options.get("fixed_bytes", 0), options.get("session_bytes", 0))
        hang_dir = options.get("hang_dir")
        self._hang = Path(hang_dir, str(os.getpid())) if hang_dir is not None else None

    @contextmanager
    def step(self, rows: int) -> Iterator[None]:
        """Makes what runs inside last as long as a step of `rows` sessions does."""
        begun = self._clock()
        while self._hang is not None and self._hang.exists():
            self._sleep(HANG_LOOK_S)
        yield
        self._rest(self._batch_s + rows * self._row_s - (self._clock() - begun) if rows else 0.0)

    def fold(self, units: Sequence[Unit], advance: Callable[[Unit], object]) -> Iterator[None]:
        """Calls `advance` with every unit; yields after each quantum, so that other sessions keep ticking.  What
        is left at the end is a quantum too, even if it is nothing."""
        for done, unit in enumerate(units, start=1):
            advance(unit)
            if done % QUANTUM == 0:
                self._rest(self._open_s)
                yield
        self._rest(self._open_s)

    def footprint(self) -> Footprint:
        return self._footprint

    def _rest(self, seconds: float) -> None:
        if seconds > 0:
            self._sleep(seconds)


# ---------------------------------------------------------------- the context


def trim(context_start: int, unit: int, budget: int) -> int:
    """The first unit of the context while unit `unit` is stepped: where the context holds `budget` units already,
    the older half is dropped, so that trims are rare."""
    return unit - budget // 2 if unit - context_start >= budget else context_start


# ---------------------------------------------------------------- signals


@cache
def _powers(pole: float, count: int) -> Floats:
    """`pole` ** 1 .. `pole` ** `count`, [count], read-only.  Made by multiplication alone: `pow` differs between C
    libraries, and a session may move between machines."""
    powers = np.array([pole])
    while len(powers) < count:
        powers = np.concatenate([powers, powers * powers[-1]])
    powers = powers[:count].copy()
    powers.flags.writeable = False
    return powers


def one_pole(drive: Floats, pole: float, carry: Floats) -> Floats:
    """y[n] = drive[n] + pole * y[n-1] along the last axis, by a prefix scan that doubles its reach each time.

    `drive` is [rows, samples] and `carry` [rows] the y before the first sample; returns y [rows, samples].  Only
    elementwise operations, so that a row comes out the same, bit by bit, whatever other rows there are.
    Scan: Hillis and Steele, "Data parallel algorithms", CACM 29 (1986).
    """
    y, samples = drive.copy(), drive.shape[1]
    powers = _powers(pole, samples)
    reach = 1
    while reach < samples:
        y[:, reach:] += powers[reach - 1] * y[:, :-reach]
        reach *= 2
    return y + powers * carry[:, None]


def rms(y: Floats) -> Floats:
    """Root mean square of each row of `y` [rows, samples]; summed in one fixed order, elementwise as above."""
    total = y * y
    while (width := total.shape[1]) > 1:
        half = width // 2
        folded = total[:, :half] + total[:, half : 2 * half]
        if width % 2:
            folded[:, 0] += total[:, -1]
        total = folded
    root: Floats = np.sqrt(total[:, 0] / y.shape[1])
    return root


# ---------------------------------------------------------------- bodies


def tensor(unit: Unit, src: str, name: str, dtype: str, shape: tuple[int, ...]) -> Tensor | None:
    """The tensor `name` that `src` sent for this unit, `None` for a marker.  Raises `SessionError` when there is no
    such input, or it has another dtype or shape."""
    body = unit.inputs.get(src)
    if body is None:
        raise SessionError(f"unit {unit.number} came without its input from {src}")
    if body.marker:
        return None
    found = body.tensors.get(name)
    if found is None:
        raise SessionError(f"unit {unit.number} from {src} has no {name!r} but {sorted(body.tensors)}")
    if (found.dtype, found.shape) != (dtype, shape):
        raise SessionError(
            f"{name!r} of unit {unit.number} from {src} is {found.dtype}{list(found.shape)}, "
            f"not {dtype}{list(shape)}"
        )
    return found


def array(unit: Unit, src: str, name: str, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any] | None:
    """As `tensor`, as an array of finite numbers, read-only."""
    found = tensor(unit, src, name, dtype, shape)
    if found is None:
        return None
    try:
        values = found.array()
    except Malformed as error:
        raise SessionError(f"unit {unit.number} from {src}: {error}") from error
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise SessionError(f"{name!r} of unit {unit.number} from {src} is not finite")
    return values


def attempt(read: Callable[[T], R], given: T) -> R | SessionError:
    """What `read` returns, or the `SessionError` that it raises: a row that fails alone."""
    try:
        return read(given)
    except SessionError as error:
        return error


def feedback(record: float | None) -> Codes:
    """The talker's body for the llm, from the talker's record."""
    return Codes() if record is None else Codes.of({"d": np.array(record, np.float64)})


def parity(d: float) -> int:
    """The lowest bit of a draw, which is a multiple of 2**-53."""
    return int(d * 2**53) & 1


# ---------------------------------------------------------------- the manifest


def _edges(options: Mapping[str, Any]) -> tuple[Edge, ...]:
    looped = Edge("talker", "llm", main=False, lag=1, record_like=True)
    return (*CHAIN, looped) if session_options(options)["loop"] else CHAIN


def _boundaries(src: str, dst: str, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    def pcm() -> Any:
        return arrays.get("pcm", np.zeros(UNIT_SAMPLES, np.int16))

    def floats(name: str) -> Any:
        return arrays.get(name, np.zeros(UNIT_SAMPLES))

    match src, dst:
        case "root", "encoder":
            return {"input_pcm16": pcm()}
        case "encoder", "llm":
            return {"features": floats("feature"), "active": np.array(bool(arrays))}
        case "llm", "talker":
            return {"condition": floats("feature"), "first": arrays.get("first", np.array(False))}
        case "talker", "codec":
            return {"codes": floats("samples")}
        case "codec", "root":
            return {"pcm16": pcm()}
    return {}


MANIFEST = Manifest(
    id="parrot",
    description="Repeats what it hears and numbers its units in the transcript; deterministic, no weights.",
    unit_samples=UNIT_SAMPLES,
    input_rate=RATE,
    output_rate=RATE,
    session_options=session_options,
    worker_options=worker_options,
    edges=_edges,
    boundaries=_boundaries,
    recall=lambda src, dst, record: feedback(record),
    voices=("parrot",),
    unsupported=(
        INSTRUCTIONS,
        HISTORY,
        "appended text",
        "choice of voice",
        "input transcripts",
        "delegation",
        "tools",
    ),
)
