"""A shard with a clock, timers and a log of its own, driven by requests, for the tests of the group coordinator's core.

Every step is carried out as the shell would, except that records are committed at once. After each step the invariants of
all groups are checked, and that no request is answered twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.group_queries import GroupFilter
from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.result import Caller, Now, Step
from common.configuration.group import GroupConfig
from common.ids import TopicId
from common.protocol.codec import encode_with_version
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from common.protocol.messages.delete_groups import DeletableGroupResult
from common.protocol.messages.describe_groups import DescribedGroup
from common.protocol.messages.heartbeat import HeartbeatRequest
from common.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from common.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from common.protocol.messages.list_groups import ListGroupsRequest
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from common.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from common.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from common.protocol.schema import ZERO_UUID, Uuid
from common.time_units import NS_PER_MS

GROUP = "g"
CALLER = Caller("client", "/127.0.0.1")
# A client of before KIP-394 and KIP-814.
OLD_CALLER = Caller(
    "client", "/127.0.0.1", can_join_with_new_id=False, can_skip_assignment=False, knows_missing_groups=False
)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_MS = 3_000
START_MS = 1_000_000


def subscription(*topics: str) -> bytes:
    """Returns the metadata of a consumer that reads these topics."""
    return encode_with_version(ConsumerProtocolSubscription(topics=list(topics)), 1)


@dataclass
class FakeTopic:
    name: str
    id: TopicId
    partitions: range


class FakeTopics:
    """The topics that the shard sees."""

    def __init__(self) -> None:
        self.topics: dict[TopicId, FakeTopic] = {}
        self.topic_ids: dict[str, TopicId] = {}
        self._created = 0

    def create(self, name: str, partitions: int) -> TopicId:
        """Creates the topic. The nth one has the number n for its id."""
        self._created += 1
        topic_id = TopicId(Uuid(self._created.to_bytes(16, "big")))
        self.topics[topic_id] = FakeTopic(name, topic_id, range(partitions))
        self.topic_ids[name] = topic_id
        return topic_id

    def delete(self, name: str) -> None:
        del self.topics[self.topic_ids.pop(name)]

    def add_partitions(self, name: str, partitions: int) -> None:
        self.topics[self.topic_ids[name]].partitions = range(partitions)


RANGE = {"range": subscription("t")}


class GroupWorld:
    """One shard and what the shell would keep for it."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupSettings(**settings)
        self.topics = FakeTopics()
        # The configuration of the groups for which something is set.
        self.group_configs: dict[str, GroupConfig] = {}
        self.shard = self.new_shard()
        self.now_ms = START_MS
        # All records since the beginning.
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[tuple[str, ...], int] = {}
        self.answers: dict[int, Any] = {}
        self.asked = 0
        self.fresh_ids = 0
        self.last_step = Step()

    # The shell.

    @property
    def now(self) -> Now:
        return Now(self.now_ms * NS_PER_MS, self.now_ms)

    @property
    def waiting(self) -> set[int]:
        return set(range(self.asked)) - self.answers.keys()

    def carry_out(self, *steps: Step) -> None:
        for step in steps:
            self.last_step = step
            self.log += [(record.key, record.value) for record in step.records]
            for change in step.timers:
                self.timers.pop(change.key, None)
                if change.at_ns is not None:
                    self.timers[change.key] = change.at_ns
            self.deliver(step.answers)
        for group in self.shard.groups:
            group.check()
        for consumer_group in self.shard.consumer_groups:
            consumer_group.check()

    def deliver(self, answers: Iterable[Any]) -> None:
        for answer in answers:
            assert answer.waiter not in self.answers, "a request is answered twice"
            self.answers[answer.waiter] = answer.response

    def waiter(self) -> int:
        self.asked += 1
        return self.asked - 1

    def advance(self, ms: int) -> None:
        """Lets the time pass, firing the timers in order."""
        end_ms = self.now_ms + ms
        while self.timers:
            key, at_ns = min(self.timers.items(), key=lambda item: item[1])
            if at_ns > end_ms * NS_PER_MS:
                break
            self.now_ms = max(self.now_ms, at_ns // NS_PER_MS)
            del self.timers[key]
            self.carry_out(*self.shard.timer_fired(self.now, key))
        self.now_ms = end_ms

    def replayed(self, *, compacted: bool = False) -> GroupShard:
        """Returns a shard loaded from the log, which may have been compacted to the last record of each key."""
        log = self.log
        if compacted:
            last = {key: position for position, (key, _) in enumerate(log)}
            log = [(key, value) for position, (key, value) in enumerate(log) if last[key] == position and value is not None]
        shard = self.new_shard()
        for key, value in log:
            shard.replay(key, value)
        return shard

    def new_shard(self) -> GroupShard:
        return GroupShard(self.settings, self.topics, lambda group_id: self.group_configs.get(group_id, GroupConfig()))

    def reload(self) -> None:
        """Unloads the shard and loads it again from its log."""
        self.deliver(self.shard.unloaded(ErrorCode.NOT_COORDINATOR))
        self.timers.clear()
        self.shard = self.replayed()
        self.carry_out(self.shard.loaded(self.now))

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        (found,) = [group for group in self.shard.groups if group.group_id == group_id]
        return found

    def answer(self, waiter: int) -> Any:
        return self.answers[waiter]

    def error(self, waiter: int) -> str:
        return ErrorCode(self.answers[waiter].error_code).name

    # Requests. Those that may wait return their waiter, the others their answer.

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Mapping[str, bytes] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        caller: Caller = CALLER,
        group: str = GROUP,
    ) -> int:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=each) for name, each in protocols.items()],
        )
        self.fresh_ids += 1
        waiter = self.waiter()
        self.carry_out(*self.shard.join_group(self.now, waiter, caller, request, f"id{self.fresh_ids}"))
        return waiter

    def new_id(self, **options: Any) -> str:
        """Returns the id that a new dynamic member is given."""
        answer: JoinGroupResponse = self.answer(self.join(**options))
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def join_with_new_id(self, **options: Any) -> tuple[str, int]:
        """Lets a new dynamic member join; returns its id and the waiter of its JoinGroup."""
        member_id = self.new_id(**options)
        return member_id, self.join(member_id, **options)

    def sync(
        self,
        member_id: str,
        assignment: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group: str = GROUP,
    ) -> int:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=self.generation(group) if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=content)
                for each, content in (assignment or {}).items()
            ],
        )
        waiter = self.waiter()
        self.carry_out(self.shard.sync_group(self.now, waiter, request))
        return waiter

    def synced(self, waiter: int) -> bytes:
        """Returns the assignment in the answer to a SyncGroup."""
        answer: SyncGroupResponse = self.answer(waiter)
        assert answer.error_code == ErrorCode.NONE
        return answer.assignment

    def generation(self, group: str = GROUP) -> int:
        return next((each.generation for each in self.shard.groups if each.group_id == group), -1)

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None, group: str = GROUP
    ) -> str:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=self.generation(group) if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        waiter = self.waiter()
        self.carry_out(*self.shard.heartbeat(self.now, waiter, request))
        return self.error(waiter)

    def leave(self, *members: str | MemberIdentity, group: str = GROUP) -> list[str]:
        """Returns the error of each member."""
        leaving = [each if isinstance(each, MemberIdentity) else MemberIdentity(member_id=each) for each in members]
        waiter = self.waiter()
        self.carry_out(*self.shard.leave_group(self.now, waiter, LeaveGroupRequest(group_id=group, members=leaving)))
        answer: LeaveGroupResponse = self.answer(waiter)
        assert answer.error_code == ErrorCode.NONE
        return [ErrorCode(each.error_code).name for each in answer.members]

    def commit(
        self,
        offset: int,
        *,
        topic: str = "t",
        partition: int = 0,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        topic_id: Uuid = ZERO_UUID,
        caller: Caller = CALLER,
        group: str = GROUP,
    ) -> str:
        """Commits one offset and returns its error."""
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )
        waiter = self.waiter()
        self.carry_out(self.shard.commit_offsets(self.now, waiter, caller, request))
        return ErrorCode(self.answer(waiter).topics[0].partitions[0].error_code).name

    def fetch(self, *partitions: tuple[str, int], group: str = GROUP) -> dict[tuple[str, int], int]:
        """Returns the committed offsets of these partitions, or of all."""
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index]) for topic, index in partitions]
        request = OffsetFetchRequestGroup(group_id=group, topics=topics or None)
        waiter = self.waiter()
        self.carry_out(self.shard.fetch_offsets(self.now, waiter, request))
        answer = self.answer(waiter)
        assert (answer.group_id, answer.error_code) == (group, ErrorCode.NONE)
        return {
            (topic.name, each.partition_index): each.committed_offset for topic in answer.topics for each in topic.partitions
        }

    def delete_offsets(self, *partitions: tuple[str, int], group: str = GROUP) -> list[str]:
        """Returns the error of the request alone, or that of each partition."""
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
                for topic, index in partitions
            ],
        )
        waiter = self.waiter()
        self.carry_out(*self.shard.delete_offsets(self.now, waiter, request))
        answer: OffsetDeleteResponse = self.answer(waiter)
        if answer.error_code != ErrorCode.NONE:
            return [ErrorCode(answer.error_code).name]
        return [ErrorCode(each.error_code).name for topic in answer.topics for each in topic.partitions]

    def delete_group(self, group: str = GROUP) -> str:
        waiter = self.waiter()
        self.carry_out(*self.shard.delete_group(self.now, waiter, group))
        answer: DeletableGroupResult = self.answer(waiter)
        assert answer.group_id == group
        return self.error(waiter)

    def describe(self, group: str = GROUP, caller: Caller = CALLER) -> DescribedGroup:
        waiter = self.waiter()
        self.carry_out(self.shard.describe_group(self.now, waiter, caller, group))
        described: DescribedGroup = self.answer(waiter)
        return described

    def listed(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> dict[str, str]:
        """Returns the state of each group that the filters let through."""
        waiter = self.waiter()
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        self.carry_out(self.shard.list_groups(self.now, waiter, GroupFilter(request)))
        return {each.group_id: each.group_state for each in self.answer(waiter).groups}

    def state(self, group: str = GROUP) -> str:
        return self.describe(group).group_state

    def expire(self) -> None:
        self.carry_out(*self.shard.expire(self.now, self.shard.expirable()))

    # Whole rebalances.

    def end_initial_rebalance(self) -> None:
        """Lets the delays of the initial rebalance pass, but nothing else."""
        while self.group().is_initial_rebalance:
            self.advance(INITIAL_DELAY_MS)

    def completing_group(self, size: int = 2, **options: Any) -> list[str]:
        """Makes a group whose members wait for the leader's assignment; returns their ids, the leader's first."""
        joined = [self.join_with_new_id(**options) for _ in range(size)]
        self.end_initial_rebalance()
        assert all(self.error(waiter) == "NONE" for _, waiter in joined)
        return [member_id for member_id, _ in joined]

    def stable_group(self, size: int = 2, **options: Any) -> list[str]:
        """Makes a group whose members have an assignment, their own id; returns their ids, the leader's first."""
        members = self.completing_group(size, **options)
        self.assign(members)
        return members

    def assign(self, members: Iterable[str]) -> None:
        """Lets all members sync, the leader last."""
        leader, *others = members
        waiters = [self.sync(each) for each in others]
        waiters.append(self.sync(leader, {each: each.encode() for each in (leader, *others)}))
        assert all(self.error(waiter) == "NONE" for waiter in waiters)
