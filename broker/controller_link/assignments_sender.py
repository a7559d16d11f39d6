"""Reports to the controller which directory holds which replica, whenever the queue has something due (shell, KIP-858).

The queue and its rules are in core/directory_assignments. This module sends one request at a time and passes the response
to the queue. The response groups partitions by directory as the request does. An assignment that is missing from the
response counts as not done.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from broker.controller_link.controller_channel import ControllerChannel, ControllerUnavailable
from broker.core.directory_assignments import DirectoryAssignments
from common.environment.interface import Environment
from common.ids import BrokerEpoch, BrokerId, DirectoryId, TopicId, TopicIdPartition
from common.protocol.errors import ErrorCode, error_name
from common.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from common.time_units import NS_PER_MS

REQUEST_TIMEOUT_NS = 60_000 * NS_PER_MS


class AssignmentsSender:
    """Drives one DirectoryAssignments queue. `broker_epoch` returns the current epoch, -1 before the registration.
    `on_final` is called for each replica that had to wait for an answer (`DirectoryReports`)."""

    def __init__(
        self,
        env: Environment,
        queue: DirectoryAssignments,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        channel: ControllerChannel,
        task_group: asyncio.TaskGroup,
        on_final: Callable[[TopicIdPartition], None],
    ) -> None:
        self.env = env
        self._queue = queue
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._task_group = task_group
        self._on_final = on_final
        self._cancel_timer: Callable[[], None] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Stops sending, because the broker shuts down."""
        self._is_stopped = True
        self.arm()

    def wish(self, wishes: Mapping[TopicIdPartition, DirectoryId]) -> None:
        """Queues these wishes: for each replica the directory to report."""
        if wishes:
            self._queue.wish(wishes, self.env.now_ns())
            self.arm()

    def settle(self, replicas: Sequence[TopicIdPartition]) -> None:
        """Drops what is queued for these replicas, because there is nothing to report about them any more."""
        self._queue.settle(replicas)

    def arm(self) -> None:
        """Sets the timer to the time when the next request is due. Called when assignments were queued, when a request has
        ended, and once the broker is registered."""
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
        deadline_ns = self._queue.next_deadline_ns()
        if deadline_ns is not None and self._broker_epoch() >= 0 and not self._is_stopped:
            self._cancel_timer = self.env.call_at(deadline_ns, self._on_deadline)

    def _on_deadline(self) -> None:
        self._cancel_timer = None
        batch = self._queue.next_batch(self.env.now_ns())
        if batch:
            self._task_group.create_task(self._send(batch))
        else:
            self.arm()

    async def _send(self, batch: Mapping[DirectoryId, Sequence[TopicIdPartition]]) -> None:
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[_directory_data(directory_id, replicas) for directory_id, replicas in batch.items()],
        )
        deadline_ns = self.env.now_ns() + REQUEST_TIMEOUT_NS
        try:
            response: AssignReplicasToDirsResponse = await self._channel.send(request, deadline_ns=deadline_ns)
        except ControllerUnavailable as error:
            self.env.log.warning("assignments_not_sent", reason=str(error), replicas=self._queue.size)
            self._queue.handle_failure(self.env.now_ns())
        else:
            self._take_in(response)
        self.arm()

    def _take_in(self, response: AssignReplicasToDirsResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            error = error_name(response.error_code)
            self.env.log.warning("assignments_refused", error=error, replicas=self._queue.size)
            self._queue.handle_failure(self.env.now_ns())
            return
        codes: dict[tuple[DirectoryId, TopicIdPartition], int] = {
            (
                DirectoryId(directory.id),
                TopicIdPartition(TopicId(topic.topic_id), partition.partition_index),
            ): partition.error_code
            for directory in response.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        answer = self._queue.handle_answer(codes, self.env.now_ns())
        acknowledged = sum(code == ErrorCode.NONE for code in codes.values())
        self.env.log.info("assignments_acknowledged", replicas=acknowledged, refused=len(answer.refused))
        for replica in answer.final:
            self._on_final(replica)


def _directory_data(directory_id: DirectoryId, replicas: Sequence[TopicIdPartition]) -> RequestDirectoryData:
    topics: dict[TopicId, list[RequestPartitionData]] = {}
    for topic_id, partition in replicas:
        topics.setdefault(topic_id, []).append(RequestPartitionData(partition_index=partition))
    return RequestDirectoryData(
        id=directory_id,
        topics=[RequestTopicData(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
    )
