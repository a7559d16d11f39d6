"""The consumer groups of a shard, and the requests to them (core).

Counterpart of Kafka's GroupMetadataManager for groups of this type. GroupShard has it beside its classic groups.
"""

from collections.abc import Collection, Iterable, MutableMapping

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.consumer_group.classic_members import (
    classic_heartbeat,
    expect_room_for_newcomer,
    identify_joining,
    joined,
    named_member,
    synced,
)
from broker.coordinator.core.consumer_group.consumer_group import NO_TOPICS_HASH, ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
)
from broker.coordinator.core.consumer_group.departure import (
    CONSUMER_REBALANCE,
    cancel_timers,
    leave_for_a_while,
    leaving_member,
    overdue_member,
    remove_members,
    restart_session,
)
from broker.coordinator.core.consumer_group.downgrade import downgraded
from broker.coordinator.core.consumer_group.group_log import apply, tombstones, validate_epoch, write_deletion
from broker.coordinator.core.consumer_group.heartbeat import Sender, advance, heartbeat, identify, validate_heartbeat
from broker.coordinator.core.consumer_group.queries import describe_consumer_group, describe_missing_consumer_group
from broker.coordinator.core.consumer_group.refusal import Refused
from broker.coordinator.core.consumer_group.regex_resolution import RESOLUTION, refuse_too_wide, resolution_timer_fired
from broker.coordinator.core.consumer_group.topic_subscribers import TopicSubscribers
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from broker.coordinator.core.consumer_group.upgrade import upgraded
from broker.coordinator.core.group_deletion import write_group_deletion
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.core.join_group import Joining, refuse
from broker.coordinator.core.rebalance import dissolve, prepare_rebalance
from broker.coordinator.core.rebalance import restart_session as restart_classic_session
from broker.coordinator.core.result import Caller
from broker.coordinator.core.turn import Turn
from common.protocol.errors import ErrorCode, cut_message
from common.protocol.messages.consumer_group_describe import DescribedConsumerGroup
from common.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from common.protocol.messages.heartbeat import HeartbeatRequest
from common.protocol.messages.leave_group import MemberIdentity, MemberResponse
from common.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from common.records.consumer_group_records import ConsumerGroupKey, ConsumerGroupMetadataKey, decode_consumer_value


