"""What the tools and the metrics show of the replicas here (shell).

Counterpart of Kafka's ReplicaManager.describeLogDirs, and of its gauges. Everything is read from the tables at the moment of
the question.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice

from broker.core.hosted_replicas import HostedReplicas
from broker.core.replica_counts import ReplicaCounts, Standing
from broker.hosting.hosted import Hosted
from broker.hosting.partition import Partition
from common.ids import DirectoryId, TopicIdPartition

# Describing so many replicas blocks the event loop for a few milliseconds.
RESIZED_PER_CALL_MAX = 1_000


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One replica as DescribeLogDirs shows it. The lag of a current replica is how far its end is below the high watermark,
    that of a future replica how far its end is below the end of the current log."""

    topic: str
    index: int
    directory_id: DirectoryId
    size_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaGauges:
    """The values of Kafka's gauges in kafka.server:type=ReplicaManager, and of one of our own (unplaceable replicas)."""

    partition_count: int
    leader_count: int
    offline_replica_count: int
    under_replicated_partitions: int
    under_min_isr_partition_count: int
    at_min_isr_partition_count: int
    reassigning_partitions: int
    unplaceable_replica_count: int


class ReplicaDescriptions:
    """See the module docstring. Nothing here changes a replica."""

    def __init__(self, hosted: Hosted, known: HostedReplicas, counts: ReplicaCounts) -> None:
        self._hosted = hosted
        self._known = known
        self._counts = counts

    def every(self) -> Iterator[ReplicaDescription]:
        """Describes the replicas that are here now: each current one and, where it moves, the future one (KIP-113). Other
        work may go on between two of them."""
        for partition in [*self._hosted.partitions.values()]:
            yield _described(partition)
            future = partition.future
            if future is not None:
                lag = partition.log.log_end_offset - future.log.log_end_offset
                yield ReplicaDescription(
                    partition.topic, partition.index, future.directory_id, future.log.size_bytes, lag, is_future=True
                )

    def count(self) -> int:
        """Returns the number of current replicas."""
        return len(self._hosted.partitions)

    @property
    def topics(self) -> Collection[str]:
        """The names of the topics that have current replicas here."""
        return self._hosted.topics

    def take_resized(self) -> dict[TopicIdPartition, ReplicaDescription | None]:
        """Describes the current replicas whose logs may have changed in size since the last call; None for those that are
        no longer here. Leaves more than RESIZED_PER_CALL_MAX of them to the next calls, those that changed first coming
        first: after a start these are all replicas."""
        self._hosted.are_sizes_read = True
        keys = list(islice(self._hosted.resized, RESIZED_PER_CALL_MAX))
        for key in keys:
            del self._hosted.resized[key]
        found = {key: self._hosted.partitions.get(key) for key in keys}
        return {key: None if partition is None else _described(partition) for key, partition in found.items()}

    def count_in(self, directory_id: DirectoryId) -> int:
        """Returns the number of current replicas in a directory."""
        return self._hosted.count_in(directory_id)

    def gauges(self) -> ReplicaGauges:
        """Returns the current values of the gauges."""
        counts = self._counts
        return ReplicaGauges(
            partition_count=len(self._hosted.partitions),
            leader_count=counts.count(Standing.LEADER),
            offline_replica_count=self._known.offline_count,
            under_replicated_partitions=counts.count(Standing.UNDER_REPLICATED),
            under_min_isr_partition_count=counts.count(Standing.UNDER_MIN_ISR),
            at_min_isr_partition_count=counts.count(Standing.AT_MIN_ISR),
            reassigning_partitions=counts.count(Standing.REASSIGNING),
            unplaceable_replica_count=self._known.unplaceable_count,
        )


def _described(partition: Partition) -> ReplicaDescription:
    return ReplicaDescription(
        partition.topic,
        partition.index,
        partition.directory_id,
        partition.log.size_bytes,
        max(partition.high_watermark - partition.log.log_end_offset, 0),
    )
