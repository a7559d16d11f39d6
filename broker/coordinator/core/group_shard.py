"""The groups and committed offsets of one partition of `__consumer_offsets` (core).

Counterpart of Kafka's GroupCoordinatorShard. The state is built by `replay` while the partition is loaded; afterwards the
operations change it and return the records that change it likewise when replayed.

An operation takes the waiter of a request and answers it, at once or in a later step. Requests about several groups
(describe, delete, fetch from version 8 on) are taken apart by the shell: the operation takes one group, answers with that
group's part of the response, and the shell puts the parts together. Operations whose tombstones may not fit into one batch
return several steps, which are to be carried out in order.

Invariant: every group that has committed offsets, or offsets in an open transaction, exists. A group is removed when it is
deleted, or when `expire` finds it empty and without offsets. Old clients commit offsets under an empty group id; that group
is like any other, except that it never has members.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.committed_offsets import CommittedOffsets
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup, ConsumerGroupState
from broker.coordinator.core.consumer_group.consumer_groups import ConsumerGroups
from broker.coordinator.core.consumer_group.offsets import consumer_commit_error
from broker.coordinator.core.consumer_group.topics_view import NoTopics, TopicsView
from broker.coordinator.core.group_deletion import write_group_deletion
from broker.coordinator.core.group_member import protocols_of
from broker.coordinator.core.group_queries import GroupFilter, describe_group, describe_missing_group, list_group
from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.core.join_group import Joining, invalid_join, join_group, refuse
from broker.coordinator.core.leave_group import leave_group
from broker.coordinator.core.offset_commit import accepted_commits, commit_error
from broker.coordinator.core.offset_expiry import expired_offsets
from broker.coordinator.core.offset_queries import deletable_offsets, delete_error, fetch_error, fetch_offsets
from broker.coordinator.core.rebalance import (
    join_timer_fired,
    prepare_rebalance,
    restart_session,
    session_timer_fired,
    sync_timer_fired,
)
from broker.coordinator.core.result import Answer, Caller, Now, Step, Waiter
from broker.coordinator.core.sync_group import heartbeat, sync_group
from broker.coordinator.core.transactional_commit import transactional_commit_error, transactional_commits
from broker.coordinator.core.transactional_offsets import TransactionalOffsets
from broker.coordinator.core.turn import JOIN, SESSION, SYNC, Turn
from common.configuration.group import GroupConfig
from common.net.error_responses import error_response
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from common.protocol.messages.delete_groups import DeletableGroupResult
from common.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from common.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from common.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from common.protocol.messages.list_groups import ListGroupsResponse
from common.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from common.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from common.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from common.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from common.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from common.protocol.messages.write_txn_markers import WritableTxnMarkerPartitionResult
from common.records.consumer_group_records import ConsumerGroupKey
from common.records.end_transaction import EndTransactionMarker
from common.records.group_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_key,
)

# The key of the timer after which further tombstones of deleted topics are written, and how many are written at once. A
# broker has dozens of shards, and all of them process a deletion in the same step.
UNDELETED: Final = "undeleted"
TOMBSTONES_AT_ONCE: Final = 100


class GroupShard:
    """One shard. Time, fresh ids and the identity of the caller come as arguments. `config_of` returns the configuration of
    a group, by default Kafka's."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: TopicsView | None = None,
        config_of: Callable[[str], GroupConfig] = lambda _: GroupConfig(),
    ) -> None:
        self._settings = settings
        self._config_of = config_of
        # The classic groups by id. A group comes with its first JoinGroup or commit, or from the log.
        self._groups: dict[str, ClassicGroup] = {}
        self._topics = topics or NoTopics()
        # The groups of the consumer protocol. Invariant: none of them has the id of a classic group.
        self._consumer_groups = ConsumerGroups(self._topics, self._groups)
        self._offsets = CommittedOffsets()
        self._pending = TransactionalOffsets()
        # The offsets of deleted topics whose tombstones are still to be written, and the names of these topics. The second
        # is empty if the first is. While it is not, the timer UNDELETED is set.
        self._undeleted: deque[Iterator[OffsetCommitKey]] = deque()
        self._undeleted_topics: set[str] = set()

    # What others may look at.

    @property
    def groups(self) -> Collection[ClassicGroup]:
        return self._groups.values()

    @property
    def consumer_groups(self) -> Collection[ConsumerGroup]:
        return self._consumer_groups.all

    @property
    def offsets(self) -> CommittedOffsets:
        return self._offsets

    # Loading and unloading.

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Applies a record of the log while the shard is loaded. Keys of other versions are skipped. Raises ProtocolError
        for a malformed record. Not to be called with the shard's own appends."""
        decoded = None if key is None else decode_key(key)
        if decoded is None:
            return
        if isinstance(decoded, OffsetCommitKey):
            self._pending.replaced(decoded)
            if value is None:
                self._offsets.remove(decoded)
            else:
                self._offsets.put(decoded, decode_offset(value))
                self._group_of_offsets(decoded.group)
        elif not isinstance(decoded, GroupMetadataKey):
            self._replay_consumer_group(decoded, value)
        elif value is None:
            self._groups.pop(decoded.group, None)
            self._maybe_group_of_offsets(decoded.group)
        else:
            self._consumer_groups.forget(decoded.group)
            self._groups[decoded.group] = ClassicGroup.from_value(decoded.group, decode_group(value))

    def replay_transactional(self, producer_id: int, key: bytes | None, value: bytes | None) -> None:
        """Applies a record of a transactional batch: the offset is pending until the transaction ends. Raises
        ProtocolError."""
        decoded = None if key is None else decode_key(key)
        if isinstance(decoded, OffsetCommitKey) and value is not None:
            self._pending.put(producer_id, decoded, decode_offset(value))
            self._group_of_offsets(decoded.group)
        else:
            self.replay(key, value)

    def replay_marker(self, marker: EndTransactionMarker) -> None:
        """Applies the end of a transaction: its pending offsets are committed or dropped."""
        for key, value in self._pending.end(marker.producer_id, is_commit=marker.is_commit):
            self._offsets.put(key, value)
            self._group_of_offsets(key.group)

    def _replay_consumer_group(self, key: ConsumerGroupKey, value: bytes | None) -> None:
        self._consumer_groups.replay(key, value)
        if self._consumer_groups.get(key.group_id) is not None:
            # The offsets that were committed before the first member joined have made a simple group.
            self._groups.pop(key.group_id, None)
        else:
            self._maybe_group_of_offsets(key.group_id)

    def loaded(self, now: Now) -> Step:
        """Ends the load. Starts the sessions of all members."""
        turn = self._turn(now)
        for group in self._groups.values():
            for member in group.members:
                restart_session(turn, group, member)
            # If the setting has changed, the members are to join again, and the last ones are turned away.
            if group.must_rebalance or group.size > self._settings.group_max_size:
                prepare_rebalance(turn, group)
        self._consumer_groups.loaded(turn)
        return turn.step

    def unloaded(self, error: ErrorCode) -> list[Answer]:
        """Answers all waiting joins and syncs with the error. The shard must not be used afterwards; its timers are void."""
        answers = []
        for group in self._groups.values():
            for member in group.members:
                join_waiter, sync_waiter = group.take_join_waiter(member), member.sync_waiter
                member.sync_waiter = None
                if join_waiter is not None:
                    answers.append(Answer(join_waiter, JoinGroupResponse(error_code=error, member_id=member.member_id)))
                if sync_waiter is not None:
                    answers.append(Answer(sync_waiter, SyncGroupResponse(error_code=error)))
        self._groups.clear()
        return answers

    # Membership.

    def join_group(self, now: Now, waiter: Waiter, caller: Caller, request: JoinGroupRequest, fresh_id: str) -> list[Step]:
        """Answers with JoinGroupResponse. A new member id is built from `fresh_id`, a random UUID as text."""
        turn = self._turn(now)
        joining = Joining(waiter, caller, request, fresh_id, protocols_of(request.protocols))
        group = self._groups.get(request.group_id)
        consumer_group = self._consumer_groups.get(request.group_id)
        error = invalid_join(turn, request)
        if error is not None:
            refuse(turn, waiter, error, request.member_id)
        elif consumer_group is not None and not consumer_group.is_empty:
            self._consumer_groups.join(turn, consumer_group, joining)
        elif group is not None:
            join_group(turn, group, joining)
        elif request.member_id:
            refuse(turn, waiter, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        else:
            self._join_new_group(turn, joining)
        return turn.steps

    def _join_new_group(self, turn: Turn, joining: Joining) -> None:
        group = ClassicGroup(joining.request.group_id)
        if not group.supports(joining.request.protocol_type, joining.protocols):
            refuse(turn, joining.waiter, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        consumer_group = self._consumer_groups.get(group.group_id)
        if consumer_group is not None:
            self._consumer_groups.delete(turn, consumer_group)
            # No generation number comes twice, whatever protocol the members speak.
            group.generation = consumer_group.epoch
        group.state_timestamp_ms = turn.now.wall_ms
        self._groups[group.group_id] = group
        turn.write(group.to_record())
        join_group(turn, group, joining)

    def consumer_group_heartbeat(
        self, now: Now, waiter: Waiter, caller: Caller, request: ConsumerGroupHeartbeatRequest, fresh_id: str
    ) -> list[Step]:
        """Answers with ConsumerGroupHeartbeatResponse. `fresh_id` becomes the id of a member that brings none."""
        turn = self._turn(now)
        turn.answer(waiter, self._consumer_groups.answer_heartbeat(turn, caller, request, fresh_id))
        return turn.steps

    def sync_group(self, now: Now, waiter: Waiter, request: SyncGroupRequest) -> Step:
        """Answers with SyncGroupResponse."""
        turn = self._turn(now)
        group = self._groups.get(request.group_id)
        consumer_group = self._consumer_groups.get(request.group_id)
        if group is not None:
            sync_group(turn, group, waiter, request)
        elif consumer_group is not None:
            turn.answer(waiter, self._consumer_groups.sync(turn, consumer_group, request))
        else:
            turn.answer(waiter, SyncGroupResponse(error_code=_missing_member(request.group_id)))
        return turn.step

    def heartbeat(self, now: Now, waiter: Waiter, request: HeartbeatRequest) -> list[Step]:
        """Answers with HeartbeatResponse."""
        turn = self._turn(now)
        group = self._groups.get(request.group_id)
        consumer_group = self._consumer_groups.get(request.group_id)
        if group is not None:
            error = heartbeat(turn, group, request)
        elif consumer_group is not None:
            error = self._consumer_groups.classic_heartbeat(turn, consumer_group, request)
        else:
            error = _missing_member(request.group_id)
        turn.answer(waiter, HeartbeatResponse(error_code=error))
        return turn.steps

    def leave_group(self, now: Now, waiter: Waiter, request: LeaveGroupRequest) -> list[Step]:
        """Answers with LeaveGroupResponse in the form with `members`, in which the request also is; the shell translates the
        single form of older versions."""
        turn = self._turn(now)
        group = self._groups.get(request.group_id)
        consumer_group = self._consumer_groups.get(request.group_id)
        response = LeaveGroupResponse()
        if not request.group_id:
            response.error_code = ErrorCode.INVALID_GROUP_ID
        elif group is not None:
            response.members = leave_group(turn, group, request.members)
        elif consumer_group is not None:
            response.members = self._consumer_groups.leave(turn, consumer_group, request.members)
        else:
            response.members = [
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for each in request.members
            ]
        turn.answer(waiter, response)
        return turn.steps

    def timer_fired(self, now: Now, key: tuple[str, ...]) -> list[Step]:
        """The time of a timer set by an earlier step has come."""
        turn = self._turn(now)
        if key == (UNDELETED,):
            self._write_undeleted(turn)
            return turn.steps
        kind, group_id, *member_id = key
        if kind not in (SESSION, JOIN, SYNC):
            self._consumer_groups.timer_fired(turn, *key)
            return turn.steps
        group = self._groups.get(group_id)
        if group is None:
            return turn.steps
        if kind == JOIN:
            join_timer_fired(turn, group)
        elif kind == SYNC:
            sync_timer_fired(turn, group)
        else:
            assert kind == SESSION
            session_timer_fired(turn, group, *member_id)
        return turn.steps

    # Offsets.

    def commit_offsets(self, now: Now, waiter: Waiter, caller: Caller, request: OffsetCommitRequest) -> Step:
        """Answers with OffsetCommitResponse. The shell has taken out the topics and partitions that do not exist, and adds
        them with their errors to the answer; the topics that are left have both name and id."""
        turn = self._turn(now)
        group = self._groups.get(request.group_id)
        consumer_group = self._consumer_groups.get(request.group_id)
        if consumer_group is None:
            error = commit_error(group, request, knows_missing_groups=caller.knows_missing_groups)
        else:
            error = consumer_commit_error(consumer_group, request, knows_member_epochs=caller.knows_missing_groups)
        if error is None and self._is_undeleted(request.topics):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error is not None:
            turn.answer(waiter, error_response(request, ApiKey.OFFSET_COMMIT, error))
            return turn.step
        member = group.member(request.member_id) if group is not None else None
        if group is not None and member is not None:
            restart_session(turn, group, member)
        commits, response = accepted_commits(turn, request)
        for key, value in commits:
            self._pending.replaced(key)
            self._offsets.put(key, value)
            self._group_of_offsets(request.group_id)
        turn.answer(waiter, response)
        return turn.step

    def commit_transactional_offsets(
        self, now: Now, waiter: Waiter, caller: Caller, request: TxnOffsetCommitRequest
    ) -> Step:
        """Answers with TxnOffsetCommitResponse. The shell has taken out what does not exist, has given the topics both name
        and id, and has seen to it that the producer is not fenced. The records are part of the producer's transaction."""
        turn = self._turn(now)
        group = self._groups.get(request.group_id)
        error = transactional_commit_error(
            self._any_group(request.group_id), request, knows_missing_groups=caller.knows_missing_groups
        )
        if error is None and self._is_undeleted(request.topics):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error is not None:
            turn.answer(waiter, error_response(request, ApiKey.TXN_OFFSET_COMMIT, error))
            return turn.step
        member = group.member(request.member_id) if group is not None else None
        if group is not None and member is not None:
            restart_session(turn, group, member)
        commits, response = transactional_commits(turn, request)
        for key, value in commits:
            self._pending.put(request.producer_id, key, value)
            self._group_of_offsets(request.group_id)
        turn.step.transaction = (request.producer_id, request.producer_epoch)
        turn.answer(waiter, response)
        return turn.step

    def end_transaction(self, now: Now, waiter: Waiter, marker: EndTransactionMarker) -> Step:
        """Answers with WritableTxnMarkerPartitionResult. The marker is written in place of records, even where nothing is
        pending."""
        self.replay_marker(marker)
        return Step(answers=[Answer(waiter, WritableTxnMarkerPartitionResult())], marker=marker)

    def fetch_offsets(
        self, now: Now, waiter: Waiter, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> Step:
        """Answers with OffsetFetchResponseGroup. Topics have names; the shell translates ids and the form of older
        versions."""
        turn = self._turn(now)
        group_id = request.group_id

        def is_unstable(topic: str, partition: int) -> bool:
            return require_stable and self._pending.has(group_id, topic, partition)

        error = fetch_error(self._consumer_groups.get(group_id), request)
        if error is None:
            turn.answer(waiter, fetch_offsets(self._offsets, request, self._topics.topic_ids, is_unstable))
        else:
            turn.answer(waiter, OffsetFetchResponseGroup(group_id=group_id, error_code=error))
        return turn.step

    def delete_offsets(self, now: Now, waiter: Waiter, request: OffsetDeleteRequest) -> list[Step]:
        """Answers with OffsetDeleteResponse. The shell has taken out the partitions that do not exist."""
        turn = self._turn(now)
        group = self._any_group(request.group_id)
        error = ErrorCode.INVALID_GROUP_ID if not request.group_id else delete_error(group)
        if group is None or error is not None:
            turn.answer(waiter, OffsetDeleteResponse(error_code=error or ErrorCode.GROUP_ID_NOT_FOUND))
            return turn.steps
        keys, response = deletable_offsets(group, partial(self._has_offset, request.group_id), request)
        self._remove_offsets(turn, keys)
        turn.answer(waiter, response)
        return turn.steps

    def topics_deleted(self, now: Now, names: Collection[str]) -> list[Step]:
        """Deletes the committed offsets of deleted topics. All of them have gone when this returns. The tombstones may
        follow: hundreds of groups may have read a topic of a thousand partitions."""
        turn = self._turn(now)
        deleted = frozenset(names)
        pending = list(self._pending.keys_of_topics(deleted))
        for key in pending:
            self._pending.replaced(key)
        taken = self._offsets.take_topics(deleted)
        if pending or taken:
            self._undeleted.append(_keys_of(pending, taken))
            self._undeleted_topics |= deleted
            self._write_undeleted(turn)
        return turn.steps

    def _write_undeleted(self, turn: Turn) -> None:
        """Writes the next tombstones of deleted topics. The timer that is set if there are more fires at once."""
        left = TOMBSTONES_AT_ONCE
        while self._undeleted and left:
            key = next(self._undeleted[0], None)
            if key is None:
                self._undeleted.popleft()
            else:
                turn.write_tombstone(encode_key(key))
                left -= 1
        if self._undeleted:
            turn.set_timer((UNDELETED,), 0)
        else:
            self._undeleted_topics.clear()

    def _is_undeleted(self, topics: Iterable[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic]) -> bool:
        """Whether tombstones are still to come that would delete what is committed for a new topic of the name."""
        return bool(self._undeleted_topics) and any(topic.name in self._undeleted_topics for topic in topics)

    def topics_changed(self, now: Now, names: Collection[str], *, has_other_names: bool) -> list[Step]:
        """Notes that these topics were created or deleted (then `has_other_names`), or have other partitions."""
        self._consumer_groups.topics_changed(names, has_other_names=has_other_names)
        return []

    def expirable(self) -> list[str]:
        """Returns the groups that `expire` has to look at: all."""
        return [*self._groups, *(group.group_id for group in self._consumer_groups.all)]

    def expire(self, now: Now, ids: Iterable[str]) -> list[Step]:
        """Deletes expired offsets of these groups, and the groups that are left with nothing. The shell goes through all
        groups each `offsets.retention.check.interval.ms`."""
        turn = self._turn(now)
        for group_id in ids:
            group = self._any_group(group_id)
            if group is None:
                continue
            self._remove_offsets(turn, self._expired(turn, group))
            if self._has_offsets(group_id):
                continue
            if isinstance(group, ConsumerGroup):
                if group.is_empty:
                    self._consumer_groups.delete(turn, group)
            elif group.state is GroupState.EMPTY and not group.pending_members:
                self._remove_group(turn, group)
        return turn.steps

    # Groups.

    def describe_group(self, now: Now, waiter: Waiter, caller: Caller, group_id: str) -> Step:
        """Answers with DescribedGroup, without authorized operations."""
        turn = self._turn(now)
        group = self._groups.get(group_id)
        if group is None:
            described = describe_missing_group(
                group_id,
                knows_missing_groups=caller.knows_missing_groups,
                is_consumer_group=self._consumer_groups.get(group_id) is not None,
            )
        else:
            described = describe_group(group)
        turn.answer(waiter, described)
        return turn.step

    def describe_consumer_group(self, now: Now, waiter: Waiter, group_id: str) -> Step:
        """Answers with DescribedConsumerGroup, without authorized operations."""
        turn = self._turn(now)
        turn.answer(waiter, self._consumer_groups.describe(turn, group_id, is_classic=group_id in self._groups))
        return turn.step

    def list_groups(self, now: Now, waiter: Waiter, asked: GroupFilter) -> Step:
        """Answers with ListGroupsResponse of this shard's groups."""
        turn = self._turn(now)
        every: list[ClassicGroup | ConsumerGroup] = [*self._groups.values(), *self._consumer_groups.all]
        groups = [list_group(group) for group in every if asked.admits(group)]
        turn.answer(waiter, ListGroupsResponse(groups=groups))
        return turn.step

    def delete_group(self, now: Now, waiter: Waiter, group_id: str) -> list[Step]:
        """Answers with DeletableGroupResult."""
        turn = self._turn(now)
        group = self._any_group(group_id)
        error, message = ErrorCode.NONE, None
        if group is None:
            error, message = ErrorCode.GROUP_ID_NOT_FOUND, "The group id does not exist."
        elif group.state not in (GroupState.EMPTY, ConsumerGroupState.EMPTY):
            error, message = ErrorCode.NON_EMPTY_GROUP, "The group is not empty."
        else:
            self._remove_offsets(
                turn, _distinct(self._offsets.keys_of_group(group_id), self._pending.keys_of_group(group_id))
            )
            if isinstance(group, ConsumerGroup):
                self._consumer_groups.delete(turn, group)
            else:
                self._remove_group(turn, group)
        turn.answer(waiter, DeletableGroupResult(group_id=group_id, error_code=error, error_message=message))
        return turn.steps

    def _turn(self, now: Now) -> Turn:
        return Turn(now, self._settings, self._config_of)

    def _any_group(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        return self._groups.get(group_id) or self._consumer_groups.get(group_id)

    def _group_of_offsets(self, group_id: str) -> None:
        if self._any_group(group_id) is None:
            self._groups[group_id] = ClassicGroup(group_id)

    def _maybe_group_of_offsets(self, group_id: str) -> None:
        if self._has_offsets(group_id):
            self._group_of_offsets(group_id)

    def _has_offset(self, group_id: str, topic: str, partition: int) -> bool:
        is_committed = self._offsets.get(group_id, topic, partition) is not None
        return is_committed or self._pending.has(group_id, topic, partition)

    def _has_offsets(self, group_id: str) -> bool:
        return bool(self._offsets.of_group(group_id)) or self._pending.has_group(group_id)

    def _expired(self, turn: Turn, group: ClassicGroup | ConsumerGroup) -> list[OffsetCommitKey]:
        """Returns the offsets that have expired and that no transaction is about to replace."""
        expired = expired_offsets(turn, group, self._offsets)
        return [each for each in expired if not self._pending.has(each.group, each.topic, each.partition)]

    def _remove_offsets(self, turn: Turn, keys: Iterable[OffsetCommitKey]) -> None:
        for key in keys:
            turn.write_tombstone(encode_key(key))
            self._pending.replaced(key)
            self._offsets.remove(key)

    def _remove_group(self, turn: Turn, group: ClassicGroup) -> None:
        write_group_deletion(turn, group)
        del self._groups[group.group_id]


def _distinct(committed: Iterable[OffsetCommitKey], pending: Iterable[OffsetCommitKey]) -> list[OffsetCommitKey]:
    keys = {(each.group, each.topic, each.partition): each for each in (*committed, *pending)}
    return list(keys.values())


def _keys_of(
    pending: Iterable[OffsetCommitKey], taken: Iterable[tuple[str, str, Iterable[int]]]
) -> Iterator[OffsetCommitKey]:
    """Returns each key once, made when it is asked for."""
    names = {(each.group, each.topic, each.partition) for each in pending}
    yield from pending
    for group, topic, partitions in taken:
        for partition in partitions:
            if (group, topic, partition) not in names:
                yield OffsetCommitKey(group=group, topic=topic, partition=partition)


def _missing_member(group_id: str) -> ErrorCode:
    """Returns the error of a request from a member of a group that does not exist."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
