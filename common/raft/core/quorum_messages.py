"""Converts Fetch, FetchSnapshot and DescribeQuorum messages to and from the types of the quorum (core).

Counterpart of Kafka's RaftUtil. Every response about the metadata partition, errors included, names the leader and epoch
that the responding node knows. Observers find the leader that way. Responses fill in every field; the codec leaves out the
fields that the version of the request does not have (node endpoints, directory ids).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.ids import METADATA_TOPIC_ID, METADATA_TOPIC_NAME, ZERO_UUID, BrokerId, LeaderEpoch, Offset, Uuid
from common.parts import Part
from common.protocol.errors import ErrorCode
from common.protocol.messages import describe_quorum, fetch, fetch_snapshot
from common.raft.core.fetch_validation import Diverging, FetchedPartition, NeedsSnapshot
from common.raft.core.leader_endpoints import QuorumEndpoint
from common.raft.core.offsets import OffsetAndEpoch
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.replica_progress import LeaderProgress, Progress, ReplicaKey

PARTITION = 0
_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Answerer:
    """The facts that a responding node puts into every response: its cluster, the leader, and the leader's address."""

    cluster_id: str
    leader: LeaderAndEpoch
    endpoint: QuorumEndpoint | None

    @property
    def leader_id(self) -> int:
        return _NOBODY if self.leader.leader_id is None else self.leader.leader_id


@dataclass(frozen=True, slots=True)
class LeaderNews:
    """The leader and the node addresses named by a response. `leader` is None if the response names no epoch."""

    leader: LeaderAndEpoch | None
    endpoints: tuple[QuorumEndpoint, ...]


# --- Fetch, the follower's side --------------------------------------------------------------------------------------


