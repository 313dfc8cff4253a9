"""`duologue talk`: a conversation with any Live server, the caller's part from a recording or the microphone."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from duologue.audio.formats import FORMATS, PCM_16K, PCM_24K, Format
from duologue.audio.resample import to_rate
from duologue.audio.wav import read_wav, write_wav
from duologue.cli.failure import Failure, Misuse
from duologue.cli.microphone import by_microphone
from duologue.client import (
    Event,
    LiveClient,
    Model,
    SessionRefused,
    TalkResult,
    TranscriptDelta,
    Unreachable,
    models,
    stream,
)
from duologue.settings import Settings

Pcm = npt.NDArray[np.int16]
WINDOW_S = 2.0
"""Without a pace: input ahead of the output, and at least two units."""


def talk(settings: Settings) -> int:
    """Stream a recording, print what is said, save the answer; or talk by microphone."""
    file, out, url, as_json = settings.file, settings.out, settings.url, settings.as_json
    key = next(iter(settings.key), None)
    chunk_bytes = settings.chunk_bytes
    chosen_format = _format(settings.format, settings.rate)
    if settings.mic:
        return by_microphone(settings, lambda: _choose(url, key, settings.model), chosen_format)
    if file is None:
        raise Misuse("Missing argument 'FILE.wav', or --mic (see duologue talk --help)")
    rate, width = chosen_format.rate, chosen_format.sample_bytes
    if settings.pace <= 0:
        raise typer.BadParameter(f"{settings.pace:g} is no pace", param_hint="--pace")
    if chunk_bytes is None:
        chunk_bytes = max(1, round(settings.chunk_ms / 1000 * rate)) * width
    if chunk_bytes % width:
        raise typer.BadParameter(f"{chunk_bytes} is odd", param_hint="--chunk-bytes")
    if out is not None and not out.parent.is_dir():
        raise Failure(f"{out}: no such directory to save the answer in")
    pcm16 = _load(file, rate, settings.tail_s)
    chosen = _choose(url, key, settings.model)
    unit = round(chosen.unit_s * rate) if chosen.unit_s else None
    show = _Screen(len(pcm16), rate, Console(stderr=True, quiet=as_json))

    async def conversation() -> TalkResult:
        async with LiveClient.connect(
            url,
            model=chosen.id,
            api_key=key,
            instructions=settings.instructions,
            voice=settings.voice,
            form=chosen_format,
        ) as client:
            return await stream(
                pcm16,
                client,
                chunk_bytes=chunk_bytes,
                pace=None if settings.no_pace else settings.pace,
                window_s=max(WINDOW_S, 2 * (chosen.unit_s or 0)),
                unit_samples=unit,
                on_event=show.event,
                on_sent=show.sent,
            )

    with show.running():
        result = _reach(conversation)
    if out is not None:
        write_wav(out, result.pcm16, rate)
    if as_json:
        typer.echo(orjson.dumps({**_summary(result, out), "format": chosen_format.name}))
    else:
        show.summary(result, out)
    if result.close_reason != "close_requested":
        raise Failure(f"the server ended the session: {result.close_reason}")
    return 0


def _format(name: str | None, rate: int | None) -> Format:
    """That of `--format`, or of `--rate`.  Raises `BadParameter`."""
    if name is None:
        for each in (PCM_24K, PCM_16K):
            if rate in (None, each.rate):
                return each
        raise typer.BadParameter(f"{rate} is neither 24000 nor 16000", param_hint="--rate")
    for each in FORMATS:
        if each.name == name:
            if rate not in (None, each.rate):
                raise typer.BadParameter(f"{name} is not at {rate} Hz", param_hint="--rate")
            return each
    names = ", ".join(each.name for each in FORMATS)
    raise typer.BadParameter(f"{name!r} is none of {names}", param_hint="--format")


def _load(file: Path, rate: int, tail_s: float) -> Pcm:
    recording = read_wav(file)
    pcm16 = to_rate(recording.samples, recording.rate, rate)
    if not len(pcm16):
        raise Failure(f"{file}: the recording is empty")
    return np.concatenate([pcm16, np.zeros(round(tail_s * rate), np.int16)])


def _choose(url: str, key: str | None, model: str | None) -> Model:
    """The model to talk to.  Other servers may have no list of models; then it must be named."""
    try:
        found = models(url, api_key=key)
    except Unreachable as error:
        raise Failure(f"{error} (`duologue up` starts a server on this machine)") from None
    except SessionRefused as error:
        if error.status == 401 and key is None:
            raise Failure(f"{error}: give --key") from None
        if model is None or error.status in (401, 403):
            raise
        found = ()
    if model is None and not found:
        raise Failure("the server offers no model")
    return next((entry for entry in found if model in (None, entry.id)), Model(model or ""))


def _reach(conversation: Any) -> TalkResult:
    try:
        result: TalkResult = asyncio.run(conversation())
        return result
    except Unreachable as error:
        raise Failure(f"{error} (`duologue up` starts a server on this machine)") from None


def _summary(result: TalkResult, out: Path | None) -> dict[str, Any]:
    first = result.first_audio_s
    return {
        "session": result.session,
        "model": result.model,
        "input_samples": result.input_samples,
        "units_in": result.units_in,
        "units_out": result.units_out,
        "output_samples": len(result.pcm16),
        "first_audio_ms": None if first is None else round(first * 1000, 1),
        "transcript": result.text,
        "fragments": _fragments(result.transcript),
        "heard": _fragments(result.heard),
        "notices": [
            {"type": each.type, "code": each.code, "message": each.message} for each in result.notices
        ],
        "seconds": round(result.seconds, 3),
        "usage_seconds": result.usage_seconds,
        "close_reason": result.close_reason,
        "out": None if out is None else str(out),
    }


def _fragments(parts: Sequence[TranscriptDelta]) -> list[dict[str, Any]]:
    return [{"text": part.text, "start_ms": part.start_ms, "end_ms": part.end_ms} for part in parts]


class Lines:
    """Puts transcript fragments into lines: a pause or a long line ends one."""

    PAUSE_MS = 800
    WIDTH = 72

    def __init__(self) -> None:
        self.text = ""
        self._start_ms = self._end_ms = 0

    def add(self, part: TranscriptDelta) -> str | None:
        """The line that is complete with this fragment's coming, if one is."""
        done = None
        paused = part.start_ms - self._end_ms >= self.PAUSE_MS
        if self.text and (paused or (len(self.text) >= self.WIDTH and part.text[:1].isspace())):
            done = self.rest()
        if not self.text:
            self._start_ms = part.start_ms
        self.text += part.text
        self._end_ms = part.end_ms
        return done

    def rest(self) -> str | None:
        """The line so far."""
        text, self.text = self.text.strip(), ""
        return f"{self._start_ms / 1000:7.2f} s  {text}" if text else None


