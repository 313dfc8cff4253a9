"""The Live protocol's primary WebSocket: commands in, events out."""
