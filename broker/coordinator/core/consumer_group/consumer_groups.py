"""The consumer groups of a shard, and the requests to them (core).

Counterpart of Kafka's GroupMetadataManager for groups of this type. GroupShard has it beside its classic groups.
"""

from collections.abc import Collection, Iterable, MutableMapping

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import JOINING_EPOCH, MemberState
from broker.coordinator.core.consumer_group.departure import (
    CONSUMER_REBALANCE,
    CONSUMER_SESSION,
    leave,
    rebalance_timer_fired,
    session_timer_fired,
)
from broker.coordinator.core.consumer_group.group_log import apply, write_deletion
from broker.coordinator.core.consumer_group.heartbeat import heartbeat, identify, validate_heartbeat
from broker.coordinator.core.consumer_group.queries import describe_consumer_group, describe_missing_consumer_group
from broker.coordinator.core.consumer_group.refusal import Refused
from broker.coordinator.core.consumer_group.regex_resolution import RESOLUTION, resolution_timer_fired
from broker.coordinator.core.consumer_group.topic_subscribers import TopicSubscribers
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from broker.coordinator.core.group_deletion import write_group_deletion
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.core.result import Caller
from broker.coordinator.core.turn import Turn
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_describe import DescribedConsumerGroup
from common.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from common.records.consumer_group_records import ConsumerGroupKey, ConsumerGroupMetadataKey, decode_consumer_value


class ConsumerGroups:
    """The groups by id."""

    def __init__(self, topics: TopicsView) -> None:
        self.topics = topics
        self._groups: dict[str, ConsumerGroup] = {}
        self._subscribers = TopicSubscribers()
        # Changes with each topic that is created or deleted.
        self._topics_version = 0

    @property
    def all(self) -> Collection[ConsumerGroup]:
        return self._groups.values()

    def get(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

    # Loading.

    def replay(self, key: ConsumerGroupKey, value: bytes | None) -> None:
        """Applies a record of the log. Raises ProtocolError for a malformed value."""
        group = self._groups.get(key.group_id)
        if value is not None:
            if group is None:
                group = self._groups[key.group_id] = ConsumerGroup(key.group_id, self._subscribers)
            apply(group, key, decode_consumer_value(key, value))
        elif group is not None:
            # A tombstone of a group that does not exist may be all that the cleaner has left of it.
            apply(group, key, None)
            if isinstance(key, ConsumerGroupMetadataKey):
                self.forget(key.group_id)

    def loaded(self, turn: Turn) -> None:
        """Starts the sessions of all members, and gives those that are to revoke their whole time again."""
        for group in self._groups.values():
            for member in group.members:
                names = (group.group_id, member.member_id)
                turn.set_timer((CONSUMER_SESSION, *names), turn.settings.group_consumer_session_timeout_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_away:
                    turn.set_timer((CONSUMER_REBALANCE, *names), member.rebalance_timeout_ms)

    # Members.

    def answer_heartbeat(
        self,
        turn: Turn,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        fresh_id: str,
        classic_groups: MutableMapping[str, ClassicGroup],
    ) -> ConsumerGroupHeartbeatResponse:
        """Carries out the request. An empty classic group of the same id makes way for a member that joins."""
        try:
            validate_heartbeat(turn, caller, request)
            classic = classic_groups.get(request.group_id)
            is_joining = request.member_epoch == JOINING_EPOCH
            if classic is not None and not (is_joining and classic.state is GroupState.EMPTY):
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
            if request.member_epoch < JOINING_EPOCH:
                return leave(turn, self._expect(request.group_id), self.topics, request)
            return self._heartbeat(turn, caller, request, request.member_id or fresh_id, classic_groups)
        except Refused as refused:
            return ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=refused.message)

    def _heartbeat(
        self,
        turn: Turn,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        classic_groups: MutableMapping[str, ClassicGroup],
    ) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch == JOINING_EPOCH and request.group_id not in self._groups:
            group = ConsumerGroup(request.group_id, self._subscribers)
        else:
            group = self._expect(request.group_id)
        sender = identify(turn, group, caller, request, member_id)
        classic = classic_groups.pop(request.group_id, None)
        if classic is not None:
            write_group_deletion(turn, classic)
        self._groups[group.group_id] = group
        return heartbeat(turn, group, self.topics, self._topics_version, sender, request)

    def _expect(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return group

    def timer_fired(self, turn: Turn, kind: str, group_id: str, *member_id: str) -> None:
        group = self._groups.get(group_id)
        if group is None:
            return
        if kind == CONSUMER_SESSION:
            session_timer_fired(turn, group, self.topics, *member_id)
        elif kind == CONSUMER_REBALANCE:
            rebalance_timer_fired(turn, group, self.topics, *member_id)
        else:
            assert kind == RESOLUTION
            resolution_timer_fired(turn, group, self.topics, self._topics_version)

    # Topics and groups.

    def describe(self, turn: Turn, group_id: str, *, is_classic: bool) -> DescribedConsumerGroup:
        """Describes the group; one of that id that does not exist, or is a classic one, as dead."""
        group = self._groups.get(group_id)
        if not group_id:
            return DescribedConsumerGroup(error_code=ErrorCode.INVALID_GROUP_ID)
        if group is None:
            return describe_missing_consumer_group(group_id, is_classic=is_classic)
        return describe_consumer_group(turn, group, self.topics)

    def topics_changed(self, names: Iterable[str], *, has_other_names: bool) -> None:
        """Makes the groups that are subscribed to these topics look at them again with their next heartbeats. Topics were
        created or deleted if there are other names now."""
        self._topics_version += has_other_names
        for name in names:
            for group_id in self._subscribers.of_topic(name):
                self._groups[group_id].needs_refresh = True

    def delete(self, turn: Turn, group: ConsumerGroup) -> None:
        """Deletes an empty group. Its committed offsets are the shard's."""
        write_deletion(turn, group)
        turn.cancel_timer((RESOLUTION, group.group_id))
        self.forget(group.group_id)

    def forget(self, group_id: str) -> None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            group.forget_subscriptions()
