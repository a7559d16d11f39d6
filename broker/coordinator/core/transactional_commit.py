"""TxnOffsetCommit: who may commit offsets in a transaction, and what is stored (core).

A producer that knows the consumer's membership (KIP-447) is fenced with it. An older producer sends none, and only its
transactional id protects the group. A consumer that assigns its partitions itself may have an instance id, but it has no
generation: as in OffsetCommit, it may commit while the group is empty. A member may commit while the group waits for its
assignment: it may not wait for the end of the rebalance, because the transaction holds the offsets that the rebalance is
about.
"""

from typing import Final

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.offsets import member_commit_error
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.core.membership import generation_error
from broker.coordinator.core.offset_commit import Commits, fits_no_batch, metadata_length
from broker.coordinator.core.result import CoordinatorRecord
from broker.coordinator.core.turn import Turn
from common.net.error_responses import error_response
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from common.records.group_records import OffsetCommitKey, OffsetCommitValue, encode_key, encode_offset

_NO_MEMBER: Final = ""


def transactional_commit_error(
    group: ClassicGroup | ConsumerGroup | None, request: TxnOffsetCommitRequest, *, knows_missing_groups: bool
) -> ErrorCode | None:
    """Returns why the sender may not commit."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    has_membership = request.generation_id >= 0 or request.member_id != _NO_MEMBER or request.group_instance_id is not None
    if not has_membership:
        return None
    if request.generation_id < 0 and (group is None or _is_empty(group)):
        return None
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND if knows_missing_groups else ErrorCode.ILLEGAL_GENERATION
    if isinstance(group, ConsumerGroup):
        error = member_commit_error(group, request.member_id, request.generation_id, request.topics)
        # Older producers do not know the newer error. Kafka's OffsetMetadataManager translates it likewise.
        is_newer = error is ErrorCode.STALE_MEMBER_EPOCH and not knows_missing_groups
        return ErrorCode.ILLEGAL_GENERATION if is_newer else error
    return generation_error(group, request.member_id, request.group_instance_id, request.generation_id)


def _is_empty(group: ClassicGroup | ConsumerGroup) -> bool:
    return group.is_empty if isinstance(group, ConsumerGroup) else group.state is GroupState.EMPTY


def transactional_commits(turn: Turn, request: TxnOffsetCommitRequest) -> tuple[Commits, TxnOffsetCommitResponse]:
    """Returns the offsets that become pending, and the response. Writes their records."""
    if fits_no_batch(turn, request.group_id, request.topics):
        return [], error_response(request, ApiKey.TXN_OFFSET_COMMIT, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    commits: Commits = []
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        results = []
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            error = ErrorCode.NONE
            if metadata_length(metadata) > turn.settings.offset_metadata_max_bytes:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=each.partition_index)
                value = OffsetCommitValue(
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp=turn.now.wall_ms,
                    topic_id=topic.topic_id,
                )
                commits.append((key, value))
            results.append(TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error))
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results))
    records = [CoordinatorRecord(encode_key(key), encode_offset(value)) for key, value in commits]
    if not turn.fits_one_batch(records):
        return [], error_response(request, ApiKey.TXN_OFFSET_COMMIT, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    for record in records:
        turn.write(record)
    return commits, response
