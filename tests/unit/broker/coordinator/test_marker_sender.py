"""MarkerSender: which broker gets which markers, what is repeated, and when a transaction is complete.

The brokers are functions that answer a request; the owner of the transactions only notes what is complete.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from broker.coordinator.broker_channels import BrokerChannels
from broker.coordinator.core.result import MarkersDue
from broker.coordinator.marker_sender import MarkerSender, Owner
from common.ids import NO_LEADER, BrokerId, TopicIdPartition
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.state import MetadataState
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from common.records.metadata_records import BrokerEndpoint, PartitionChangeRecord
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.metadata.builders import partition, register, replay, topic, topic_id

STATE_PARTITION = TopicIdPartition(topic_id(9), 0)
DUE = MarkersDue("x", 1000, 3, is_commit=True, partitions=frozenset([("t", 0), ("t", 1)]))
EPOCH = 5


class FakePartition:
    key = STATE_PARTITION


class FakeOwner:
    """Stands in for the CoordinatorPartition of `__transaction_state`."""

    partition = FakePartition()
    leader_epoch = EPOCH

    def __init__(self) -> None:
        self.completed = 0

    def perform_unasked(self, _operation: object) -> None:
        self.completed += 1


def image(*, second_leader: int = 2) -> MetadataState:
    """Broker 1, which is this one, leads t-0; `second_leader` leads t-1."""
    brokers = [
        replace(register(each), end_points=[BrokerEndpoint(name="PLAINTEXT", host=f"host-{each}", port=9092)])
        for each in (1, 2)
    ]
    parts = [
        partition(1, index, [1, 2], directories=[UNASSIGNED] * 2, leader=leader)
        for index, leader in ((0, 1), (1, second_leader))
    ]
    return replay(*brokers, topic(1, "t"), *parts)


class Brokers:
    """Answers the requests to every broker from one script per broker; then with success."""

    def __init__(self, world: SimulatedWorld, **scripts: list[ErrorCode | Exception]) -> None:
        self._world = world
        self._scripts = scripts
        # Broker, epoch of the coordinator, and the partitions of each request.
        self.asked: list[tuple[str, int, list[int]]] = []

    async def answer(self, broker: str, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        await self._world.sleep(0.01)
        [marker] = request.markers
        [of_topic] = marker.topics
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (1000, 3, True)
        self.asked.append((broker, marker.coordinator_epoch, of_topic.partition_indexes))
        script = self._scripts.get(broker, [])
        result = script.pop(0) if script else ErrorCode.NONE
        if isinstance(result, Exception):
            raise result
        results = [
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=result)
            for index in of_topic.partition_indexes
        ]
        topics = [WritableTxnMarkerTopicResult(name=of_topic.name, partitions=results)]
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=1000, topics=topics)])


class FakeChannel:
    def __init__(self, brokers: Brokers, host: str) -> None:
        self._brokers = brokers
        self._host = host

    async def send(self, request: Any, *, version: int | None = None, deadline_ns: int) -> Any:
        return await self._brokers.answer(self._host, request)

    def close(self) -> None:
        pass


def run(
    script: Callable[[SimulatedWorld, MarkerSender, FakeOwner], Any],
    state: MetadataState,
    **scripts: list[ErrorCode | Exception],
) -> tuple[Brokers, FakeOwner]:
    """Runs `script` and returns what the brokers were asked, and the owner."""
    made: list[Any] = []

    async def scenario(world: SimulatedWorld) -> None:
        brokers, owner = Brokers(world, **scripts), FakeOwner()
        made.extend([brokers, owner])
        async with asyncio.TaskGroup() as group:
            sender = MarkerSender(
                world.node("broker-1"),
                state,
                broker_id=BrokerId(1),
                channels=BrokerChannels(
                    state, listener_name="PLAINTEXT", connect=lambda host, _port: FakeChannel(brokers, host)
                ),
                write_here=lambda request: brokers.answer("here", request),
                task_group=group,
            )
            await script(world, sender, owner)
            sender.close()

    SimulatedWorld(1).run(scenario)
    return made[0], made[1]


async def send_and_wait(world: SimulatedWorld, sender: MarkerSender, owner: FakeOwner) -> None:
    sender.send(cast(Owner, owner), DUE)
    await world.sleep(1)


def test_every_leader_gets_its_markers() -> None:
    """This broker's own without a connection. The epoch of the coordinator is that of the state's partition."""
    brokers, owner = run(send_and_wait, image())
    assert sorted(brokers.asked) == [("here", EPOCH, [0]), ("host-2", EPOCH, [1])]
    assert owner.completed == 1


def test_what_may_pass_is_repeated_until_it_has() -> None:
    scripts: list[ErrorCode | Exception] = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ChannelError("lost"),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]
    brokers, owner = run(send_and_wait, image(), **{"host-2": scripts})
    assert [each for each in brokers.asked if each[0] == "host-2"] == 5 * [("host-2", EPOCH, [1])]
    assert owner.completed == 1


def test_a_broker_that_does_not_answer_for_long_is_logged_once() -> None:
    """Not with each attempt. After an answer, the next failure is logged again."""

    async def send_twice(world: SimulatedWorld, sender: MarkerSender, owner: FakeOwner) -> None:
        for reasons in (["refused", "lost"], ["refused", "lost", "lost"]):
            await send_and_wait(world, sender, owner)
            logged = world.events_named("transaction_markers_not_sent")
            assert [event.fields["reason"] for event in logged] == reasons

    scripts: list[ErrorCode | Exception] = [
        *3 * [ChannelError("refused")],
        *2 * [ChannelError("lost")],
        ErrorCode.NONE,
        ChannelError("lost"),
    ]
    _, owner = run(send_twice, image(), **{"host-2": scripts})
    assert owner.completed == 2


def test_an_error_of_a_later_release_is_repeated() -> None:
    unknown: list[ErrorCode | Exception] = [cast(ErrorCode, 999)]
    brokers, owner = run(send_and_wait, image(), **{"host-2": unknown})
    assert [each for each in brokers.asked if each[0] == "host-2"] == 2 * [("host-2", EPOCH, [1])]
    assert owner.completed == 1


def test_a_fenced_coordinator_sends_no_more_and_completes_nothing() -> None:
    fenced: list[ErrorCode | Exception] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    brokers, owner = run(send_and_wait, image(), **{"host-2": fenced})
    assert len(brokers.asked) == 2
    assert owner.completed == 0


def test_a_partition_without_a_leader_waits_for_one() -> None:
    state = image(second_leader=NO_LEADER)

    async def elect(world: SimulatedWorld, sender: MarkerSender, owner: FakeOwner) -> None:
        await send_and_wait(world, sender, owner)
        assert (owner.completed, len(sender), sender.retries) == (0, 1, 1)
        assert sender.oldest_age_ns == NS_PER_S
        replay(PartitionChangeRecord(partition_id=1, topic_id=topic_id(1), leader=2), into=state)
        await world.sleep(1)
        assert sender.oldest_age_ns == 0

    brokers, owner = run(elect, state)
    assert brokers.asked == [("here", EPOCH, [0]), ("host-2", EPOCH, [1])]
    assert owner.completed == 1


def test_a_deleted_partition_needs_no_marker() -> None:
    brokers, owner = run(send_and_wait, replay(register(1)))
    assert (brokers.asked, owner.completed) == ([], 1)


def test_a_dropped_transaction_is_sent_no_more() -> None:
    """Its partition of the state has another leader now."""

    async def drop(world: SimulatedWorld, sender: MarkerSender, owner: FakeOwner) -> None:
        sender.send(cast(Owner, owner), DUE)
        sender.drop(cast(Owner, owner))
        await world.sleep(1)
        assert len(sender) == 0

    brokers, owner = run(drop, image(second_leader=NO_LEADER))
    assert (brokers.asked, owner.completed) == ([], 0)


def test_a_transaction_that_is_loaded_again_is_not_sent_side_by_side() -> None:
    """The request under way goes on; a second one might end the next transaction."""

    async def load_again(world: SimulatedWorld, sender: MarkerSender, owner: FakeOwner) -> None:
        sender.send(cast(Owner, owner), DUE)
        await world.sleep(0.005)
        await send_and_wait(world, sender, owner)

    brokers, owner = run(load_again, image())
    assert len(brokers.asked) == 2
    assert owner.completed == 1
