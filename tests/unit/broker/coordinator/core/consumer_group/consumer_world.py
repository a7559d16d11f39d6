"""A GroupWorld with requests of the consumer protocol, and clients that follow it."""

from collections.abc import Iterable, Mapping
from typing import Any

from broker.coordinator.core.consumer_group.assignment import Assignment, from_wire
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import ConsumerMember
from broker.coordinator.core.result import Caller
from common.ids import TopicId
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_describe import DescribedConsumerGroup
from common.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.protocol.schema import Uuid
from common.records.consumer_group_records import decode_consumer_value
from common.records.group_records import GroupMetadataKey, OffsetCommitKey, decode_key
from tests.unit.broker.coordinator.core.group_world import CALLER, GROUP, REBALANCE_MS, GroupWorld

# Topics by number, as FakeTopics gives out their ids, with the partitions of each.
Partitions = Mapping[int, Iterable[int]]


def topic_id(number: int) -> TopicId:
    return TopicId(Uuid(number.to_bytes(16, "big")))


def wire(partitions: Partitions | None) -> list[TopicPartitions] | None:
    if partitions is None:
        return None
    return [TopicPartitions(topic_id=topic_id(number), partitions=list(each)) for number, each in partitions.items()]


def numbers(assignment: Assignment) -> dict[int, list[int]]:
    """Returns the partitions by the number of the topic."""
    return {int.from_bytes(bytes(each), "big"): sorted(partitions) for each, partitions in sorted(assignment.items())}


class ConsumerWorld(GroupWorld):
    """One shard, with a topic `t` of four partitions, whose number is 1."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.topics.create("t", 4)
        # What each member owns, by group and member: what it has said with its last heartbeat that was accepted, and what
        # the answer has given it.
        self.owned: dict[tuple[str, str], set[tuple[int, int]]] = {}

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        owned: Partitions | None = None,
        topics: Iterable[str] | None = None,
        regex: str | None = None,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
        caller: Caller = CALLER,
        group: str = GROUP,
    ) -> ConsumerGroupHeartbeatResponse:
        """Sends one heartbeat."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=wire(owned),
        )
        waiter = self.waiter()
        self.fresh_ids += 1
        self.carry_out(*self.shard.consumer_group_heartbeat(self.now, waiter, caller, request, f"id{self.fresh_ids}"))
        answer: ConsumerGroupHeartbeatResponse = self.answer(waiter)
        self._note_owned(group, answer, owned)
        return answer

    def _note_owned(self, group: str, answer: ConsumerGroupHeartbeatResponse, listed: Partitions | None) -> None:
        if answer.error_code != ErrorCode.NONE:
            return
        key = (group, answer.member_id or "")
        if answer.member_epoch < 0:
            self.owned.pop(key, None)
            return
        if listed is not None:
            self.owned[key] = {(topic, index) for topic, part in listed.items() for index in part}
        if answer.assignment is not None:
            given = numbers(from_wire(answer.assignment.topic_partitions))
            self.owned.setdefault(key, set()).update((topic, index) for topic, part in given.items() for index in part)

    def enter(self, member_id: str, **options: Any) -> ConsumerGroupHeartbeatResponse:
        """Sends the first heartbeat of a member."""
        first = {"owned": {}, "rebalance_ms": REBALANCE_MS}
        if "regex" not in options:
            first["topics"] = ["t"]
        return self.beat(member_id, 0, **{**first, **options})

    def told(self, response: ConsumerGroupHeartbeatResponse) -> tuple[int, dict[int, list[int]] | None]:
        """Returns the epoch and the assignment of an answer without an error; None for an unchanged assignment."""
        assert response.error_code == ErrorCode.NONE, response.error_message
        assigned = response.assignment
        return response.member_epoch, None if assigned is None else numbers(from_wire(assigned.topic_partitions))

    def refused(self, response: ConsumerGroupHeartbeatResponse) -> str:
        return ErrorCode(response.error_code).name

    def consumer_group(self, group: str = GROUP) -> ConsumerGroup:
        (found,) = [each for each in self.shard.consumer_groups if each.group_id == group]
        return found

    def member(self, member_id: str, group: str = GROUP) -> ConsumerMember:
        member = self.consumer_group(group).member(member_id)
        assert member is not None
        return member

    def numbers_of(self, member_id: str) -> tuple[list[int], list[int]]:
        """Returns the partitions of topic 1 that the member has, and those that it is to give up."""
        member = self.member(member_id)
        assigned, pending = numbers(member.assigned), numbers(member.pending_revocation)
        return assigned.get(1, []), pending.get(1, [])

    def commit_of(self, member_id: str, epoch: int, offsets: Mapping[int, int]) -> str:
        """Commits offsets of topic `t` with one request, and returns the error, which is the same for all."""
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=each) for index, each in offsets.items()
        ]
        topic = OffsetCommitRequestTopic(name="t", topic_id=topic_id(1), partitions=partitions)
        request = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=epoch, member_id=member_id, topics=[topic]
        )
        waiter = self.waiter()
        self.carry_out(self.shard.commit_offsets(self.now, waiter, CALLER, request))
        (error,) = {each.error_code for topic in self.answer(waiter).topics for each in topic.partitions}
        return ErrorCode(error).name

    def change(self, *names: str, has_other_names: bool = True) -> None:
        """Notifies the shard that these topics have changed."""
        self.carry_out(*self.shard.topics_changed(self.now, names, has_other_names=has_other_names))

    def describe_consumers(self, group: str = GROUP) -> DescribedConsumerGroup:
        waiter = self.waiter()
        self.carry_out(self.shard.describe_consumer_group(self.now, waiter, group))
        described: DescribedConsumerGroup = self.answer(waiter)
        return described

    @property
    def written(self) -> list[tuple[Any, Any]]:
        """The records of the last step, decoded."""
        found: list[tuple[Any, Any]] = []
        for record in self.last_step.records:
            key = decode_key(record.key)
            assert key is not None and not isinstance(key, OffsetCommitKey)
            value = record.value
            if value is None or isinstance(key, GroupMetadataKey):
                found.append((key, value))
            else:
                found.append((key, decode_consumer_value(key, value)))
        return found


