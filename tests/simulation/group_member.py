"""A member of a consumer group in the simulated workload: it joins, syncs, heartbeats, commits, leaves and crashes.

Shell of the tests. It does not read records: the position of a partition is a number that its owner raises. A new owner
begins at the committed position, as a consumer does. So the positions that the coordinator accepts for a partition only ever
grow, unless a commit was lost or two members own the partition at the same time.

A commit whose response was lost may still arrive at the coordinator, at any time, and undo a later one. Only a new
generation keeps it out. So the member crashes then: it forgets its id and joins again.
"""

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from common.net.node_channel import ChannelError
from common.protocol.codec import decode_with_version, encode_with_version
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from common.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from common.protocol.messages.heartbeat import HeartbeatRequest
from common.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from common.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from common.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.history import Assignment, OffsetCommit, OffsetRead, Outcome, UnexpectedError

if TYPE_CHECKING:
    from tests.simulation.workload import WorkloadClient

SESSION_TIMEOUT_MS = 3_000
REBALANCE_TIMEOUT_MS = 4_000
# A join takes as long as a rebalance, and the coordinator may have to load first.
JOIN_SECONDS = 12
LEAVE_SHARE = 0.02
CRASH_SHARE = 0.01
COMMIT_SHARE = 0.7
# How often a member restarts when its coordinator is gone.
RESTART_SHARE = 0.5
# The newest versions in which topics have names.
NAMED_OFFSETS_VERSION = 9

LOST_COORDINATOR = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Member(ABC):
    """What members by either protocol do alike. `step` does the next thing and never raises. A client is one member after
    another; `life` numbers them."""

    lost_membership: tuple[ErrorCode, ...] = ()

    def __init__(self, client: "WorkloadClient", group: str, topic: str, life: int = 0) -> None:
        self.client = client
        self._group = group
        self._topic = topic
        self._rng = random.Random(f"{client._cluster.world.seed}/{client.name}/member{life or ''}")
        self._coordinator: int | None = None
        self._member_id = ""

    async def step(self) -> None:
        """Goes one step on: finds the coordinator, or works as a member."""
        try:
            if self._coordinator is None:
                self._coordinator = await find_coordinator(self.client, self._group)
            else:
                await self._work()
        except ChannelError:
            self._coordinator = None

    @abstractmethod
    async def _work(self) -> None:
        """Does what a member does next."""

    @abstractmethod
    def _crash(self) -> None:
        """Forgets the membership, as a client that has just started."""

    async def _send(self, request: Any, *, version: int | None = None, seconds: float = 3) -> Any:
        assert self._coordinator is not None
        return await self.client.send(self._coordinator, request, version=version, seconds=seconds)

    def _judge(self, error_code: int) -> bool:
        """Draws the conclusions from an error. Returns whether there was none."""
        error = ErrorCode(error_code)
        if error in self.lost_membership:
            self._crash()
        elif error in LOST_COORDINATOR:
            self._coordinator = None
            if self._rng.random() < RESTART_SHARE:
                # A member that goes on knows its positions. One that restarts asks the new coordinator for them.
                self._crash()
        return error is ErrorCode.NONE

    def _note_assignment(self, epoch: int, indexes: tuple[int, ...]) -> None:
        self.client.history.assignments.append(
            Assignment(
                group=self._group,
                generation=epoch,
                member_id=self._member_id,
                indexes=indexes,
                at_ns=self.client._env.now_ns(),
            )
        )

    async def _commit_position(self, epoch: int, index: int, position: int) -> ErrorCode:
        """Commits a position as the owner of the partition, and records that in the history. Returns the error."""
        operation = OffsetCommit(
            client=self.client.name,
            begin_ns=self.client._env.now_ns(),
            group=self._group,
            topic=self._topic,
            index=index,
            generation=epoch,
            member_id=self._member_id,
            offset=position,
        )
        self.client.history.offset_commits.append(operation)
        partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=position)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=epoch,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[partition])],
        )
        try:
            response = await self._send(request, version=NAMED_OFFSETS_VERSION)
        except ChannelError as error:
            operation.error = str(error)
            # The commit may still arrive, and must not undo a later one. It belongs to a member that commits no more.
            self._crash()
            raise
        finally:
            operation.end_ns = self.client._env.now_ns()
        error_code = ErrorCode(response.topics[0].partitions[0].error_code)
        if self._judge(error_code):
            operation.outcome = Outcome.OK
        else:
            operation.error = error_code.name
        return error_code


