"""The README's example runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deployment import deployment

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]


def test_the_sdk_example_is_answered() -> None:
    """The recording asks for seven plus five."""
    [code] = [
        block
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
        if "main()" in block
    ]
    assert (ROOT / "examples" / "talk_with_the_sdk.py").read_text().endswith(code)
    with deployment(model="pocket") as live:
        code = code.replace("http://127.0.0.1:8700", live.url)
        said = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        )
    assert "twelve" in said.stdout
