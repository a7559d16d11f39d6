"""How many replicas of this broker lead, and how many of these have too few in-sync replicas (core).

Kafka's gauges walk through all partitions when they are read. Here every change of a replica is noted, so reading costs the
same for any number of replicas.
"""

from collections import Counter
from enum import Enum, auto

from broker.core.partition_replica import PartitionReplica, Role
from common.ids import TopicIdPartition


class Standing(Enum):
    """What a leader counts as. It may be several at once."""

    LEADER = auto()
    UNDER_REPLICATED = auto()
    UNDER_MIN_ISR = auto()
    AT_MIN_ISR = auto()
    REASSIGNING = auto()


class ReplicaCounts:
    """See the module docstring. A replica that does not lead counts as nothing."""

    def __init__(self) -> None:
        # The leaders with what they count as. Invariant: `_counts` is the sum of these.
        # Changes when: a role, an ISR, the replicas or min.insync.replicas may have changed.
        self._standings: dict[TopicIdPartition, tuple[Standing, ...]] = {}
        self._counts: Counter[Standing] = Counter()

    def count(self, standing: Standing) -> int:
        return self._counts[standing]

    def note(self, key: TopicIdPartition, replica: PartitionReplica) -> None:
        """Counts the replica as what it is now, whatever it was before."""
        self._counts.subtract(self._standings.pop(key, ()))
        standings = _standings(replica)
        if standings:
            self._standings[key] = standings
            self._counts.update(standings)


def _standings(replica: PartitionReplica) -> tuple[Standing, ...]:
    if replica.role is not Role.LEADER:
        return ()
    # The number of in-sync replicas beyond what acks=all needs.
    spare = len(replica.committed_isr) - replica.min_isr
    found = [Standing.LEADER]
    if replica.is_under_replicated:
        found.append(Standing.UNDER_REPLICATED)
    if spare < 0:
        found.append(Standing.UNDER_MIN_ISR)
    if spare == 0:
        found.append(Standing.AT_MIN_ISR)
    if replica.is_reassigning:
        found.append(Standing.REASSIGNING)
    return tuple(found)