class GroupMember(Member):
    """A member by the classic protocol."""

    lost_membership = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    protocol_type = "simulated"
    protocol_name = "in turn"
    # How often a heartbeat precedes a commit.
    heartbeat_share = 1.0

    def __init__(self, client: "WorkloadClient", group: str, topic: str, life: int = 0) -> None:
        super().__init__(client, group, topic, life)
        self._generation = -1
        # The position of each partition that this member owns; None while it is in no generation.
        self._positions: dict[int, int] | None = None

    @property
    def is_out(self) -> bool:
        """Whether the client is in no group, as far as it knows."""
        return not self._member_id

    def _judge(self, error_code: int) -> bool:
        if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._positions = None
        return super()._judge(error_code)

    def _note_unexpected(self, request: str, error_code: int) -> None:
        if error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self.client.history.unexpected_errors.append(
                UnexpectedError(
                    client=self.client.name,
                    request=request,
                    error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name,
                    at_ns=self.client._env.now_ns(),
                )
            )

    def _crash(self) -> None:
        self._member_id, self._generation, self._positions = "", -1, None

    # --- joining ---------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=self.protocol_name, metadata=self._metadata())],
        )
        joined: JoinGroupResponse = await self._send(request, seconds=JOIN_SECONDS)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return
        if not self._judge(joined.error_code):
            return
        self._member_id, self._generation = joined.member_id, joined.generation_id
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignments=self._assign(joined) if joined.leader == self._member_id else [],
        )
        synced = await self._send(sync, seconds=JOIN_SECONDS)
        self._note_unexpected("SyncGroup", synced.error_code)
        if self._judge(synced.error_code):
            indexes = self._decode(synced.assignment)
            self._note_assignment(self._generation, indexes)
            await self._begin(indexes)

    def _metadata(self) -> bytes:
        return b""

    def _encode(self, indexes: list[int]) -> bytes:
        return bytes(indexes)

    def _decode(self, assignment: bytes) -> tuple[int, ...]:
        return tuple(assignment)

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        known = self.client.topics.get(self._topic)
        members = sorted(each.member_id for each in joined.members)
        indexes = sorted(known.partitions) if known is not None else []
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=self._encode(indexes[number :: len(members)]))
            for number, member_id in enumerate(members)
        ]

    async def _begin(self, indexes: tuple[int, ...]) -> None:
        """Learns the committed positions. Without them, the member joins again."""
        if self._topic not in self.client.topics:
            await self.client.refresh(self._topic)
        response = await self._send(positions_of(self._group, self._topic, indexes), version=NAMED_OFFSETS_VERSION)
        found = response.groups[0]
        if self._judge(found.error_code):
            parts = [part for topic in found.topics for part in topic.partitions]
            self._positions = {part.partition_index: max(part.committed_offset, 0) for part in parts}

    # --- working ---------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        if self._positions is None:
            await self._join()
            return
        drawn = self._rng.random()
        if drawn < CRASH_SHARE:
            self._crash()
            return
        if drawn < CRASH_SHARE + LEAVE_SHARE:
            await self.leave()
            return
        is_due = self.heartbeat_share == 1 or self._rng.random() < self.heartbeat_share
        if (not is_due or await self._heartbeat()) and self._positions and drawn < COMMIT_SHARE:
            await self._commit(self._rng.choice(sorted(self._positions)))

    async def leave(self) -> None:
        """Raises ChannelError."""
        identity = MemberIdentity(member_id=self._member_id)
        self._crash()
        if self._coordinator is not None:
            await self._send(LeaveGroupRequest(group_id=self._group, members=[identity]))

    async def _heartbeat(self) -> bool:
        heartbeat = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        response = await self._send(heartbeat)
        self._note_unexpected("Heartbeat", response.error_code)
        return self._judge(response.error_code)

    async def _commit(self, index: int) -> None:
        assert self._positions is not None
        self._positions[index] += self._rng.randint(1, 9)
        await self._commit_position(self._generation, index, self._positions[index])


class ClassicConsumer(GroupMember):
    """Speaks the protocol as consumers do, so that its group may become one of the consumer protocol. It is eager: it has
    given up everything when it joins."""

    protocol_type = "consumer"
    protocol_name = "range"
    # So it commits while it does not know yet that it must join again.
    heartbeat_share = 0.3

    def _metadata(self) -> bytes:
        return encode_with_version(ConsumerProtocolSubscription(topics=[self._topic]), 1)

    def _encode(self, indexes: list[int]) -> bytes:
        parts = [TopicPartition(topic=self._topic, partitions=indexes)]
        return encode_with_version(ConsumerProtocolAssignment(assigned_partitions=parts), 1)

    def _decode(self, assignment: bytes) -> tuple[int, ...]:
        decoded = decode_with_version(ConsumerProtocolAssignment, assignment)
        return tuple(index for each in decoded.assigned_partitions for index in each.partitions)


# --- for any client --------------------------------------------------------------------------------------------------


async def find_coordinator(client: "WorkloadClient", group: str) -> int | None:
    """Asks any broker. Returns None if there is no coordinator now. Raises ChannelError."""
    response = await client.send(client._any_broker(), FindCoordinatorRequest(coordinator_keys=[group]))
    found = response.coordinators[0]
    return found.node_id if found.error_code == ErrorCode.NONE else None


async def read_position(client: "WorkloadClient", group: str, topic: str, index: int) -> OffsetRead:
    """Asks once for a committed position, and records the answer in the history."""
    operation = OffsetRead(client=client.name, begin_ns=client._env.now_ns(), group=group, topic=topic, index=index)
    client.history.offset_reads.append(operation)
    try:
        coordinator = await find_coordinator(client, group)
        if coordinator is None:
            operation.error = "no coordinator"
            return operation
        response = await client.send(coordinator, positions_of(group, topic, (index,)), version=NAMED_OFFSETS_VERSION)
    except ChannelError as error:
        operation.error = str(error)
        return operation
    finally:
        operation.end_ns = client._env.now_ns()
    found = response.groups[0]
    operation.error = ErrorCode(found.error_code).name
    if found.error_code == ErrorCode.NONE:
        operation.outcome = Outcome.OK
        operation.offset = found.topics[0].partitions[0].committed_offset
    return operation


def positions_of(group: str, topic: str, indexes: tuple[int, ...]) -> OffsetFetchRequest:
    wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(indexes))]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
