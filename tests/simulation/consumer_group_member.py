"""A member of a group of the consumer protocol (KIP-848) in the simulated workload.

Shell of the tests. It raises and commits positions as `group_member` describes, but is told by heartbeats what it owns. It
gives a partition up at once, and its next heartbeat says so. After a heartbeat without an answer it does not know what it
has been told, and says everything about itself again.
"""

import uuid
from typing import TYPE_CHECKING

from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.simulation.group_member import (
    COMMIT_SHARE,
    CRASH_SHARE,
    LEAVE_SHARE,
    NAMED_OFFSETS_VERSION,
    REBALANCE_TIMEOUT_MS,
    Member,
    positions_of,
)

if TYPE_CHECKING:
    from tests.simulation.workload import WorkloadClient

LEAVE_EPOCH = -1
HEARTBEAT_SHARE = 0.3


class ConsumerGroupMember(Member):
    """A member by the consumer protocol."""

    lost_membership = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)

    def __init__(self, client: "WorkloadClient", group: str, topic: str, life: int = 0) -> None:
        super().__init__(client, group, topic, life)
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
            self._note_assignment(self._epoch, tuple(sorted(owned)))
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
        if await self._commit_position(self._epoch, index, position) is ErrorCode.STALE_MEMBER_EPOCH:
            # The answer with the new epoch was lost.
            self._is_unsure = True
