"""`duologue`, and `python -m duologue`."""

import sys


def main() -> int:
    """Runs the command line of this process and returns the exit code."""
    try:
        from duologue import cli

        return cli.main()
    except KeyboardInterrupt:  # Ctrl-C while that was being imported
        return 130


if __name__ == "__main__":
    sys.exit(main())
