"""What outlives a process of a session: its record, its ledger."""
