"""`duologue tap`: the bus, decoded and printed, or the stage boundaries written down.  An observer: nothing waits for it."""
