"""`duologue talk --mic`: both transcripts as a conversation while it goes on."""

import asyncio
import contextlib
import signal
from collections.abc import Callable

from rich.console import Console

from duologue.audio.formats import Format
from duologue.cli.failure import Failure, Misuse
from duologue.client import Closed, ErrorEvent, Event, Info, LiveClient, Model, TranscriptDelta
from duologue.client.converse import converse
from duologue.client.sound import NoSound, Sound, sounddevice
from duologue.settings import Settings

BLOCK_MS = 20


class Transcript:
    """Prints what either says as it is said; a line for each time that the other one begins."""

    YOU, MODEL = "you", "model"
    PAUSE_MS = 2000
    """After so long one who goes on begins a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._speaker = ""
        self._end_ms = 0

    def event(self, event: Event) -> None:
        match event:
            case TranscriptDelta():
                self._words(event)
            case ErrorEvent() | Info():
                self.end()
                self._print(f"{event.type}: {event.message} ({event.code})\n")

    def end(self) -> None:
        """Ends the line that is begun."""
        if self._speaker:
            self._print("\n")
        self._speaker = ""

    def _words(self, part: TranscriptDelta) -> None:
        speaker = self.YOU if part.heard else self.MODEL
        if speaker != self._speaker or part.start_ms - self._end_ms > self.PAUSE_MS:
            self.end()
            self._speaker = speaker
            self._print(f"{speaker:>5}: {part.text.lstrip()}")
        else:
            self._print(part.text)
        self._end_ms = max(part.end_ms, part.start_ms)

    def _print(self, text: str) -> None:
        self._console.print(text, end="", markup=False, highlight=False, soft_wrap=True)


def by_microphone(settings: Settings, choose: Callable[[], Model], form: Format) -> int:
    """Talks until Ctrl-C, to the model that `choose` returns."""
    if settings.file is not None or settings.out is not None or settings.as_json:
        raise Misuse("--mic goes with neither a recording nor --out nor --json")
    console = Console()
    show = Transcript(console)
    try:
        device = sounddevice()
    except NoSound as error:
        raise Failure(str(error)) from None
    model = choose()

    async def conversation() -> Closed:
        stop = asyncio.Event()
        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
        with Sound(form.rate, form.rate * BLOCK_MS // 1000, device) as sound:
            async with LiveClient.connect(
                settings.url,
                model=model.id,
                api_key=next(iter(settings.key), None),
                instructions=settings.instructions,
                voice=settings.voice,
                form=form,
            ) as client:
                console.print(f"Talk to {client.model}; Ctrl-C ends. Headphones keep it from hearing itself.")
                return await converse(client, sound, stop, show.event)

    try:
        closed = asyncio.run(conversation())
    except NoSound as error:
        raise Failure(str(error)) from None
    finally:
        show.end()
    if closed.reason != "close_requested":
        raise Failure(f"the server ended the session: {closed.reason}")
    return 0
