"""The metadata quorum as an AdminClient shows it, and the request for it (core)."""

from dataclasses import dataclass

from admin.response_errors import top_level
from common.ids import METADATA_TOPIC_NAME, Uuid
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or an observer. Counterpart of Kafka's QuorumInfo.ReplicaState."""

    replica_id: int
    directory_id: Uuid
    """Zero if the leader does not know it."""
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    """These two are None if the leader does not know them."""
    endpoints: tuple[str, ...]
    """The listeners of a voter, each as NAME://host:port."""


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]

    @property
    def leader(self) -> QuorumReplica | None:
        return next((voter for voter in self.voters if voter.replica_id == self.leader_id), None)


def describe_request() -> DescribeQuorumRequest:
    topic = RequestTopicData(topic_name=METADATA_TOPIC_NAME, partitions=[RequestPartitionData(partition_index=0)])
    return DescribeQuorumRequest(topics=[topic])


def partition_of(response: DescribeQuorumResponse) -> ResponsePartitionData | None:
    """Returns the result for the metadata partition, if the response has one."""
    return next((partition for topic in response.topics for partition in topic.partitions), None)


def quorum_description(response: DescribeQuorumResponse, partition: ResponsePartitionData) -> QuorumDescription:
    endpoints = {
        node.node_id: tuple(f"{listener.name}://{listener.host}:{listener.port}" for listener in node.listeners)
        for node in response.nodes
    }

    def replica(state: ReplicaState) -> QuorumReplica:
        return QuorumReplica(
            state.replica_id,
            Uuid(state.replica_directory_id),
            state.log_end_offset,
            state.last_fetch_timestamp if state.last_fetch_timestamp >= 0 else None,
            state.last_caught_up_timestamp if state.last_caught_up_timestamp >= 0 else None,
            endpoints.get(state.replica_id, ()),
        )

    return QuorumDescription(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        tuple(map(replica, partition.current_voters)),
        tuple(map(replica, partition.observers)),
    )


def quorum_error(response: DescribeQuorumResponse) -> tuple[int, str | None]:
    """Returns the error of the response as a whole, or else that of the metadata partition."""
    partition = partition_of(response)
    if response.error_code != ErrorCode.NONE or partition is None:
        return top_level(response)
    return top_level(partition)
