"""Duologue: the server for native full-duplex speech models."""

__version__ = "0.1.0"
