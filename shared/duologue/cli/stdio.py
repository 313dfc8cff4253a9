"""Standard input, output and error of a process that was started without one of them."""

import os
import sys


def ensure() -> None:
    """Puts /dev/null where a standard stream was closed (`>&-`).  Its number would go to the next file or socket
    that is opened, which then got what is printed; and libuv aborts the process when it closes one of these three."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
