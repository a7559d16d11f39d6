"""Log directories as an AdminClient shows them, and the requests about them (core).

The result types are those of KIP-113: LogDirInfo and ReplicaInfo for a broker's directories, ReplicaLogDirInfo for one
replica. The KIP's `temporary` replica is called a future replica here, as in Apache Kafka.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from admin.errors import AdminError, RequestFailed, failure
from admin.partitions import TopicPartition, TopicPartitionReplica, partitions_by_topic
from common.protocol.errors import ErrorCode, error_name
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from common.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

UNKNOWN_SIZE: Final = -1
INVALID_OFFSET_LAG: Final = -1


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica in a directory. While a replica moves, each of the two directories has a ReplicaInfo of its own."""

    size: int
    """The total size of all segments, in bytes."""
    offset_lag: int
    """How far the log end is below the high watermark or, for a future replica, below the log end of the current replica. -1
    if the current replica is offline."""
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirInfo:
    """One directory of a broker."""

    error_code: int
    """NONE if the directory is online. KAFKA_STORAGE_ERROR if it is offline; the content and the sizes are then unknown. A
    newer broker may return a number that this release does not know."""
    replica_infos: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    """The size of the file system; None if the broker does not know it, or is too old to report it (KIP-827)."""
    usable_bytes: int | None
    is_cordoned: bool = False
    """Whether the directory gets no new replicas (KIP-1066). False if the broker is too old to know."""

    @property
    def is_online(self) -> bool:
        return self.error_code == ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ReplicaLogDirInfo:
    """The directory of one replica, and the progress of its move to another directory."""

    current_log_dir: str | None = None
    """None if no online directory of the broker has the replica."""
    current_offset_lag: int = INVALID_OFFSET_LAG
    future_log_dir: str | None = None
    """The directory that the replica is moving to; None if it is not moving."""
    future_offset_lag: int = INVALID_OFFSET_LAG


# --- DescribeLogDirs -------------------------------------------------------------------------------------------------


def describe_request(replicas: Sequence[TopicPartitionReplica] | None = None) -> DescribeLogDirsRequest:
    """Returns a request for all partitions of a broker, or only for the partitions of `replicas`."""
    if replicas is None:
        return DescribeLogDirsRequest(topics=None)
    topics = partitions_by_topic(replicas)
    return DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
    )


def log_dir_infos(response: DescribeLogDirsResponse) -> dict[str, LogDirInfo]:
    """Returns the directories by path. Raises RequestFailed if the broker refused the request."""
    if response.error_code != ErrorCode.NONE:
        raise failure(response.error_code)
    if not response.results:
        # Every broker has a directory, so an empty list is a refusal. Versions 0 to 2 have no error code.
        raise RequestFailed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return {result.log_dir: _log_dir_info(result) for result in response.results}


def _log_dir_info(result: DescribeLogDirsResult) -> LogDirInfo:
    # No partition occurs twice: its current and its future replica are never in the same directory.
    replica_infos = {
        TopicPartition(topic.name, each.partition_index): ReplicaInfo(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in result.topics
        for each in topic.partitions
    }
    return LogDirInfo(
        result.error_code,
        MappingProxyType(replica_infos),
        _known(result.total_bytes),
        _known(result.usable_bytes),
        result.is_cordoned,
    )


def _known(size: int) -> int | None:
    return None if size == UNKNOWN_SIZE else size


def replica_log_dir_info(
    replica: TopicPartitionReplica, log_dirs: Mapping[str, LogDirInfo]
) -> ReplicaLogDirInfo | AdminError:
    """Returns where the replica is, or the error of a directory that may contain the replica. An offline directory is not
    treated as an error: the result then has only what the online directories show."""
    current: tuple[str | None, int] = (None, INVALID_OFFSET_LAG)
    future: tuple[str | None, int] = (None, INVALID_OFFSET_LAG)
    for path, log_dir in log_dirs.items():
        if log_dir.error_code not in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
            reason = f"{path} of broker {replica.broker_id} has the error {error_name(log_dir.error_code)}"
            return failure(log_dir.error_code, reason)
        info = log_dir.replica_infos.get(TopicPartition(replica.topic, replica.partition))
        if info is not None and info.is_future:
            future = path, info.offset_lag
        elif info is not None:
            current = path, info.offset_lag
    return ReplicaLogDirInfo(*current, *future)


# --- AlterReplicaLogDirs ---------------------------------------------------------------------------------------------


def alter_request(assignment: Mapping[TopicPartitionReplica, str]) -> AlterReplicaLogDirsRequest:
    """Returns the request that moves replicas of one broker to these directories."""
    dirs: dict[str, list[TopicPartitionReplica]] = {}
    for replica, path in assignment.items():
        dirs.setdefault(path, []).append(replica)
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=indexes)
                    for name, indexes in partitions_by_topic(replicas).items()
                ],
            )
            for path, replicas in dirs.items()
        ]
    )


def alter_errors(response: AlterReplicaLogDirsResponse, broker_id: int) -> dict[TopicPartitionReplica, int]:
    """Returns the error code of each replica in the response."""
    return {
        TopicPartitionReplica(topic.topic_name, each.partition_index, broker_id): each.error_code
        for topic in response.results
        for each in topic.partitions
    }
