"""The encoder stage: one file a model, its model half only (the shell is `duologue.stage`)."""
