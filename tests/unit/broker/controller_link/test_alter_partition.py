"""AlterPartitionSender: batches of ISR changes, retries, and which proposal gets which answer."""

import asyncio
from collections.abc import Callable
from typing import Any

from broker.controller_link.alter_partition import PARTITIONS_PER_REQUEST_MAX, AlterPartitionSender
from broker.controller_link.controller_channel import ControllerUnavailable
from broker.core.partition_replica import AlterPartitionResult, IsrMember, IsrProposal
from common.ids import ZERO_UUID, BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId, TopicIdPartition, Uuid
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from tests.simulation.environment import SimulatedWorld

TOPIC = TopicId(Uuid(b"T" * 16))
Answer = Callable[[AlterPartitionRequest], AlterPartitionResponse]


def proposal(*isr: int, partition_epoch: int = 3) -> IsrProposal:
    return IsrProposal(
        tuple(IsrMember(BrokerId(member), BrokerEpoch(100 + member)) for member in isr),
        LeaderEpoch(2),
        PartitionEpoch(partition_epoch),
    )


def accept(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=[
            ResponseTopicData(
                topic_id=topic.topic_id,
                partitions=[
                    ResponsePartitionData(
                        partition_index=each.partition_index,
                        leader_id=1,
                        leader_epoch=each.leader_epoch,
                        isr=[member.broker_id for member in each.new_isr_with_epochs],
                        partition_epoch=each.partition_epoch + 1,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class ScriptedController:
    """A controller that answers requests with the entries of `script`, one entry for each request, and accepts all later
    requests."""

    def __init__(self, world: SimulatedWorld, *script: Answer | Exception) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.sent_at_ns: list[int] = []
        self._world = world
        self._script = list(script)

    async def send(self, request: Any, *, deadline_ns: int) -> Any:
        self.requests.append(request)
        self.sent_at_ns.append(self._world.now_ns())
        await self._world.sleep(0.01)
        answer = self._script.pop(0) if self._script else accept
        if isinstance(answer, Exception):
            raise answer
        return answer(request)


def run(script: Callable[..., Any], *answers: Answer | Exception) -> None:
    """Runs `await script(world, controller, sender)` while the sender runs."""

    async def scenario(world: SimulatedWorld) -> None:
        controller = ScriptedController(world, *answers)
        sender = AlterPartitionSender(
            world.node("broker-1"),
            controller,
            broker_id=BrokerId(1),
            broker_epoch=lambda: BrokerEpoch(7),
            topic_name={TOPIC: "t"}.get,
        )
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(sender.run())
            await script(world, controller, sender)
            sending.cancel()

    SimulatedWorld(1).run(scenario)


def test_a_request_carries_epochs_and_everything_that_waits() -> None:
    """Proposals made in one step of the event loop are sent in one request, with the epochs of the sending broker, the
    leader, the partition and the ISR members."""

    async def script(world: SimulatedWorld, controller: ScriptedController, sender: AlterPartitionSender) -> None:
        results: list[AlterPartitionResult] = []
        sender.submit(TopicIdPartition(TOPIC, 0), proposal(1, 2), results.append)
        sender.submit(TopicIdPartition(TOPIC, 1), proposal(1, 3), results.append)
        await world.until(lambda: len(results) == 2)
        [request] = controller.requests
        assert (request.broker_id, request.broker_epoch) == (1, 7)
        [topic] = request.topics
        assert (topic.topic_id, topic.topic_name) == (TOPIC, "t")
        assert [each.partition_index for each in topic.partitions] == [0, 1]
        first = topic.partitions[0]
        assert (first.leader_epoch, first.partition_epoch) == (2, 3)
        assert [(each.broker_id, each.broker_epoch) for each in first.new_isr_with_epochs] == [(1, 101), (2, 102)]
        assert first.new_isr == [1, 2]
        assert results[0] == AlterPartitionResult(
            error=ErrorCode.NONE,
            leader=BrokerId(1),
            leader_epoch=LeaderEpoch(2),
            isr=(BrokerId(1), BrokerId(2)),
            partition_epoch=PartitionEpoch(4),
        )

    run(script)


def test_thousands_of_proposals_are_sent_in_several_requests() -> None:
    """No request is so large that the event loop would stand still while it is built or answered. The others follow without
    a new proposal, also after a request that failed."""

    async def script(world: SimulatedWorld, controller: ScriptedController, sender: AlterPartitionSender) -> None:
        results: list[AlterPartitionResult] = []
        count = 2 * PARTITIONS_PER_REQUEST_MAX + 1
        for index in range(count):
            sender.submit(TopicIdPartition(TOPIC, index), proposal(1, 2), results.append)
        await world.until(lambda: len(results) == count)
        sizes = [len(request.topics[0].partitions) for request in controller.requests]
        assert sizes == [PARTITIONS_PER_REQUEST_MAX] * 3 + [1]

    run(script, ControllerUnavailable("gone"))


def test_failures_of_the_whole_request_are_repeated() -> None:
    """The first attempt gets no answer, and the second gets an error for the whole request. Only the answer to the third
    attempt is reported to the partition."""

    def stale(request: AlterPartitionRequest) -> AlterPartitionResponse:
        return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)

    async def script(world: SimulatedWorld, controller: ScriptedController, sender: AlterPartitionSender) -> None:
        results: list[AlterPartitionResult] = []
        sender.submit(TopicIdPartition(TOPIC, 0), proposal(1, 2), results.append)
        await world.until(lambda: results)
        assert [result.error for result in results] == [ErrorCode.NONE]
        assert len(controller.requests) == 3
        assert world.now_ns() >= 100_000_000

    run(script, ControllerUnavailable("gone"), stale)


def test_a_newer_proposal_takes_the_place_of_one_that_must_be_repeated() -> None:
    """The leader makes a new proposal while the first attempt is in flight. The attempt fails, and only the new proposal is
    sent."""

    async def script(world: SimulatedWorld, controller: ScriptedController, sender: AlterPartitionSender) -> None:
        old: list[AlterPartitionResult] = []
        new: list[AlterPartitionResult] = []
        sender.submit(TopicIdPartition(TOPIC, 0), proposal(1, 2), old.append)
        await world.sleep(0.005)
        sender.submit(TopicIdPartition(TOPIC, 0), proposal(1, partition_epoch=4), new.append)
        await world.until(lambda: new)
        assert old == []
        assert [each.partition_epoch for each in controller.requests[1].topics[0].partitions] == [4]

    run(script, ControllerUnavailable("gone"))


def test_a_partition_that_the_answer_lacks_is_asked_again() -> None:
    """If the answer has no entry for a partition, the partition is sent again."""

    async def script(world: SimulatedWorld, controller: ScriptedController, sender: AlterPartitionSender) -> None:
        results: list[AlterPartitionResult] = []
        sender.submit(TopicIdPartition(TOPIC, 0), proposal(1, 2), results.append)
        await world.until(lambda: results)
        assert len(controller.requests) == 2

    run(script, lambda _: AlterPartitionResponse())


def test_an_unknown_error_code_counts_as_an_unknown_server_error() -> None:
    """A controller of a later version may use error codes that this version does not know."""

    def strange(request: AlterPartitionRequest) -> AlterPartitionResponse:
        response = accept(request)
        response.topics[0].partitions[0].error_code = 9999
        return response

    async def script(world: SimulatedWorld, controller: ScriptedController, sender: AlterPartitionSender) -> None:
        results: list[AlterPartitionResult] = []
        sender.submit(TopicIdPartition(TOPIC, 0), proposal(1, 2), results.append)
        await world.until(lambda: results)
        assert [result.error for result in results] == [ErrorCode.UNKNOWN_SERVER_ERROR]

    run(script, strange)


def not_controller(request: AlterPartitionRequest) -> AlterPartitionResponse:
    """A controller that has not caught up with what the leader of partition 0 knows."""
    response = accept(request)
    for each in response.topics[0].partitions:
        if each.partition_index == 0:
            each.error_code = ErrorCode.NOT_CONTROLLER
    return response


def test_a_proposal_that_is_kept_is_sent_again_after_longer_and_longer_pauses() -> None:
    """The controller refuses partition 0 time after time, and the partition's core proposes the same again. The pauses
    double up to the bound. Other partitions are not held up."""

    async def script(world: SimulatedWorld, controller: ScriptedController, sender: AlterPartitionSender) -> None:
        kept = proposal(1, 2)
        accepted: list[AlterPartitionResult] = []
        others: list[AlterPartitionResult] = []

        def answered(result: AlterPartitionResult) -> None:
            if result.error is ErrorCode.NONE:
                accepted.append(result)
            else:
                sender.submit(TopicIdPartition(TOPIC, 0), kept, answered)

        sender.submit(TopicIdPartition(TOPIC, 0), kept, answered)
        await world.until(lambda: len(controller.requests) == 8)
        gaps = [
            (after - before) // 10_000_000
            for before, after in zip(controller.sent_at_ns, controller.sent_at_ns[1:], strict=False)
        ]
        assert gaps == [6, 11, 21, 41, 81, 101, 101]
        await world.sleep(0.1)
        sender.submit(TopicIdPartition(TOPIC, 1), proposal(1, 2), others.append)
        await world.sleep(0.05)
        assert len(others) == 1
        await world.until(lambda: accepted)
        assert len(controller.requests) == 10

    run(script, *[not_controller] * 9)


def test_an_unreachable_controller_is_tried_less_and_less_often() -> None:
    """The pause of the whole sender doubles too, and begins anew after an answer."""

    async def script(world: SimulatedWorld, controller: ScriptedController, sender: AlterPartitionSender) -> None:
        results: list[AlterPartitionResult] = []
        sender.submit(TopicIdPartition(TOPIC, 0), proposal(1, 2), results.append)
        await world.until(lambda: results)
        sender.submit(TopicIdPartition(TOPIC, 0), proposal(1, 2), results.append)
        await world.until(lambda: len(results) == 2)
        gaps = [
            (after - before) // 10_000_000
            for before, after in zip(controller.sent_at_ns, controller.sent_at_ns[1:], strict=False)
        ]
        assert gaps[:6] == [6, 11, 21, 41, 81, 101]
        assert gaps[-1] == 6

    gone = ControllerUnavailable("gone")
    run(script, *[gone] * 6, accept, gone)


def test_an_older_controller_answers_by_name() -> None:
    """Below version 2 the response has the topic's name and no id. A topic that has been deleted since has no name, and
    nobody waits for its answer any more."""

    def by_name(request: AlterPartitionRequest) -> AlterPartitionResponse:
        response = accept(request)
        for topic, asked in zip(response.topics, request.topics, strict=True):
            topic.topic_name, topic.topic_id = asked.topic_name, ZERO_UUID
            if not asked.topic_name:
                topic.partitions[0].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return response

    async def script(world: SimulatedWorld, controller: ScriptedController, sender: AlterPartitionSender) -> None:
        results: list[AlterPartitionResult] = []
        deleted: list[AlterPartitionResult] = []
        sender.submit(TopicIdPartition(TOPIC, 0), proposal(1, 2), results.append)
        sender.submit(TopicIdPartition(TopicId(Uuid(b"D" * 16)), 0), proposal(1, 2), deleted.append)
        await world.sleep(1)
        assert [result.error for result in results] == [ErrorCode.NONE]
        assert deleted == []
        assert len(controller.requests) == 1

    run(script, by_name)
