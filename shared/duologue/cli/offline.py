"""`duologue offline`: a recording through all stages in one process, every stage boundary written down."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import typer

from duologue.audio.resample import to_rate
from duologue.audio.wav import read_wav
from duologue.boundaries import save
from duologue.cli.failure import Failure
from duologue.models import manifest
from duologue.settings import Settings


def offline(settings: Settings) -> int:
    """Run a recording through all stages of a model, here and reproducibly."""
    model, source, out = settings.model, settings.input, settings.out
    assert model is not None
    assert source is not None
    assert out is not None
    rate = manifest(model).input_rate
    pcm16 = load_input(source, rate)
    records = out.with_suffix(".json")
    if records == out:
        raise typer.BadParameter("the records take the name with .json", param_hint="--out")
    result = importlib.import_module("duologue.offline").run(
        model, pcm16, load_options(settings.options), settings.seed
    )
    save(result["arrays"], result["records"], out, records)
    return 0


def load_input(source: Path, rate: int) -> npt.NDArray[np.int16]:
    """int16 [n] at `rate`.  Raises `Failure`, `NotWav`, `OSError`."""
    if source.suffix != ".npz":
        recording = read_wav(source)
        return to_rate(recording.samples, recording.rate, rate)
    try:
        # No pickles: an archive from elsewhere must not run code.
        with np.load(source, allow_pickle=False) as archive:
            pcm16 = archive["pcm16"]
    except KeyError:
        raise Failure(f"{source}: no array `pcm16` in the archive") from None
    except (ValueError, EOFError) as error:
        raise Failure(f"{source}: {error}") from None
    if pcm16.dtype != np.int16 or pcm16.ndim != 1:
        raise Failure(f"{source}: `pcm16` is {pcm16.dtype} {list(pcm16.shape)}, not int16 [n] at {rate} Hz")
    found: npt.NDArray[np.int16] = pcm16
    return found


def load_options(path: Path | None) -> dict[str, Any]:
    """Raises `Failure`, `OSError`."""
    if path is None:
        return {}
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise Failure(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise Failure(f"{path}: not a JSON object")
    return found
