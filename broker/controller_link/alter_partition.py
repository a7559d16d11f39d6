"""Sends the controller the ISR changes that this broker's leaders propose (shell).

Counterpart of Kafka's AlterPartitionManager. At most one request is in flight; proposals that arrive meanwhile form the next
request. After a timeout, a lost connection or an error of the whole request, we retry after a pause. An error of one
partition goes to the partition's core, which decides what to do.

The controller may have recorded a change although we got no answer. It then answers the retry with INVALID_UPDATE_VERSION,
and the leader waits for the metadata instead of assuming that the change failed.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from broker.controller_link.controller_channel import ControllerUnavailable
from broker.core.partition_replica import AlterPartitionResult, IsrProposal
from common.environment.interface import Environment
from common.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId, TopicIdPartition
from common.metadata.registrations import LeaderRecoveryState
from common.protocol.errors import ErrorCode, error_name, is_known_error
from common.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

# AlterPartition 3 carries the broker epoch of each member (KIP-903).
ALTER_PARTITION_VERSION = 3
RETRY_BACKOFF_NS = 50_000_000
REQUEST_TIMEOUT_NS = 30_000_000_000


class ControllerRequests(Protocol):
    """The channel to the active controller (`ControllerChannel`). `send` raises ControllerUnavailable."""

    async def send(self, request: Any, *, deadline_ns: int, version: int | None = None) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Item:
    proposal: IsrProposal
    on_result: Callable[[AlterPartitionResult], None]


class AlterPartitionSender:
    """Collects proposals, and sends them from a single task (`run`)."""

    def __init__(
        self,
        env: Environment,
        controller: ControllerRequests,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
    ) -> None:
        self._env = env
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        # The newest unsent proposal of each partition, in order of arrival.
        self._queued: dict[TopicIdPartition, _Item] = {}
        self._wake = asyncio.Event()

    def submit(
        self, partition: TopicIdPartition, proposal: IsrProposal, on_result: Callable[[AlterPartitionResult], None]
    ) -> None:
        """Queues a proposal, replacing an unsent one of the same partition. `on_result` is called with the controller's
        answer, but not if a newer proposal replaces this one."""
        self._queued[partition] = _Item(proposal, on_result)
        self._wake.set()

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._queued = self._queued, {}
            if batch and not await self._send(batch):
                # Queue the proposals again. Those that arrived meanwhile are newer, so they replace the failed ones.
                self._queued = {**batch, **self._queued}
                await self._env.sleep_until(self._env.now_ns() + RETRY_BACKOFF_NS)
                self._wake.set()

    async def _send(self, batch: Mapping[TopicIdPartition, _Item]) -> bool:
        epoch = self._broker_epoch()
        if epoch is None:
            return False
        try:
            response: AlterPartitionResponse = await self._controller.send(
                _request(self._broker_id, epoch, batch),
                version=ALTER_PARTITION_VERSION,
                deadline_ns=self._env.now_ns() + REQUEST_TIMEOUT_NS,
            )
        except ControllerUnavailable as error:
            self._env.log.warning("alter_partition_failed", reason=str(error), partitions=len(batch))
            return False
        if response.error_code != ErrorCode.NONE:
            self._env.log.warning("alter_partition_failed", reason=error_name(response.error_code), partitions=len(batch))
            return False
        results = _results(response)
        pause = False
        for partition, item in batch.items():
            result = results.get(partition)
            if result is None:
                self._queued.setdefault(partition, item)
            else:
                item.on_result(result)
            again = self._queued.get(partition)
            pause = pause or (again is not None and again.proposal is item.proposal)
        if pause:
            await self._env.sleep_until(self._env.now_ns() + RETRY_BACKOFF_NS)
            self._wake.set()
        return True


def _request(broker_id: BrokerId, epoch: BrokerEpoch, batch: Mapping[TopicIdPartition, _Item]) -> AlterPartitionRequest:
    topics: dict[bytes, RequestTopicData] = {}
    for (topic_id, index), item in batch.items():
        proposal = item.proposal
        topic = topics.setdefault(topic_id, RequestTopicData(topic_id=topic_id))
        topic.partitions.append(
            RequestPartitionData(
                partition_index=index,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch) for member in proposal.members
                ],
                # The first ISR change ends the recovery after an unclean election (KIP-704).
                leader_recovery_state=LeaderRecoveryState.RECOVERED,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, topics=list(topics.values()))


def _results(response: AlterPartitionResponse) -> dict[TopicIdPartition, AlterPartitionResult]:
    results: dict[TopicIdPartition, AlterPartitionResult] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            error = partition.error_code
            key = TopicIdPartition(TopicId(topic.topic_id), partition.partition_index)
            results[key] = AlterPartitionResult(
                error=ErrorCode(error) if is_known_error(error) else ErrorCode.UNKNOWN_SERVER_ERROR,
                leader=BrokerId(partition.leader_id),
                leader_epoch=LeaderEpoch(partition.leader_epoch),
                isr=tuple(BrokerId(member) for member in partition.isr),
                partition_epoch=PartitionEpoch(partition.partition_epoch),
                leader_recovery_state=partition.leader_recovery_state,
            )
    return results
