"""What is shown on a terminal."""


def printable(text: str) -> str:
    """Without what would move the cursor or change colours: for texts that come from elsewhere."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
