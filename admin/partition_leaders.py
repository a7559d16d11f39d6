"""Asks the leaders of partitions (shell).

Counterpart of Kafka's PartitionLeaderStrategy. If a leader does not answer, or leads a partition no longer, or there is
none, the result of the partition stays pending: the new leader is found and asked, again and again until the timeout.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from admin import topics
from admin.errors import AdminError, AttemptFailed, TimedOut, failure
from admin.partitions import TopicPartition
from admin.request_sender import RequestSender
from admin.results import Results, grouped
from common.environment.interface import Environment
from common.protocol.errors import ErrorCode
from common.protocol.schema import Struct
from common.time_units import NS_PER_MS

# Sends a request to the leader of these partitions, once.
SendToLeader = Callable[[str, Struct], Coroutine[Any, Any, Any]]
# Asks the leader of these partitions. The results of partitions that it does not lead stay pending.
AskLeader = Callable[[list[TopicPartition], SendToLeader], Coroutine[Any, Any, None]]
DescribeTopics = Callable[[Iterable[str], int], Results[str, topics.TopicDescription]]


class PartitionLeaders:
    """The leaders, as `describe_topics` finds them within a timeout in ms."""

    def __init__(self, env: Environment, sender: RequestSender, describe_topics: DescribeTopics) -> None:
        self._env = env
        self._sender = sender
        self._describe_topics = describe_topics

    async def ask(
        self,
        results: Results[TopicPartition, Any],
        leader_of: Mapping[TopicPartition, int | None],
        ask_one: AskLeader,
        timeout_ms: int,
    ) -> None:
        """Asks the leaders about their partitions. Completes or fails the result of each partition."""
        deadline_ns = self._env.now_ns() + timeout_ms * NS_PER_MS
        for round_number in itertools.count():
            async with asyncio.TaskGroup() as group:
                for leader, asked in grouped(leader_of, leader_of.__getitem__).items():
                    if leader is not None:
                        group.create_task(self._ask_one(results, leader, asked, ask_one, deadline_ns))
            moved = results.pending(leader_of)
            if not moved:
                return
            await self._sender.pause(round_number)
            left_ms = (deadline_ns - self._env.now_ns()) // NS_PER_MS
            if left_ms <= 0:
                for partition in moved:
                    results.fail([partition], TimedOut(f"Timed out waiting for the leader of {partition}"))
                return
            leader_of = await self.find(results, moved, left_ms)

    async def _ask_one(
        self,
        results: Results[TopicPartition, Any],
        leader: int,
        asked: list[TopicPartition],
        ask_one: AskLeader,
        deadline_ns: int,
    ) -> None:
        async def send(name: str, request: Struct) -> Any:
            return await self._sender.send(request, leader, name=name, deadline_ns=deadline_ns, is_single_attempt=True)

        try:
            await ask_one(asked, send)
        except AttemptFailed:
            # The results stay pending.
            return
        except AdminError as error:
            results.fail(asked, error)

    async def find(
        self, results: Results[TopicPartition, Any], partitions: list[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, int | None]:
        """Returns the leader of each partition, None if there is none now. Fails the results of those that do not exist."""
        described = self._describe_topics({partition.topic for partition in partitions}, timeout_ms)
        found: list[topics.TopicDescription] = []
        for name, asked in grouped(partitions, lambda each: each.topic).items():
            try:
                found.append(await described[name])
            except AdminError as error:
                results.fail(asked, error)
        known = topics.leaders_of(found)
        leader_of: dict[TopicPartition, int | None] = {}
        for partition in results.pending(partitions):
            if partition in known:
                leader_of[partition] = known[partition]
            else:
                results.fail([partition], failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return leader_of
