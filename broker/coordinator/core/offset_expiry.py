"""Which committed offsets have expired (KIP-211) (core).

1. A simple group: each offset, offsets.retention.minutes after its commit.
2. An empty group: all offsets, that long after the group became empty.
3. A stable group of consumers whose subscriptions are known: the offsets of topics to which none is subscribed, that long
   after their commit.
4. A group of the consumer protocol: as rule 3, whatever its state.
5. Any other group: none.
An offset committed with a retention time of its own expires when that has passed, but only where rules 1 to 4 let offsets
expire.
"""

from collections.abc import Callable

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.committed_offsets import CommittedOffsets
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.core.turn import Turn
from common.records.group_records import NO_TIMESTAMP, OffsetCommitKey, OffsetCommitValue

# Returns when the retention of an offset began, in milliseconds.
RetentionStart = Callable[[OffsetCommitValue], int]


def expired_offsets(turn: Turn, group: ClassicGroup | ConsumerGroup, offsets: CommittedOffsets) -> list[OffsetCommitKey]:
    """Returns the keys of the group's expired offsets."""
    start_of = _retention_start(group)
    if start_of is None:
        return []
    now_ms, retention_ms = turn.now.wall_ms, turn.settings.offsets_retention_ms

    def has_expired(value: OffsetCommitValue) -> bool:
        if value.expire_timestamp != NO_TIMESTAMP:
            return now_ms >= value.expire_timestamp
        return now_ms - start_of(value) >= retention_ms

    return [
        OffsetCommitKey(group=group.group_id, topic=topic, partition=partition)
        for topic, partitions in offsets.of_group(group.group_id).items()
        if not group.is_subscribed_to(topic)
        for partition, value in partitions.items()
        if has_expired(value)
    ]


def _retention_start(group: ClassicGroup | ConsumerGroup) -> RetentionStart | None:
    if isinstance(group, ConsumerGroup):
        return lambda value: value.commit_timestamp
    empty_since_ms = group.state_timestamp_ms
    if group.protocol_type is not None and group.state is GroupState.EMPTY and empty_since_ms is not None:
        return lambda _: empty_since_ms
    knows_subscriptions = group.uses_consumer_protocol and group.subscribed_topics is not None
    if group.state is GroupState.EMPTY or (group.state is GroupState.STABLE and knows_subscriptions):
        return lambda value: value.commit_timestamp
    return None
