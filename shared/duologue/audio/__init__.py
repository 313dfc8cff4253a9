"""Recordings in and out: WAV files, sample rates, framing into units."""
