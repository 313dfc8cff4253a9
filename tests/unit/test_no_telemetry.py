"""onnxruntime 1.32 sends usage data to its maker, from the moment that it is imported: not from here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.unit, pytest.mark.slow]

IMPORT = "import duologue, onnxruntime"


def test_onnxruntime_is_told_to_keep_quiet(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    environ = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", IMPORT], env={**environ, "TMPDIR": str(tmp_path)}, check=True)
    # The file `.ses` there is that of the session that it would report.
    assert list(tmp_path.iterdir()) == []
