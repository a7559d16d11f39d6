"""A member of a group of the consumer protocol (KIP-848) in the simulated workload.

Shell of the tests. It raises and commits positions as `group_member` describes, but is told by heartbeats what it owns. It
gives a partition up at once, and its next heartbeat says so. After a heartbeat without an answer it does not know what it
has been told, and says everything about itself again.
"""

import random
import uuid
from typing import TYPE_CHECKING, Any

from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
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
from tests.simulation.group_member import (
    COMMIT_SHARE,
    CRASH_SHARE,
    LEAVE_SHARE,
    LOST_COORDINATOR,
    NAMED_OFFSETS_VERSION,
    REBALANCE_TIMEOUT_MS,
    RESTART_SHARE,
    find_coordinator,
    positions_of,
)
from tests.simulation.history import Assignment, OffsetCommit, Outcome

if TYPE_CHECKING:
    from tests.simulation.workload import WorkloadClient

LOST_MEMBERSHIP = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
LEAVE_EPOCH = -1
HEARTBEAT_SHARE = 0.3


class ConsumerGroupMember:
    """One member. `step` does the next thing and never raises. A client is one member after another; `life` numbers them."""

    def __init__(self, client: "WorkloadClient", group: str, topic: str, life: int = 0) -> None:
        self.client = client
        self._group = group
        self._topic = topic
        self._rng = random.Random(f"{client._cluster.world.seed}/{client.name}/member{life or ''}")
        self._coordinator: int | None = None
        self._member_id = ""
        self._epoch = 0
        # Whether the next heartbeat says everything.
        self._is_unsure = True
        # The position of each partition that this member owns; None for one whose committed position it has not asked for.
        self._positions: dict[int, int | None] = {}
        self._crash()

    @property
    def is_out(self) -> bool:
        """Whether the client is in no group, as far as it knows."""
        return not self._epoch

    async def step(self) -> None:
        """Goes one step on: finds the coordinator, heartbeats, or works as a member."""
        try:
            if self._coordinator is None:
                self._coordinator = await find_coordinator(self.client, self._group)
            else:
                await self._work()
        except ChannelError:
            self._coordinator = None

    async def _send(self, request: Any, *, version: int | None = None) -> Any:
        assert self._coordinator is not None
        return await self.client.send(self._coordinator, request, version=version, seconds=3)

    def _judge(self, error_code: int) -> bool:
        """Draws the conclusions from an error. Returns whether there was none."""
        error = ErrorCode(error_code)
        if error in LOST_MEMBERSHIP:
            self._crash()
        elif error in LOST_COORDINATOR:
            self._coordinator = None
            if self._rng.random() < RESTART_SHARE:
                self._crash()
        return error is ErrorCode.NONE

    def _crash(self) -> None:
        self._member_id = str(uuid.UUID(int=self._rng.getrandbits(128)))
        self._epoch, self._positions, self._is_unsure = 0, {}, True

    # --- heartbeats ----------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        drawn = self._rng.random()
        if self._epoch and drawn < CRASH_SHARE:
            self._crash()
            return
        if self._epoch and drawn < CRASH_SHARE + LEAVE_SHARE:
            await self.leave()
            return
        # Heartbeats and commits come at their own times, so a member commits while it does not know of a revocation yet.
        if (not self._epoch or self._rng.random() < HEARTBEAT_SHARE) and not await self._heartbeat():
            return
        unknown = tuple(index for index, position in sorted(self._positions.items()) if position is None)
        if unknown:
            await self._begin(unknown)
        elif self._positions and drawn < COMMIT_SHARE:
            await self._commit(self._rng.choice(sorted(self._positions)))

    async def leave(self) -> None:
        """Raises ChannelError."""
        leave = ConsumerGroupHeartbeatRequest(group_id=self._group, member_id=self._member_id, member_epoch=LEAVE_EPOCH)
        self._crash()
        if self._coordinator is not None:
            await self._send(leave)

    async def _heartbeat(self) -> bool:
        is_full = self._is_unsure
        topic = self.client.topics.get(self._topic)
        if topic is None:
            await self.client.refresh(self._topic)
            return False
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            subscribed_topic_names=[self._topic] if is_full else None,
            topic_partitions=(
                [TopicPartitions(topic_id=topic.topic_id, partitions=sorted(self._positions))] if self._positions else []
            ),
        )
        self._is_unsure = True
        response: ConsumerGroupHeartbeatResponse = await self._send(request)
        if not self._judge(response.error_code):
            return False
        self._is_unsure = False
        self._epoch = response.member_epoch
        if response.assignment is not None:
            owned = {index for each in response.assignment.topic_partitions for index in each.partitions}
            self._positions = {index: self._positions.get(index) for index in owned}
            self.client.history.assignments.append(
                Assignment(
                    group=self._group,
                    generation=self._epoch,
                    member_id=self._member_id,
                    indexes=tuple(sorted(owned)),
                    at_ns=self.client._env.now_ns(),
                )
            )
        return True

    # --- positions -----------------------------------------------------------------------------------------------

    async def _begin(self, indexes: tuple[int, ...]) -> None:
        """Learns the committed positions of partitions that it has been given."""
        request = positions_of(self._group, self._topic, indexes)
        request.groups[0].member_id, request.groups[0].member_epoch = self._member_id, self._epoch
        response = await self._send(request, version=NAMED_OFFSETS_VERSION)
        found = response.groups[0]
        if self._judge(found.error_code):
            for part in (part for topic in found.topics for part in topic.partitions):
                self._positions[part.partition_index] = max(part.committed_offset, 0)

    async def _commit(self, index: int) -> None:
        position = (self._positions[index] or 0) + self._rng.randint(1, 9)
        self._positions[index] = position
        operation = OffsetCommit(
            client=self.client.name,
            begin_ns=self.client._env.now_ns(),
            group=self._group,
            topic=self._topic,
            index=index,
            generation=self._epoch,
            member_id=self._member_id,
            offset=position,
        )
        self.client.history.offset_commits.append(operation)
        partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=position)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._epoch,
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
        error_code = response.topics[0].partitions[0].error_code
        if self._judge(error_code):
            operation.outcome = Outcome.OK
        elif error_code == ErrorCode.STALE_MEMBER_EPOCH:
            # The answer with the new epoch was lost.
            self._is_unsure = True
            operation.error = ErrorCode.STALE_MEMBER_EPOCH.name
        else:
            operation.error = ErrorCode(error_code).name
