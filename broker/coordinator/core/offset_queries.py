"""OffsetFetch and OffsetDelete (core)."""

from collections.abc import Callable, Mapping
from typing import Final

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.committed_offsets import CommittedOffsets
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.offsets import member_epoch_error
from broker.coordinator.core.group_state import GroupState
from common.ids import ZERO_UUID, TopicId
from common.protocol.errors import ErrorCode
from common.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from common.records.group_records import OffsetCommitKey, OffsetCommitValue

NO_OFFSET: Final = -1

AnyGroup = ClassicGroup | ConsumerGroup


def fetch_offsets(
    offsets: CommittedOffsets,
    request: OffsetFetchRequestGroup,
    topic_ids: Mapping[str, TopicId],
    is_unstable: Callable[[str, int], bool] = lambda _topic, _partition: False,
) -> OffsetFetchResponseGroup:
    """Returns the committed offsets of the requested partitions, or of all. A group that does not exist has none. A
    partition that `is_unstable` gets an error in place of its offset (KIP-447). What was committed for a former topic of a
    name is not returned: its deletion may have come while no coordinator could drop the offsets."""
    committed = offsets.of_group(request.group_id)
    if request.topics is None:
        topics = [
            OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    _partition(each, value, is_unstable=is_unstable(name, each))
                    for each, value in partitions.items()
                    if not _is_of_former(value, topic_ids.get(name))
                ],
            )
            for name, partitions in committed.items()
        ]
    else:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _partition(
                        each,
                        None if _is_of_former(value, topic_ids.get(topic.name)) else value,
                        is_unstable=is_unstable(topic.name, each),
                    )
                    for each in topic.partition_indexes
                    for value in (committed.get(topic.name, {}).get(each),)
                ],
            )
            for topic in request.topics
        ]
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def _is_of_former(value: OffsetCommitValue | None, topic_id: TopicId | None) -> bool:
    # Not every record has the id: the version with a retention time lacks it, and so do those of older releases.
    return value is not None and topic_id is not None and value.topic_id not in (ZERO_UUID, topic_id)


def fetch_error(group: ConsumerGroup | None, request: OffsetFetchRequestGroup) -> ErrorCode | None:
    """Returns why the sender may not read the offsets of a group of the consumer protocol. Classic groups do not ask."""
    if group is None or (request.member_id is None and request.member_epoch < 0):
        return None
    return member_epoch_error(group, request.member_id or "", request.member_epoch)


def delete_error(group: AnyGroup | None) -> ErrorCode | None:
    """Returns why no offset of the group may be deleted. Of consumers it is known what they read, of others it is not."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ConsumerGroup):
        return None
    if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return None


def deletable_offsets(
    group: AnyGroup, has_offset: Callable[[str, int], bool], request: OffsetDeleteRequest
) -> tuple[list[OffsetCommitKey], OffsetDeleteResponse]:
    """Returns the keys that are to be deleted, and the response. `has_offset` says whether an offset of the group is
    committed or pending. A partition without one is no error."""
    keys: dict[tuple[str, int], OffsetCommitKey] = {}
    topics = []
    for topic in request.topics:
        is_subscribed = group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        results = [
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ]
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
        if is_subscribed:
            continue
        for each in topic.partitions:
            if has_offset(topic.name, each.partition_index):
                key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=each.partition_index)
                keys[topic.name, each.partition_index] = key
    return list(keys.values()), OffsetDeleteResponse(topics=topics)


def _partition(index: int, value: OffsetCommitValue | None, *, is_unstable: bool) -> OffsetFetchResponsePartitions:
    if is_unstable:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    if value is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