class ConsumerGroups:
    """The groups by id."""

    def __init__(self, topics: TopicsView, classic_groups: MutableMapping[str, ClassicGroup]) -> None:
        self.topics = topics
        # The shard's. A group goes from there to here and back with its members. Invariant: no id is in both.
        self._classic_groups = classic_groups
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
        """Applies a record of the log. Raises ProtocolError for a value that is malformed or that no coordinator writes."""
        group = self._groups.get(key.group_id)
        if value is not None:
            if group is None:
                group = self._groups[key.group_id] = ConsumerGroup(key.group_id, self._subscribers)
            decoded = decode_consumer_value(key, value)
            validate_epoch(key, decoded)
            apply(group, key, decoded)
        elif group is not None:
            # A tombstone of a group that does not exist may be all that the cleaner has left of it.
            apply(group, key, None)
            if isinstance(key, ConsumerGroupMetadataKey):
                self.forget(key.group_id)

    def loaded(self, turn: Turn) -> None:
        """Starts the sessions of all members, and gives those that are to revoke their whole time again."""
        for group in self._groups.values():
            for member in group.members:
                restart_session(turn, group, member)
                is_to_revoke = member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_away
                if is_to_revoke and member.classic is None:
                    turn.set_timer((CONSUMER_REBALANCE, group.group_id, member.member_id), member.rebalance_timeout_ms)

    # Members.

    def answer_heartbeat(
        self, turn: Turn, caller: Caller, request: ConsumerGroupHeartbeatRequest, fresh_id: str
    ) -> ConsumerGroupHeartbeatResponse:
        """Carries out the request. A classic group of the same id makes way for a member that joins if it is empty, and
        becomes a consumer group otherwise."""
        try:
            validate_heartbeat(turn, caller, request)
            if request.member_epoch < JOINING_EPOCH:
                return self._leave(turn, self._expect(request.group_id), request)
            return self._heartbeat(turn, caller, request, request.member_id or fresh_id)
        except Refused as refused:
            return ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=cut_message(refused.message))

    def _heartbeat(
        self, turn: Turn, caller: Caller, request: ConsumerGroupHeartbeatRequest, member_id: str
    ) -> ConsumerGroupHeartbeatResponse:
        classic = self._classic_groups.get(request.group_id)
        if request.member_epoch != JOINING_EPOCH or request.group_id in self._groups:
            group = self._expect(request.group_id)
            sender = identify(turn, group, caller, request, member_id)
            refuse_too_wide(group, sender.member.topic_regex, self._topics_version)
        elif classic is None or classic.state is GroupState.EMPTY:
            group = ConsumerGroup(request.group_id, self._subscribers)
            sender = identify(turn, group, caller, request, member_id)
            if classic is not None:
                # No epoch comes twice, whatever protocol the members speak.
                group.set_epoch(max(classic.generation, group.epoch), NO_TOPICS_HASH)
                write_group_deletion(turn, classic)
                del self._classic_groups[request.group_id]
            self._groups[group.group_id] = group
        else:
            group, sender = self._upgrade(turn, classic, caller, request, member_id)
        return heartbeat(turn, group, self.topics, self._topics_version, sender, request)

    def _upgrade(
        self, turn: Turn, classic: ClassicGroup, caller: Caller, request: ConsumerGroupHeartbeatRequest, member_id: str
    ) -> tuple[ConsumerGroup, Sender]:
        group, records = upgraded(turn, classic, self.topics, self._subscribers)
        try:
            sender = identify(turn, group, caller, request, member_id)
        except Refused:
            group.forget_subscriptions()
            raise
        dissolve(turn, classic)
        turn.write_together(records)
        del self._classic_groups[group.group_id]
        self._groups[group.group_id] = group
        for member in group.members:
            restart_session(turn, group, member)
        return group, sender

    def _leave(
        self, turn: Turn, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        member = leaving_member(group, request)
        if request.member_epoch == LEAVING_STATIC_EPOCH:
            leave_for_a_while(turn, group, member)
        else:
            self._remove(turn, group, [member])
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)

    def _remove(self, turn: Turn, group: ConsumerGroup, members: Collection[ConsumerMember]) -> None:
        """Takes the members out of the group, which becomes a classic one if only classic members are left."""
        if self._maybe_downgrade(turn, group, without=members) is None:
            remove_members(turn, group, self.topics, members)

    def _maybe_downgrade(
        self, turn: Turn, group: ConsumerGroup, *, without: Collection[ConsumerMember] = (), joining: Joining | None = None
    ) -> ClassicGroup | None:
        """Returns the classic group that takes the place of this group and begins a rebalance, or None if there is none. Its
        member that is `joining` has joined already."""
        classic = downgraded(turn, group, self.topics, without=without)
        if classic is None or not turn.fits_one_batch(records := [*tombstones(group), classic.to_record()]):
            return None
        for member in group.members:
            cancel_timers(turn, group, member)
        turn.cancel_timer((RESOLUTION, group.group_id))
        turn.write_together(records)
        self.forget(group.group_id)
        self._classic_groups[group.group_id] = classic
        for each in classic.members:
            restart_classic_session(turn, classic, each)
            if joining is not None and each.member_id == joining.member_id:
                classic.set_join_waiter(each, joining.waiter)
        prepare_rebalance(turn, classic)
        return classic

    def _expect(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if group is None:
            is_classic = group_id in self._classic_groups
            text = f"Group {group_id} is not a consumer group." if is_classic else f"Consumer group {group_id} not found."
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, text)
        return group

    def timer_fired(self, turn: Turn, kind: str, group_id: str, *member_id: str) -> None:
        group = self._groups.get(group_id)
        if group is None:
            return
        if kind == RESOLUTION:
            resolution_timer_fired(turn, group, self.topics, self._topics_version)
            return
        member = overdue_member(group, kind, *member_id)
        if member is not None:
            self._remove(turn, group, [member])

    # Members that speak the classic protocol.

    def join(self, turn: Turn, group: ConsumerGroup, joining: Joining) -> None:
        """Lets a classic member join, or refuses it. The group has members."""
        member_id = joining.member_id
        try:
            if joining.needs_member_id:
                expect_room_for_newcomer(turn, group, joining)
                refuse(turn, joining.waiter, ErrorCode.MEMBER_ID_REQUIRED, member_id)
                return
            sender, owned = identify_joining(turn, group, self.topics, joining)
        except Refused as refused:
            refuse(turn, joining.waiter, refused.error)
            return
        member = advance(turn, group, self.topics, self._topics_version, sender, owned)
        if member.epoch == JOINING_EPOCH:
            restart_session(turn, group, member)
            refuse(turn, joining.waiter, ErrorCode.UNKNOWN_SERVER_ERROR, member_id)
            return
        # The last member of the consumer protocol may have been a static one that has come back with the classic protocol.
        if self._maybe_downgrade(turn, group, joining=joining) is None:
            turn.answer(joining.waiter, joined(turn, group, member))

    def sync(self, turn: Turn, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
        try:
            return synced(turn, group, self.topics, request)
        except Refused as refused:
            return SyncGroupResponse(error_code=refused.error)

    def classic_heartbeat(self, turn: Turn, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
        try:
            return classic_heartbeat(turn, group, self.topics, request)
        except Refused as refused:
            return refused.error

    def leave(self, turn: Turn, group: ConsumerGroup, leaving: Iterable[MemberIdentity]) -> list[MemberResponse]:
        """Removes the members that can be found, and returns how each fared."""
        found: dict[str, ConsumerMember] = {}
        responses = []
        for each in leaving:
            response = MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id)
            try:
                member = named_member(group, each)
                found[member.member_id] = member
            except Refused as refused:
                response.error_code = refused.error
            responses.append(response)
        if found:
            self._remove(turn, group, found.values())
        return responses

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
