"""The README's example runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deployment import deployment
from duologue.audio.wav import read_wav
from duologue.testing.parrot_reference import reference

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]


def test_the_sdk_example_says_what_the_parrot_says() -> None:
    [code] = [
        block
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
        if "main()" in block
    ]
    assert (ROOT / "examples" / "talk_with_the_sdk.py").read_text().endswith(code)
    with deployment() as live:
        code = code.replace("http://127.0.0.1:8700", live.url)
        said = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        )
    heard = read_wav(ROOT / "examples" / "hello.wav")
    pcm16 = (heard.samples * 32768).astype("int16")
    silence = 8 * 24_000 - len(pcm16)
    expected = "".join(reference(np.pad(pcm16, (0, silence)), 0).texts)
    assert said.stdout == expected != ""
