"""OffsetCommit (core).

A member commits with its id and generation. A client that is not a member (a simple consumer, an administrator) sends
generation -1 and may commit while the group is empty. If the group does not exist, the commit creates it as a simple group.
"""

from collections.abc import Iterable
from typing import Final

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.core.membership import generation_error
from broker.coordinator.core.result import CoordinatorRecord
from broker.coordinator.core.turn import Turn
from common.net.error_responses import error_response
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from common.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic
from common.protocol.schema import ZERO_UUID
from common.records.group_records import OffsetCommitKey, OffsetCommitValue, encode_key, encode_offset

# OffsetCommit up to version 4 may ask for a retention time of its own; this is the value of those that do not.
_DEFAULT_RETENTION: Final = -1
_TIMESTAMP_MAX: Final = 2**63 - 1
# The least that the record of an offset takes in a batch, beside the names of its group and topic.
_RECORD_BYTES_MIN: Final = 70

Commits = list[tuple[OffsetCommitKey, OffsetCommitValue]]


def commit_error(
    group: ClassicGroup | None, request: OffsetCommitRequest, *, knows_missing_groups: bool
) -> ErrorCode | None:
    """Returns why the sender may not commit."""
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return None
        return ErrorCode.GROUP_ID_NOT_FOUND if knows_missing_groups else ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.EMPTY and generation < 0:
        return None
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = generation_error(group, request.member_id, request.group_instance_id, generation)
    if error is None and group.state is GroupState.COMPLETING_REBALANCE:
        # The member knows the generation but not its assignment yet. It is to sync first.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return error


def fits_no_batch(
    turn: Turn, group_id: str, topics: Iterable[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic]
) -> bool:
    """Whether the offsets are too many for one batch. Encoding 100,000 of them to find that out would take half a second."""
    least = sum(len(topic.partitions) * (_RECORD_BYTES_MIN + len(group_id) + len(topic.name)) for topic in topics)
    return least > turn.settings.batch_bytes_max


def accepted_commits(turn: Turn, request: OffsetCommitRequest) -> tuple[Commits, OffsetCommitResponse]:
    """Returns the offsets that are to be stored, and the response. Writes their records."""
    if fits_no_batch(turn, request.group_id, request.topics):
        return [], error_response(request, ApiKey.OFFSET_COMMIT, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    commits: Commits = []
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        results = [_result(turn, request, topic, partition, commits) for partition in topic.partitions]
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results))
    records = [CoordinatorRecord(encode_key(key), encode_offset(value)) for key, value in commits]
    if not turn.fits_one_batch(records):
        return [], error_response(request, ApiKey.OFFSET_COMMIT, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    for record in records:
        turn.write(record)
    return commits, OffsetCommitResponse(topics=topics)


def _result(
    turn: Turn,
    request: OffsetCommitRequest,
    topic: OffsetCommitRequestTopic,
    partition: OffsetCommitRequestPartition,
    commits: Commits,
) -> OffsetCommitResponsePartition:
    metadata = partition.committed_metadata or ""
    if metadata_length(metadata) > turn.settings.offset_metadata_max_bytes:
        return OffsetCommitResponsePartition(
            partition_index=partition.partition_index, error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE
        )
    key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index)
    value = OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=metadata,
        commit_timestamp=turn.now.wall_ms,
        topic_id=topic.topic_id,
    )
    if request.retention_time_ms != _DEFAULT_RETENTION:
        # The version of the record that has the time lacks the other two.
        value.expire_timestamp = min(turn.now.wall_ms + request.retention_time_ms, _TIMESTAMP_MAX)
        value.leader_epoch = -1
        value.topic_id = ZERO_UUID
    commits.append((key, value))
    return OffsetCommitResponsePartition(partition_index=partition.partition_index)


def metadata_length(text: str) -> int:
    """Returns the length of the text as Java counts it, which is what offset.metadata.max.bytes limits in Kafka."""
    return len(text) + sum(char > "\uffff" for char in text)
