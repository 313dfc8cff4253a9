"""Faults under load, and the proof that nothing was lost: `duologue drill`."""
