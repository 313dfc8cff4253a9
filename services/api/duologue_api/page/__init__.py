"""The talk page: what a browser gets at `/`, and the assets that it asks for then."""
