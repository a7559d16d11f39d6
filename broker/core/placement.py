"""Chooses the log directory of a new replica (core).

Counterpart of the choice in Kafka's LogManager.nextLogDirs, which takes the directory with the fewest logs. That puts all
the leaders of a topic on one disk when the partitions that a broker leads come to it at regular intervals. So the two kinds
of replica are spread each by itself, by these rules in this order:

1. a directory whose file system is nearly full takes no replica, long before an append meets ENOSPC;
2. the directory with the fewest replicas of the same kind, preferred leaders or followers;
3. of these the one with the fewest logs;
4. of these the one with the most free bytes;
5. of these the first in the configuration, never by id, so that the same cluster is laid out the same way every time.

By rule 2 the preferred leaders on any two directories that start even and both have room never differ by more than one, in
whatever order the partitions come.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from common.ids import BrokerId, DirectoryId, TopicIdPartition


class ReplicaKind(Enum):
    """What a replica is to be while its cluster is well. Who leads at the moment has nothing to do with it."""

    PREFERRED_LEADER = auto()
    FOLLOWER = auto()


def replica_kind(broker_id: BrokerId, replicas: tuple[BrokerId, ...]) -> ReplicaKind:
    """The kind of the broker's replica; the first of the partition's replicas is the preferred leader."""
    return ReplicaKind.PREFERRED_LEADER if replicas[:1] == (broker_id,) else ReplicaKind.FOLLOWER


class PlacedReplicas:
    """The replicas whose logs are in one directory, or are being created there, by kind."""

    def __init__(self) -> None:
        # Invariant: a replica is in one of the sets or in none. The counts are their sizes, so they cannot drift.
        # Changes when: a creation begins or fails, a log is loaded or deleted, or the partition gets another first replica.
        self._by_kind: dict[ReplicaKind, set[TopicIdPartition]] = {kind: set() for kind in ReplicaKind}

    def __len__(self) -> int:
        return sum(map(len, self._by_kind.values()))

    def count(self, kind: ReplicaKind) -> int:
        """How many replicas of this kind there are."""
        return len(self._by_kind[kind])

    def place(self, replica: TopicIdPartition, kind: ReplicaKind) -> None:
        """The replica is here, and of this kind from now on. Harmless when repeated."""
        self.remove(replica)
        self._by_kind[kind].add(replica)

    def remove(self, replica: TopicIdPartition) -> None:
        """The replica is no longer here. Harmless when repeated."""
        for replicas in self._by_kind.values():
            replicas.discard(replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryLoad:
    """What an online directory holds, and what is free there."""

    directory_id: DirectoryId
    replicas: PlacedReplicas
    usable_bytes: int
    free_inodes: int
    """0 where the file system does not count them, as btrfs; one that has really none left fails the probe."""


def choose_directory(
    loads: Sequence[DirectoryLoad], kind: ReplicaKind, *, usable_bytes_min: int, free_inodes_min: int
) -> DirectoryId | None:
    """The directory for one more replica of this kind; None when every directory is below the floor, or none is online.
    `loads` are in the order of the configuration."""
    candidates = [
        load
        for load in loads
        if load.usable_bytes >= usable_bytes_min and (load.free_inodes == 0 or load.free_inodes >= free_inodes_min)
    ]
    if not candidates:
        return None
    return min(candidates, key=lambda load: (load.replicas.count(kind), len(load.replicas), -load.usable_bytes)).directory_id
