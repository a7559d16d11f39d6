"""Disks that hang for the duration of a block."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tools.lab.disk_faults import SECONDS, freeze, hang_blocks
from tools.lab.disk_lab import heal_disk


@contextlib.contextmanager
def frozen(path: Path, seconds: float = SECONDS) -> Iterator[None]:
    """Freezes the file system for the duration of the block, but no longer than `seconds`."""
    freeze(path, seconds)
    try:
        yield
    finally:
        heal_disk(path)


@contextlib.contextmanager
def hanging(path: Path, seconds: float = SECONDS) -> Iterator[None]:
    """Makes the blocks of a faulty disk hang for the duration of the block, but no longer than `seconds`."""
    hang_blocks(path, seconds)
    try:
        yield
    finally:
        heal_disk(path)
