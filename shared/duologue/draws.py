"""Counter-based draws: the same (seed, unit, stage, step) always gives the same number, on any worker.

The generator is Philox 4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) as numpy has
it: key = (seed, index of the stage), counter = (unit, step, 0, 0).
"""

import hashlib

import numpy as np

STAGE_INDEX = {"encoder": 0, "llm": 1, "talker": 2, "codec": 3}


def generator(seed: int, unit: int, stage: str, step: int = 0) -> np.random.Generator:
    """A generator for any number of draws at that place.  `seed` is taken modulo 2**64."""
    key = np.array([seed % 2**64, STAGE_INDEX[stage]], np.uint64)
    counter = np.array([unit, step, 0, 0], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def draw(seed: int, unit: int, stage: str, step: int = 0) -> float:
    """One uniform draw in [0, 1), a multiple of 2**-53."""
    return float(generator(seed, unit, stage, step).random())


def seed_of(sid: str) -> int:
    """The seed of a session that was not given one: 63 bits of its id's BLAKE2b hash."""
    return int.from_bytes(hashlib.blake2b(sid.encode(), digest_size=8).digest()) >> 1
