"""`duologue top`: who is there, and how they do, from heartbeats and events alone."""
