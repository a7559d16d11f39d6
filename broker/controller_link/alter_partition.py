"""Sends the controller the ISR changes that this broker's leaders propose (shell).

Counterpart of Kafka's AlterPartitionManager. At most one request is in flight; proposals that arrive meanwhile form the next
request, up to PARTITIONS_PER_REQUEST_MAX of them: a follower whose disk hangs leaves the ISR of thousands of partitions at
once. After a timeout, a lost connection or an error of the whole request, we retry after a pause. An error of one
partition goes to the partition's core, which decides what to do. A proposal that it keeps, for example because the
controller has not caught up with the metadata here, is sent again after a pause of its own. Pauses double up to
RETRY_BACKOFF_MAX_NS, so that many partitions that wait for the same thing do not keep the controller busy.

The version is the highest that the controller serves (KIP-841). So a request has everything that any version needs: topic
ids and names, and the members with and without their epochs.

The controller may have recorded a change although we got no answer. It then answers the retry with INVALID_UPDATE_VERSION,
and the leader waits for the metadata instead of assuming that the change failed.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
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
from common.time_units import NS_PER_MS, NS_PER_S

# The pause before the first retry, and the longest one.
RETRY_BACKOFF_NS = 50 * NS_PER_MS
RETRY_BACKOFF_MAX_NS = NS_PER_S
REQUEST_TIMEOUT_NS = 30 * NS_PER_S
# A request of this size, and the results of its response, are each handled in a step of a few milliseconds.
PARTITIONS_PER_REQUEST_MAX = 1_000


class ControllerRequests(Protocol):
    """The channel to the active controller (`ControllerChannel`). `send` raises ControllerUnavailable."""

    async def send(self, request: Any, *, deadline_ns: int) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Item:
    proposal: IsrProposal
    on_result: Callable[[AlterPartitionResult], None]
    # How often the proposal was sent without settling it, and when it may be sent again.
    attempts: int = 0
    due_ns: int = 0


class AlterPartitionSender:
    """Collects proposals, and sends them from a single task (`run`)."""

    def __init__(
        self,
        env: Environment,
        controller: ControllerRequests,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        topic_name: Callable[[TopicId], str | None],
    ) -> None:
        self._env = env
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._topic_name = topic_name
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
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch = self._take_due()
            if not batch or await self._send(batch):
                failures = 0
                continue
            # Queue the proposals again. Those that arrived meanwhile are newer, so they replace the failed ones.
            self._queued = {**batch, **self._queued}
            await self._env.sleep_until(self._env.now_ns() + _pause_ns(failures))
            failures += 1
            self._wake.set()

    def _take_due(self) -> dict[TopicIdPartition, _Item]:
        now_ns = self._env.now_ns()
        due = ((partition, item) for partition, item in self._queued.items() if item.due_ns <= now_ns)
        batch = dict(islice(due, PARTITIONS_PER_REQUEST_MAX))
        for partition in batch:
            del self._queued[partition]
        if len(batch) == PARTITIONS_PER_REQUEST_MAX:
            self._wake.set()
        return batch

    async def _send(self, batch: Mapping[TopicIdPartition, _Item]) -> bool:
        epoch = self._broker_epoch()
        if epoch is None:
            return False
        names = {topic_id: self._topic_name(topic_id) or "" for topic_id, _ in batch}
        try:
            response: AlterPartitionResponse = await self._controller.send(
                _request(self._broker_id, epoch, batch, names), deadline_ns=self._env.now_ns() + REQUEST_TIMEOUT_NS
            )
        except ControllerUnavailable as error:
            self._env.log.warning("alter_partition_failed", reason=str(error), partitions=len(batch))
            return False
        if response.error_code != ErrorCode.NONE:
            self._env.log.warning("alter_partition_failed", reason=error_name(response.error_code), partitions=len(batch))
            return False
        results = _results(response, names)
        for partition, item in batch.items():
            result = results.get(partition)
            if result is not None:
                item.on_result(result)
            elif names[partition.topic_id]:
                # Without a name, the topic is deleted.
                self._queued.setdefault(partition, item)
            self._maybe_hold_back(partition, item)
        return True

    def _maybe_hold_back(self, partition: TopicIdPartition, item: _Item) -> None:
        """Delays the proposal if it is queued again."""
        again = self._queued.get(partition)
        if again is not None and again.proposal is item.proposal:
            due_ns = self._env.now_ns() + _pause_ns(item.attempts)
            self._queued[partition] = replace(again, attempts=item.attempts + 1, due_ns=due_ns)
            self._env.call_at(due_ns, self._wake.set)


def _pause_ns(attempts: int) -> int:
    return min(RETRY_BACKOFF_NS << min(attempts, 10), RETRY_BACKOFF_MAX_NS)


def _request(
    broker_id: BrokerId, epoch: BrokerEpoch, batch: Mapping[TopicIdPartition, _Item], names: Mapping[TopicId, str]
) -> AlterPartitionRequest:
    topics: dict[TopicId, RequestTopicData] = {}
    for (topic_id, index), item in batch.items():
        proposal = item.proposal
        topic = topics.setdefault(topic_id, RequestTopicData(topic_name=names[topic_id], topic_id=topic_id))
        topic.partitions.append(
            RequestPartitionData(
                partition_index=index,
                leader_epoch=proposal.leader_epoch,
                new_isr=list(proposal.isr),
                new_isr_with_epochs=[
                    BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch) for member in proposal.members
                ],
                # The first ISR change ends the recovery after an unclean election (KIP-704).
                leader_recovery_state=LeaderRecoveryState.RECOVERED,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, topics=list(topics.values()))


def _results(response: AlterPartitionResponse, names: Mapping[TopicId, str]) -> dict[TopicIdPartition, AlterPartitionResult]:
    """Returns the results by partition. A response below version 2 names the topics as the request did."""
    ids = {name: topic_id for topic_id, name in names.items()}
    results: dict[TopicIdPartition, AlterPartitionResult] = {}
    for topic in response.topics:
        topic_id = ids.get(topic.topic_name) if topic.topic_name else TopicId(topic.topic_id)
        if topic_id is None:
            continue
        for partition in topic.partitions:
            error = partition.error_code
            key = TopicIdPartition(topic_id, partition.partition_index)
            results[key] = AlterPartitionResult(
                error=ErrorCode(error) if is_known_error(error) else ErrorCode.UNKNOWN_SERVER_ERROR,
                leader=BrokerId(partition.leader_id),
                leader_epoch=LeaderEpoch(partition.leader_epoch),
                isr=tuple(BrokerId(member) for member in partition.isr),
                partition_epoch=PartitionEpoch(partition.partition_epoch),
                leader_recovery_state=partition.leader_recovery_state,
            )
    return results
