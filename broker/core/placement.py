"""Chooses the log directory of a new replica (core).

Answers to the choice in Kafka's LogManager.nextLogDirs: the directory with the fewest logs. Two things are added: a
directory whose file system is nearly full takes no new replica, long before an append meets ENOSPC, and among equals the
one with most free bytes wins. Easy to get wrong: ties are settled by the order of the configuration, never by the id, so
that the same cluster is laid out the same way every time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.ids import DirectoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryLoad:
    """What an online directory holds: its logs, being created or deleted ones included, and what is free there."""

    directory_id: DirectoryId
    logs: int
    usable_bytes: int
    free_inodes: int
    """0 where the file system does not count them, as btrfs; one that has really none left fails the probe."""


def choose_directory(loads: Sequence[DirectoryLoad], *, usable_bytes_min: int, free_inodes_min: int) -> DirectoryId | None:
    """The directory for one more log; None when every directory is below the floor, or none is online."""
    candidates = [
        load
        for load in loads
        if load.usable_bytes >= usable_bytes_min and (load.free_inodes == 0 or load.free_inodes >= free_inodes_min)
    ]
    if not candidates:
        return None
    return min(candidates, key=lambda load: (load.logs, -load.usable_bytes)).directory_id
