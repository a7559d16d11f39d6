"""Keeps two processes from downloading the same at the same time: the tests run in several (pytest-xdist)."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone_with(folder: Path) -> Iterator[None]:
    """Waits until no other process is inside such a block for the same folder. The folder need not exist."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
