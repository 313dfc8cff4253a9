"""Duologue: the server for native full-duplex speech models."""

import os

__version__ = "0.1.0"

# onnxruntime, which models may bring, sends usage data to its maker unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
