"""Keeps a warning of the JVM away from the user's terminal while Spark starts (shell).

Spark's launcher adds an incubator module to every JVM, and the JVM prints a warning about it that no option turns off. It
says nothing about the user's data, but looks like a fault. Everything else on the JVM's stderr is passed on.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NOISE = b"WARNING: Using incubator modules"
STDERR = 2


@contextmanager
def without_incubator_warning() -> Iterator[None]:
    """Filters the stderr of processes that are started inside the block, for as long as they run."""
    sys.stderr.flush()
    terminal = os.dup(STDERR)
    read_end, write_end = os.pipe()
    os.dup2(write_end, STDERR)
    os.close(write_end)
    # The thread owns both descriptors. It ends when no started process holds the pipe any more.
    threading.Thread(target=_pass_on, args=(read_end, os.dup(terminal)), daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, STDERR)
        os.close(terminal)


def _pass_on(read_end: int, terminal: int) -> None:
    with open(read_end, "rb") as lines, open(terminal, "wb", buffering=0) as stderr:
        for line in lines:
            if not line.startswith(NOISE):
                stderr.write(line)