class Consumer:
    """A client that follows the protocol: it revokes at once, and says so with its next heartbeat."""

    def __init__(self, world: ConsumerWorld, member_id: str, group: str = GROUP, instance: str | None = None) -> None:
        self.world = world
        self.member_id = member_id
        self.group = group
        self.instance = instance
        self.topics: list[str] = ["t"]
        self.regex: str | None = None
        self.epoch = 0
        self.owned: dict[int, list[int]] = {}
        # What it has said last that it owns. It says so again when that changes.
        self.reported: dict[int, list[int]] | None = None
        # Whether the next heartbeat says everything, because the last answer was lost.
        self.is_unsure = False
        self.has_failed = False

    def act(self, *, loses_answer: bool = False) -> None:
        """Sends a heartbeat and does what the answer says, unless it is lost."""
        if self.has_failed:
            return
        is_full = self.epoch == 0 or self.is_unsure
        reports = is_full or self.owned != self.reported
        response = self.world.beat(
            self.member_id,
            self.epoch,
            owned=self.owned if reports else None,
            topics=self.topics,
            regex=self.regex or "",
            instance=self.instance,
            rebalance_ms=REBALANCE_MS if is_full else -1,
            group=self.group,
        )
        self.is_unsure, self.reported = loses_answer, self.owned
        if not loses_answer:
            self.obey(response)

    def obey(self, response: ConsumerGroupHeartbeatResponse) -> None:
        error = ErrorCode(response.error_code).name
        if error in ("UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID", "GROUP_MAX_SIZE_REACHED"):
            self.has_failed, self.owned, self.epoch = True, {}, 0
        elif error != "NONE":
            assert error in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"), error
            self.epoch, self.owned = 0, {}
        else:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.owned = numbers(from_wire(response.assignment.topic_partitions))

    def leave(self, *, for_a_while: bool = False) -> None:
        self.world.beat(self.member_id, -2 if for_a_while else -1, instance=self.instance, group=self.group)
        self.epoch, self.owned = 0, {}