def fetch_request(
    *,
    cluster_id: str,
    replica: ReplicaKey,
    epoch: LeaderEpoch,
    end: OffsetAndEpoch,
    high_watermark: Offset,
    max_wait_ms: int,
    max_bytes: int,
) -> fetch.FetchRequest:
    """Builds a Fetch that starts at `end` (the local log end offset and the epoch of the last record)."""
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        partition_max_bytes=max_bytes,
        replica_directory_id=replica.directory_id,
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=replica.node_id),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[fetch.FetchTopic(topic=METADATA_TOPIC_NAME, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetched_partition(response: fetch.FetchResponse) -> fetch.PartitionData | None:
    """Returns the only partition of a response, or None if the response has any other content."""
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        return None
    partition = response.responses[0].partitions[0]
    return partition if partition.partition_index == PARTITION else None


def leader_news(partition: fetch.PartitionData, response: fetch.FetchResponse) -> LeaderNews:
    """Extracts the leader and the node addresses from a Fetch response."""
    leader = partition.current_leader
    return LeaderNews(
        leader=_leader_and_epoch(leader.leader_id, leader.leader_epoch),
        endpoints=tuple(QuorumEndpoint(BrokerId(node.node_id), node.host, node.port) for node in response.node_endpoints),
    )


def facts_of(partition: fetch.PartitionData) -> FetchedPartition:
    """Extracts the fields that `judge_answer` needs."""
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    return FetchedPartition(
        error_code=partition.error_code,
        high_watermark=Offset(partition.high_watermark),
        diverging=_position(diverging.end_offset, diverging.epoch),
        snapshot_id=_position(snapshot.end_offset, snapshot.epoch),
    )


def _position(offset: int, epoch: int) -> OffsetAndEpoch | None:
    return OffsetAndEpoch(Offset(offset), LeaderEpoch(epoch)) if offset >= 0 and epoch >= 0 else None


def _leader_and_epoch(leader_id: int, epoch: int) -> LeaderAndEpoch | None:
    if epoch < 0:
        return None
    return LeaderAndEpoch(BrokerId(leader_id) if leader_id >= 0 else None, LeaderEpoch(epoch))


# --- Fetch, the leader's side ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """The content of a well-formed Fetch of the metadata partition. `replica` is None for a plain consumer."""

    replica: ReplicaKey | None
    epoch: LeaderEpoch
    offset: Offset
    last_fetched_epoch: LeaderEpoch
    max_bytes: int
    max_wait_ms: int
    peer: str


def is_this_cluster(requested: str | None, cluster_id: str) -> bool:
    """Whether the request is for this cluster. A request may omit the cluster id."""
    return requested is None or requested == cluster_id


def is_metadata_fetch(request: fetch.FetchRequest) -> bool:
    """Whether the request names the metadata partition and nothing else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    # A request carries either the topic id or the name, depending on its version. The other field has its default, which
    # matches no topic, so one match is enough.
    is_named = topic.topic_id == METADATA_TOPIC_ID or topic.topic == METADATA_TOPIC_NAME
    return is_named and topic.partitions[0].partition == PARTITION


def fetch_position(request: fetch.FetchRequest, peer: str) -> FetchPosition | None:
    """Extracts the position to fetch from; `peer` identifies the connection. Returns None if a number is negative."""
    partition = request.topics[0].partitions[0]
    if min(request.max_wait_ms, partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch) < 0:
        return None
    node_id = request.replica_state.replica_id if request.replica_state.replica_id >= 0 else request.replica_id
    return FetchPosition(
        replica=ReplicaKey(BrokerId(node_id), partition.replica_directory_id) if node_id >= 0 else None,
        epoch=LeaderEpoch(partition.current_leader_epoch),
        offset=Offset(partition.fetch_offset),
        last_fetched_epoch=LeaderEpoch(partition.last_fetched_epoch),
        max_bytes=min(request.max_bytes, partition.partition_max_bytes),
        max_wait_ms=request.max_wait_ms,
        peer=peer,
    )


def fetch_response(
    answerer: Answerer,
    *,
    error: ErrorCode = ErrorCode.NONE,
    high_watermark: int = -1,
    log_start_offset: int = -1,
    verdict: Diverging | NeedsSnapshot | None = None,
    records: Sequence[Part] = (),
) -> fetch.FetchResponse:
    """Builds the response for the metadata partition."""
    partition = fetch.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=answerer.leader_id, leader_epoch=answerer.leader.epoch),
        records=list(records),
    )
    if isinstance(verdict, Diverging):
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=verdict.end.epoch, end_offset=verdict.end.offset)
    if isinstance(verdict, NeedsSnapshot):
        snapshot_id = verdict.snapshot_id
        partition.snapshot_id = fetch.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC_NAME, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    response = fetch.FetchResponse(responses=[topic])
    endpoint = answerer.endpoint
    if endpoint is not None:
        response.node_endpoints = [fetch.NodeEndpoint(node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port)]
    return response


def fetch_error(error: ErrorCode) -> fetch.FetchResponse:
    """Builds the response to a Fetch that is not for the metadata partition of this cluster."""
    return fetch.FetchResponse(error_code=error)


# --- FetchSnapshot ---------------------------------------------------------------------------------------------------


def fetch_snapshot_request(
    *,
    cluster_id: str,
    replica: ReplicaKey,
    epoch: LeaderEpoch,
    snapshot_id: OffsetAndEpoch,
    position: int,
    max_bytes: int,
) -> fetch_snapshot.FetchSnapshotRequest:
    """Builds a request for the bytes of a snapshot from `position` on."""
    partition = fetch_snapshot.RequestPartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=replica.directory_id,
    )
    topic = fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC_NAME, partitions=[partition])
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=cluster_id, replica_id=replica.node_id, max_bytes=max_bytes, topics=[topic]
    )


def requested_snapshot(
    request: fetch_snapshot.FetchSnapshotRequest,
) -> fetch_snapshot.RequestPartitionSnapshot | None:
    """Returns the only partition of a request, or None if the request names several or none."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    return request.topics[0].partitions[0]


def is_metadata_snapshot(request: fetch_snapshot.FetchSnapshotRequest) -> bool:
    """Whether the one partition of the request is the metadata partition."""
    return request.topics[0].name == METADATA_TOPIC_NAME and request.topics[0].partitions[0].partition == PARTITION


def fetched_snapshot(
    response: fetch_snapshot.FetchSnapshotResponse,
) -> fetch_snapshot.ResponsePartitionSnapshot | None:
    """Returns the only partition of a response, or None if the response holds several or none."""
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return None
    return response.topics[0].partitions[0]


def snapshot_leader_news(
    partition: fetch_snapshot.ResponsePartitionSnapshot, response: fetch_snapshot.FetchSnapshotResponse
) -> LeaderNews:
    """Extracts the leader and the node addresses from a FetchSnapshot response.

    The leader is a tagged field. If it is absent, it decodes as node 0 in epoch 0, so epoch 0 counts as "no leader named".
    """
    leader = partition.current_leader
    return LeaderNews(
        leader=_leader_and_epoch(leader.leader_id, leader.leader_epoch) if leader.leader_epoch > 0 else None,
        endpoints=tuple(QuorumEndpoint(BrokerId(node.node_id), node.host, node.port) for node in response.node_endpoints),
    )


def fetch_snapshot_response(
    answerer: Answerer,
    asked: fetch_snapshot.RequestPartitionSnapshot,
    *,
    topic_name: str = METADATA_TOPIC_NAME,
    error: ErrorCode = ErrorCode.NONE,
    size: int = 0,
    records: bytes = b"",
) -> fetch_snapshot.FetchSnapshotResponse:
    """Builds the response for one snapshot."""
    partition = fetch_snapshot.ResponsePartitionSnapshot(
        index=asked.partition,
        error_code=error,
        snapshot_id=asked.snapshot_id,
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=answerer.leader_id, leader_epoch=answerer.leader.epoch),
        size=size,
        position=asked.position if error is ErrorCode.NONE else 0,
        unaligned_records=records,
    )
    topic = fetch_snapshot.ResponseTopicSnapshot(name=topic_name, partitions=[partition])
    response = fetch_snapshot.FetchSnapshotResponse(topics=[topic])
    endpoint = answerer.endpoint
    if endpoint is not None:
        response.node_endpoints = [
            fetch_snapshot.NodeEndpoint(node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port)
        ]
    return response


# --- DescribeQuorum --------------------------------------------------------------------------------------------------


def is_metadata_description(request: describe_quorum.DescribeQuorumRequest) -> bool:
    """Whether the request names the metadata partition and nothing else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    return topic.topic_name == METADATA_TOPIC_NAME and topic.partitions[0].partition_index == PARTITION


def describe_quorum_error(
    request: describe_quorum.DescribeQuorumRequest, error: ErrorCode, answerer: Answerer
) -> describe_quorum.DescribeQuorumResponse:
    """Builds a response with the error on every requested partition."""
    topics = [
        describe_quorum.ResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                describe_quorum.ResponsePartitionData(
                    partition_index=partition.partition_index,
                    error_code=error,
                    leader_id=answerer.leader_id,
                    leader_epoch=answerer.leader.epoch,
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return describe_quorum.DescribeQuorumResponse(topics=topics)


def describe_quorum_response(
    progress: LeaderProgress,
    *,
    directory_id: Uuid,
    log_end_offset: Offset,
    high_watermark: Offset,
    wall_ms: int,
    voters: Sequence[QuorumEndpoint],
    listener_name: str,
) -> describe_quorum.DescribeQuorumResponse:
    """Builds the leader's view of itself, the voters and the observers. The leader itself is always caught up."""
    own = Progress(end_offset=log_end_offset, last_fetch_ms=wall_ms, last_caught_up_ms=wall_ms)
    voter_states = [
        _replica_state(
            ReplicaKey(voter, directory_id if voter == progress.node_id else ZERO_UUID),
            own if voter == progress.node_id else seen,
        )
        for voter, seen in progress.voters.items()
    ]
    observer_states = [_replica_state(key, seen) for key, seen in progress.observers.items()]
    partition = describe_quorum.ResponsePartitionData(
        partition_index=PARTITION,
        leader_id=progress.node_id,
        leader_epoch=progress.epoch,
        high_watermark=high_watermark,
        current_voters=voter_states,
        observers=observer_states,
    )
    topic = describe_quorum.ResponseTopicData(topic_name=METADATA_TOPIC_NAME, partitions=[partition])
    nodes = [
        describe_quorum.Node(
            node_id=voter.node_id,
            listeners=[describe_quorum.Listener(name=listener_name, host=voter.host, port=voter.port)],
        )
        for voter in voters
    ]
    return describe_quorum.DescribeQuorumResponse(topics=[topic], nodes=nodes)


def _replica_state(key: ReplicaKey, seen: Progress) -> describe_quorum.ReplicaState:
    return describe_quorum.ReplicaState(
        replica_id=key.node_id,
        replica_directory_id=key.directory_id,
        log_end_offset=-1 if seen.end_offset is None else seen.end_offset,
        last_fetch_timestamp=seen.last_fetch_ms,
        last_caught_up_timestamp=seen.last_caught_up_ms,
    )
