"""How AssignReplicasToDirs requests are sent: grouped, retried or dropped after an error, and never before the registration.

A wish is the directory that the broker wants the metadata to name for a replica.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.controller_link.assignments_sender import AssignmentsSender
from broker.core.directory_assignments import DirectoryAssignments
from broker.core.directory_reports import DirectoryReports
from common.ids import BrokerEpoch, BrokerId, DirectoryId, TopicId, TopicIdPartition, Uuid
from common.metadata.directory_ids import LOST
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from tests.simulation.environment import SimulatedWorld
from tests.unit.broker.fake_controller import ControllerSide

T = TopicId(Uuid(b"t" * 16))
U = TopicId(Uuid(b"u" * 16))
D1 = DirectoryId(Uuid(b"1" * 16))
D2 = DirectoryId(Uuid(b"2" * 16))


class Sender:
    """A sender, its queue, and a controller. The controller answers each partition with its error code in `codes`. It omits
    the partitions in `left_out` from the response."""

    def __init__(self, side: ControllerSide) -> None:
        self.side = side
        self.world = side.world
        self.epoch = 7
        self.codes: dict[TopicIdPartition, int] = {}
        self.left_out: list[TopicIdPartition] = []
        self.final: list[TopicIdPartition] = []
        self.queue = DirectoryAssignments(rng=random.Random(1), reports=DirectoryReports())
        self.sender = AssignmentsSender(
            side.env,
            self.queue,
            broker_id=BrokerId(1),
            broker_epoch=lambda: BrokerEpoch(self.epoch),
            channel=side.channel,
            task_group=side.group,
            on_final=self.final.append,
        )
        side.controller.answers[ApiKey.ASSIGN_REPLICAS_TO_DIRS] = self.answer

    def answer(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        response = AssignReplicasToDirsResponse()
        for directory in request.directories:
            topics = [
                ResponseTopicData(
                    topic_id=topic.topic_id,
                    partitions=[
                        ResponsePartitionData(
                            partition_index=each.partition_index,
                            error_code=self.codes.get(
                                TopicIdPartition(TopicId(topic.topic_id), each.partition_index), ErrorCode.NONE
                            ),
                        )
                        for each in topic.partitions
                        if TopicIdPartition(TopicId(topic.topic_id), each.partition_index) not in self.left_out
                    ],
                )
                for topic in directory.topics
            ]
            response.directories.append(ResponseDirectoryData(id=directory.id, topics=topics))
        return response

    @property
    def sent(self) -> list[dict[DirectoryId, dict[TopicId, list[int]]]]:
        """Returns each request so far, as directory -> topic -> partitions."""
        return [
            {
                DirectoryId(directory.id): {
                    TopicId(topic.topic_id): [each.partition_index for each in topic.partitions]
                    for topic in directory.topics
                }
                for directory in request.directories
            }
            for request in self.side.controller.requests
        ]

    async def until_empty(self) -> None:
        await self.world.until(lambda: self.queue.size == 0)


def run(scenario: Callable[[Sender], Coroutine[Any, Any, None]], *, start: bool = True) -> None:
    async def in_world(world: SimulatedWorld) -> None:
        async with ControllerSide(world, {ApiKey.ASSIGN_REPLICAS_TO_DIRS: lambda _: None}, start=start) as side:
            await scenario(Sender(side))

    SimulatedWorld(seed=1).run(in_world)


def test_assignments_are_grouped_by_directory_and_topic() -> None:
    """Wishes made within the batching delay are sent in one request, in the form that KIP-858 specifies."""

    async def scenario(sender: Sender) -> None:
        sender.sender.wish({TopicIdPartition(T, 0): D1, TopicIdPartition(U, 0): D1, TopicIdPartition(T, 1): D2})
        sender.sender.wish({TopicIdPartition(T, 2): D1, TopicIdPartition(T, 3): LOST})
        await sender.until_empty()
        assert sender.sent == [{D1: {T: [0, 2], U: [0]}, D2: {T: [1]}, LOST: {T: [3]}}]
        request = sender.side.controller.requests[0]
        assert (request.broker_id, request.broker_epoch) == (1, 7)
        acknowledged = sender.world.events_named("assignments_acknowledged")[0]
        assert acknowledged.fields == {"replicas": 5, "refused": 0}

    run(scenario)


def test_nothing_is_sent_before_the_registration() -> None:
    """The controller would refuse assignments without a broker epoch. After the registration, `arm` sends what is queued."""

    async def scenario(sender: Sender) -> None:
        sender.epoch = -1
        sender.sender.wish({TopicIdPartition(T, 0): D1})
        await sender.world.sleep(5)
        assert sender.sent == []
        sender.epoch = 9
        sender.sender.arm()
        await sender.until_empty()
        assert sender.side.controller.requests[0].broker_epoch == 9

    run(scenario)


def test_one_request_at_a_time() -> None:
    """Wishes made while a request is in flight are sent in the next request, with the newest directory of each replica."""

    async def scenario(sender: Sender) -> None:
        answer: asyncio.Future[AssignReplicasToDirsResponse] = asyncio.get_running_loop().create_future()
        sender.side.controller.answers[ApiKey.ASSIGN_REPLICAS_TO_DIRS] = lambda _: answer
        sender.sender.wish({TopicIdPartition(T, 0): D1})
        await sender.world.until(lambda: sender.sent)
        sender.sender.wish({TopicIdPartition(T, 0): D2, TopicIdPartition(T, 1): D2})
        await sender.world.sleep(1)
        assert len(sender.sent) == 1
        sender.side.controller.answers[ApiKey.ASSIGN_REPLICAS_TO_DIRS] = sender.answer
        answer.set_result(sender.answer(sender.side.controller.requests[0]))
        await sender.until_empty()
        assert sender.sent == [{D1: {T: [0]}}, {D2: {T: [0, 1]}}]

    run(scenario)


def test_a_deleted_topic_is_dropped_and_the_others_are_confirmed() -> None:
    """UNKNOWN_TOPIC_ID is permanent, so retries would never end (KAFKA-17190). NOT_LEADER_OR_FOLLOWER is not retried,
    either."""

    async def scenario(sender: Sender) -> None:
        sender.codes[TopicIdPartition(T, 0)] = ErrorCode.UNKNOWN_TOPIC_ID
        sender.codes[TopicIdPartition(T, 1)] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        sender.sender.wish({TopicIdPartition(T, 0): D1, TopicIdPartition(T, 1): D1, TopicIdPartition(U, 0): D1})
        await sender.until_empty()
        await sender.world.sleep(30)
        assert len(sender.sent) == 1

    run(scenario)


def test_a_refused_or_unanswered_partition_is_sent_again() -> None:
    """A partition refused with a temporary error, and one that the answer lacks, are both sent again without a new wish."""

    async def scenario(sender: Sender) -> None:
        sender.codes[TopicIdPartition(T, 0)] = ErrorCode.UNKNOWN_SERVER_ERROR
        sender.left_out = [TopicIdPartition(T, 1)]
        sender.sender.wish({TopicIdPartition(T, 0): D1, TopicIdPartition(T, 1): D1, TopicIdPartition(T, 2): D1})
        await sender.world.until(lambda: sender.sent)
        await sender.world.until(lambda: sender.queue.size == 2)
        assert sender.world.events_named("assignments_acknowledged")[0].fields == {"replicas": 1, "refused": 2}
        sender.codes.clear()
        sender.left_out.clear()
        await sender.until_empty()
        assert sender.sent[0] == {D1: {T: [0, 1, 2]}}
        assert sorted(index for request in sender.sent[1:] for index in request[D1][T]) == [0, 1]

    run(scenario)


def test_a_request_that_fails_as_a_whole_is_repeated_with_a_back_off() -> None:
    """The whole request is refused with STALE_BROKER_EPOCH. The assignment is not lost, and the broker does not retry in a
    tight loop."""

    async def scenario(sender: Sender) -> None:
        sender.side.controller.answers[ApiKey.ASSIGN_REPLICAS_TO_DIRS] = lambda _: AssignReplicasToDirsResponse(
            error_code=ErrorCode.STALE_BROKER_EPOCH
        )
        sender.sender.wish({TopicIdPartition(T, 0): D1})
        await sender.world.sleep(10)
        assert 5 <= len(sender.sent) <= 8
        assert sender.world.events_named("assignments_refused")[0].fields["error"] == "STALE_BROKER_EPOCH"
        sender.side.controller.answers[ApiKey.ASSIGN_REPLICAS_TO_DIRS] = sender.answer
        await sender.until_empty()

    run(scenario)


@pytest.mark.slow
def test_an_unreachable_controller_delays_and_loses_nothing() -> None:
    """The controller does not listen until a request has missed its deadline. Once it listens, the assignment arrives."""

    async def scenario(sender: Sender) -> None:
        sender.sender.wish({TopicIdPartition(T, 0): D1})
        await sender.world.event("assignments_not_sent", within_seconds=100)
        assert sender.queue.size == 1
        sender.side.controller.start(sender.side.group)
        await sender.until_empty()
        assert sender.sent == [{D1: {T: [0]}}]

    run(scenario, start=False)


def test_a_settled_replica_is_not_sent() -> None:
    """If the metadata names the wished directory before the batching delay is over, nothing is sent."""

    async def scenario(sender: Sender) -> None:
        sender.sender.wish({TopicIdPartition(T, 0): D1})
        sender.sender.settle([TopicIdPartition(T, 0)])
        await sender.world.sleep(2)
        assert sender.sent == []
        assert sender.queue.size == 0

    run(scenario)


def test_who_had_to_wait_for_an_answer_is_told() -> None:
    """The first report needs none (`DirectoryReports`), the second one does, because it names another directory."""

    async def scenario(sender: Sender) -> None:
        for directory_id in (D1, D2):
            assert sender.final == []
            sender.sender.wish({TopicIdPartition(T, 0): directory_id, TopicIdPartition(T, 1): D1})
            await sender.until_empty()
        assert sender.final == [TopicIdPartition(T, 0)]

    run(scenario)


def test_many_replicas_leave_in_requests_of_bounded_size() -> None:
    """When a broker with five thousand replicas starts, three requests of at most 2,250 partitions go out one after the
    other."""

    async def scenario(sender: Sender) -> None:
        sender.sender.wish({TopicIdPartition(T, index): D1 for index in range(5000)})
        await sender.until_empty()
        assert [len(request[D1][T]) for request in sender.sent] == [2250, 2250, 500]

    run(scenario)


def test_nothing_is_sent_once_the_broker_ends() -> None:
    """After `stop`, neither a queued wish nor a new one starts a task, because the task group has ended."""

    async def scenario(sender: Sender) -> None:
        sender.sender.wish({TopicIdPartition(T, 0): D1})
        sender.sender.stop()
        sender.sender.wish({TopicIdPartition(T, 1): D1})
        await sender.world.sleep(5)
        assert sender.sent == []

    run(scenario)
