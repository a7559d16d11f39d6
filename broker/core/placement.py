"""Chooses the log directory of a new replica (core).

Counterpart of Kafka's LogManager.nextLogDirs, which takes the directory with the fewest logs. That can put all leaders of a
topic on one disk, because the partitions that a broker leads arrive in a regular pattern. We therefore spread preferred
leaders and followers separately. The rules, in order:

0. A cordoned directory gets no new replica (KIP-1066), unless all online directories are cordoned: the controller may have
   placed the replica here just before it learnt of the last cordon.
   Likewise, a directory that is suspected of hanging, or was a moment ago, gets none while another one has room. The broker
   may be about to give it up, and its new logs would not come into being while it hangs.
1. A directory whose file system is nearly full gets no new replica. This limit applies long before an append would hit
   ENOSPC.
2. Take the directory with the fewest replicas of the same kind (preferred leaders or followers).
3. On a tie, the one with the fewest logs.
4. On a tie, the one with the most free bytes.
5. On a tie, the first in the configuration. Directory ids play no part, so that the same cluster is laid out the same way
   every time.

By rule 2, if two directories start even and both have room, their numbers of preferred leaders never differ by more than
one, in whatever order the partitions arrive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from common.ids import BrokerId, DirectoryId, TopicIdPartition


class ReplicaKind(Enum):
    """A replica's role in a healthy cluster, regardless of which replica leads right now."""

    PREFERRED_LEADER = auto()
    FOLLOWER = auto()


def replica_kind(broker_id: BrokerId, replicas: tuple[BrokerId, ...]) -> ReplicaKind:
    """Returns the kind of this broker's replica. The first of the partition's replicas is the preferred leader."""
    return ReplicaKind.PREFERRED_LEADER if replicas[:1] == (broker_id,) else ReplicaKind.FOLLOWER


class PlacedReplicas:
    """The replicas of one directory by kind, including those whose logs are being created there."""

    def __init__(self) -> None:
        # Invariant: a replica is in at most one of the sets. The counts are the sizes of the sets, so they cannot drift.
        # Changes when: a creation begins or fails, a log is loaded or deleted, or the partition's first replica changes.
        self._by_kind: dict[ReplicaKind, set[TopicIdPartition]] = {kind: set() for kind in ReplicaKind}

    def __len__(self) -> int:
        return sum(map(len, self._by_kind.values()))

    def count(self, kind: ReplicaKind) -> int:
        """Returns the number of replicas of this kind."""
        return len(self._by_kind[kind])

    def place(self, replica: TopicIdPartition, kind: ReplicaKind) -> None:
        """Counts the replica here as this kind, whatever it was before. Idempotent."""
        self.remove(replica)
        self._by_kind[kind].add(replica)

    def remove(self, replica: TopicIdPartition) -> None:
        """Stops counting the replica here. Idempotent."""
        for replicas in self._by_kind.values():
            replicas.discard(replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryLoad:
    """The replicas in an online directory, and its free space."""

    directory_id: DirectoryId
    replicas: PlacedReplicas
    usable_bytes: int
    is_cordoned: bool = False
    is_unsteady: bool = False
    free_inodes: int
    """0 if the file system does not count inodes, as on btrfs. If the inodes have really run out, the health probe fails."""


def choose_directory(
    loads: Sequence[DirectoryLoad], kind: ReplicaKind, *, usable_bytes_min: int, free_inodes_min: int
) -> DirectoryId | None:
    """Chooses the directory for one more replica of this kind. Returns None if every directory is below one of the minimums,
    or if none is online. `loads` must be in configuration order."""
    candidates = [
        load
        for load in [each for each in loads if not each.is_cordoned] or loads
        if load.usable_bytes >= usable_bytes_min and (load.free_inodes == 0 or load.free_inodes >= free_inodes_min)
    ]
    candidates = [each for each in candidates if not each.is_unsteady] or candidates
    if not candidates:
        return None
    return min(candidates, key=lambda load: (load.replicas.count(kind), len(load.replicas), -load.usable_bytes)).directory_id
