"""Recordings that Debian packages: speech with transcripts, music, noise.  For tests and benchmarks only; nothing of it
is part of this distribution.

`asterisk-core-sounds-en`, `asterisk-core-sounds-en-g722` (a female US voice, CC-BY-SA-3.0), `pocketsphinx-testdata`
(LibriVox and others, BSD), `asterisk-moh-opsound-wav` (music, CC-BY-SA), `alsa-utils` (noise).
"""

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from duologue.audio.resample import to_rate
from duologue.audio.wav import read_wav

RATE = 16_000
PACKAGES = (
    "asterisk-core-sounds-en",
    "asterisk-core-sounds-en-g722",
    "asterisk-moh-opsound-wav",
    "pocketsphinx-testdata",
    "alsa-utils",
)
ROOT = Path("/usr/share")
PROMPTS, PROMPT_TEXTS = "asterisk/sounds/en", "doc/asterisk-core-sounds-en/core-sounds-en.txt.gz"
SPHINX, MUSIC, SOUNDS = "pocketsphinx/test/data", "asterisk/moh", "sounds/alsa"
MIN_WORDS = 4
SILENT = 32
"""Prompts whose loudest sample is below this are silence with a transcript."""

Pcm = npt.NDArray[np.int16]


class Missing(Exception):
    """A recording is not installed; says which package has it."""


@dataclass(frozen=True)
class Spoken:
    """int16 [n] at 16 kHz, and what is said there."""

    name: str
    pcm: Pcm
    text: str


def prompts(every: int = 3, root: Path = ROOT) -> list[Spoken]:
    """Every third of the prompts with four words and more.  Raises `Missing`."""
    table, folder = root / PROMPT_TEXTS, root / PROMPTS
    if not table.exists() or not any(folder.glob("*.g722")):
        raise Missing("asterisk-core-sounds-en asterisk-core-sounds-en-g722")
    found = []
    for line in gzip.decompress(table.read_bytes()).decode("utf-8", "replace").splitlines():
        name, colon, text = line.partition(": ")
        plain = colon and not name.startswith((";", "silence")) and "[" not in text
        if plain and len(re.findall(r"[\w']+", text)) >= MIN_WORDS and (folder / f"{name}.g722").exists():
            found.append((name, text))
    taken = (Spoken(name, read_g722(folder / f"{name}.g722"), text) for name, text in found[::every])
    return [each for each in taken if np.abs(each.pcm.astype(int)).max(initial=0) > SILENT]


def read_aloud(root: Path = ROOT) -> list[Spoken]:
    """Five sentences of a novel and five combinations of cards, by others.  Raises `Missing`."""
    folder = root / SPHINX
    if not folder.exists():
        raise Missing("pocketsphinx-testdata")
    found = []
    for table in (folder / "librivox/transcription", folder / "cards/cards.transcription"):
        for text, name in re.findall(r"<s>(.*?)</s>\s*\((.*?)\)", table.read_text()):
            found.append(Spoken(name, at_16k(table.parent / f"{name}.wav"), text.strip()))
    return found


def music(root: Path = ROOT) -> dict[str, Pcm]:
    """Pieces for telephone queues, with drums and without.  Raises `Missing`."""
    files = sorted((root / MUSIC).rglob("*.wav"))
    if not files:
        raise Missing("asterisk-moh-opsound-wav")
    return {file.stem: at_16k(file) for file in files}


def noise(root: Path = ROOT) -> Pcm:
    """Pink noise.  Raises `Missing`."""
    file = root / SOUNDS / "Noise.wav"
    if not file.exists():
        raise Missing("alsa-utils")
    return at_16k(file)


def at_16k(file: Path) -> Pcm:
    recording = read_wav(file)
    return to_rate(recording.samples, recording.rate, RATE)


def read_g722(file: Path) -> Pcm:
    """64 kbit/s at 16 kHz.  Raises `Missing` without the decoder."""
    try:
        from G722 import G722
    except ImportError:
        raise Missing("the Python package G722") from None
    return np.asarray(G722(RATE, 64_000).decode(file.read_bytes()), np.int16)


def joined(recordings: Sequence[Pcm], pause_s: float = 2.0) -> Pcm:
    """One after the other, each with silence behind it."""
    pause = np.zeros(round(pause_s * RATE), np.int16)
    return np.concatenate([part for pcm in recordings for part in (pcm, pause)])