class _Screen:
    def __init__(self, samples: int, rate: int, console: Console) -> None:
        self._console = console
        self._rate = rate
        self._said, self._heard = Lines(), Lines()
        self._progress = Progress(
            BarColumn(),
            TextColumn("{task.fields[at]}"),
            TextColumn("{task.fields[line]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=samples, at="", line="")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self._progress:
            yield
            for lines, sign in ((self._said, "<"), (self._heard, ">")):
                self._print(lines.rest(), sign)

    def sent(self, samples: int) -> None:
        self._progress.update(self._task, completed=samples, at=f"{samples / self._rate:.1f} s")

    def event(self, event: Event) -> None:
        if isinstance(event, TranscriptDelta):
            (lines, sign), (others, other_sign) = (self._heard, ">"), (self._said, "<")
            if not event.heard:
                (lines, sign), (others, other_sign) = (others, other_sign), (lines, sign)
            self._print(others.rest(), other_sign)
            self._print(lines.add(event), sign)
            self._progress.update(self._task, line=self._said.text.strip()[-60:])

    def summary(self, result: TalkResult, out: Path | None) -> None:
        for notice in result.notices:
            self._console.print(
                f"{notice.type}: {notice.message} ({notice.code})", markup=False, soft_wrap=True
            )
        units = "" if result.units_in is None else f" ({result.units_out} of {result.units_in} units)"
        first = "none" if result.first_audio_s is None else f"{result.first_audio_s:.2f} s after the start"
        parts = [
            f"{result.model} {result.session}",
            f"{result.input_samples / self._rate:.1f} s in, {len(result.pcm16) / self._rate:.1f} s out{units}",
            f"first audio {first}",
            *([f"saved {out}"] if out is not None else []),
        ]
        self._console.print(" · ".join(parts), markup=False, highlight=False, soft_wrap=True)

    def _print(self, line: str | None, sign: str) -> None:
        if line is not None:
            self._progress.console.print(f"{sign} {line}", markup=False, highlight=False, soft_wrap=True)
