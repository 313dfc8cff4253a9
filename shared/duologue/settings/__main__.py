"""`python -m duologue.settings` prints docs/settings.md."""

from duologue.settings.page import page

print(page(), end="")
