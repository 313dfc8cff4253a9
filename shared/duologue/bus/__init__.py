"""The bus: its messages and subjects, and the transports that carry them."""
