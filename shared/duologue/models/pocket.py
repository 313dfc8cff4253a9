"""The pocket model: small models from packages, in a row, behind the four stages.  Not a native duplex model but a
*cascade*: it recognises what was said, thinks of an answer and reads it out.  No GPU, no download.

| stage | does | out |
|---|---|---|
| encoder | voice activity, end of turn, recognition | `Features`: `speech`, `text`, `span` |
| llm | listens or speaks, answers | `Condition`: `text`, `end`, `stop` |
| talker | text to clauses to phonemes | `Codes`: `clauses`, `phonemes`, `text`, `words`, `more`, `stop` |
| codec | synthesis, cut into units | `Speech`: `pcm`; to the llm: `left`, `text` |

A body without arrays says that there is nothing new in the unit.  Texts are UTF-8 as uint8 [bytes].

`Codes`: `clauses` int64 [k, 2] has the phonemes and the bytes of text of each of k clauses, `phonemes` int64 and `text` those
of all, `words` int64 [w, 2] for each word the phoneme of its clause with which it begins and its bytes, white space before
it included; `more` int64 [] are characters that are still to be read.  `Speech` to the llm: `left` int64 [] are the output
samples still to be said after the unit, in part an estimate, `text` is what began to be said in it.

The encoder's horizon is *approximate*: its voice detector is a recurrent network, and settles within 3 s.  What it
judged is in the records, so only units that nobody has judged yet can be judged otherwise after a move.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from duologue.models.manifest import CHAIN, BadOption, Edge, Manifest, Message

UNIT_SAMPLES, INPUT_RATE, OUTPUT_RATE = 1280, 16_000, 24_000
"""A unit is 80 ms."""
FEEDBACK_UNITS = 2
"""The llm hears what the codec said so many units later."""
CONTEXT_CHARACTERS = 32_768
"""Of the conversation that an answer is made from; some 8000 tokens.  Instructions come on top."""


def session_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Raises `BadOption`."""
    if given:
        raise BadOption(f"the pocket model has no session option {next(iter(given))!r}")
    return {}


def worker_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """`inline`: work that otherwise has threads of its own is done within the step, for tests and virtual time.
    `recogniser`: a folder with another Moonshine model, `vad`: Silero's ONNX file, instead of those of the packages.
    `chat_url`, `chat_model`, `chat_key`: the endpoint that answers, its model and bearer key.  `llm`: what answers where
    there is none, a GGUF file, `auto` or `none`.  Raises `BadOption`."""
    options: dict[str, Any] = {
        "inline": False,
        "recogniser": "",
        "vad": "",
        "chat_url": "",
        "chat_model": "",
        "chat_key": "",
        "llm": "auto",
    }
    for name, value in given.items():
        if name not in options:
            raise BadOption(f"the pocket model has no worker option {name!r}")
        if isinstance(options[name], bool):
            if str(value).lower() not in ("true", "false"):
                raise BadOption(f"{name} must be true or false, not {value!r}")
            value = str(value).lower() == "true"
        elif not isinstance(value, str):
            raise BadOption(f"{name} must be text, not {value!r}")
        options[name] = value
    if options["chat_url"] and not options["chat_url"].startswith(("http://", "https://")):
        raise BadOption("chat_url must be an http:// or https:// URL")
    return options


def prompt(instructions: str | None, messages: Sequence[Message], voice: str) -> dict[str, Any]:
    """Options of a session's start beside `session_options`: `instructions`, `messages` and `voice`, those there are."""
    given = {"instructions": instructions, "messages": [list(each) for each in messages], "voice": voice}
    return {name: value for name, value in given.items() if value}


def _edges(options: Mapping[str, Any]) -> tuple[Edge, ...]:
    return (*CHAIN, Edge("codec", "llm", main=False, lag=FEEDBACK_UNITS))


def _boundaries(src: str, dst: str, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    if (src, dst) == ("root", "encoder"):
        return {"input_pcm16": arrays.get("pcm", np.zeros(UNIT_SAMPLES, np.int16))}
    if (src, dst) == ("codec", "root"):
        return {"pcm16": arrays.get("pcm", np.zeros(UNIT_SAMPLES * OUTPUT_RATE // INPUT_RATE, np.int16))}
    return {}


MANIFEST = Manifest(
    id="pocket",
    description="A spoken conversation on a laptop: recognition, rules or a small LLM, synthesis; a cascade.",
    unit_samples=UNIT_SAMPLES,
    input_rate=INPUT_RATE,
    output_rate=OUTPUT_RATE,
    session_options=session_options,
    worker_options=worker_options,
    edges=_edges,
    boundaries=_boundaries,
    prompt=prompt,
    voices=("heart",),
    unsupported=("appended text", "delegation", "tools"),
)
