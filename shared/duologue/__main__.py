"""`python -m duologue` is `duologue`."""

import sys

from duologue.cli import main

if __name__ == "__main__":
    sys.exit(main())
