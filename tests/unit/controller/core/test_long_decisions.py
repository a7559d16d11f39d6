"""Operations on thousands of topics or resources are decided in slices, with the same result as at once.

Each test counts what was decided between two yields: never more than a slice, whatever the request is made of.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from common.ids import TopicId
from common.protocol.errors import ErrorCode
from common.protocol.messages import alter_configs as legacy
from common.protocol.messages import alter_partition as alter
from common.protocol.messages import alter_partition_reassignments as reassign
from common.protocol.messages import assign_replicas_to_dirs as assign
from common.protocol.messages import incremental_alter_configs as incremental
from common.protocol.messages import list_partition_reassignments as ongoing
from common.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from common.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from common.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from common.protocol.messages.elect_leaders import ElectionType, ElectLeadersRequest, TopicPartitions
from common.slices import at_once
from controller.core import long_decisions
from controller.core.alter_configs import handle_alter_configs, handle_incremental_alter_configs
from controller.core.alter_partition import handle_alter_partition
from controller.core.alter_partition_reassignments import alter_partition_reassignments
from controller.core.assign_replicas_to_dirs import handle_assign_replicas_to_dirs
from controller.core.create_partitions import create_partitions
from controller.core.describe_configs import handle_describe_configs
from controller.core.elect_leaders import elect_leaders
from controller.core.list_partition_reassignments import list_partition_reassignments
from controller.core.long_decisions import PARTITIONS_PER_SLICE, RESOURCE_COST, Sliced, SliceMeter, slices_of
from controller.core.result import ControllerResult
from controller.core.topics import create_topics, delete_topics
from controller.core.turn import Turn
from tests.counted import counted
from tests.unit.controller.core.context import ControllerContext, directory

TOPICS = 200
TOPIC = 2
NAMES = [f"t{number}" for number in range(TOPICS)]


def cluster() -> ControllerContext:
    """Returns a controller with a broker and TOPICS topics."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    request = CreateTopicsRequest(topics=[topic(name) for name in NAMES])
    response = controller.create_request(request)
    assert {each.error_code for each in response.topics} == {ErrorCode.NONE}
    return controller


def topic(name: str, partitions: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)


def decided_in_slices(sliced: Sliced[Any]) -> tuple[Any, int]:
    """Returns the result and the number of slices."""
    result, yields = counted(sliced)
    return result, yields + 1


Operation = Callable[[Turn, Any], Sliced[ControllerResult[Any]]]
OPERATIONS: dict[str, tuple[Operation, Any, int]] = {
    # The operation, a request about TOPICS topics, and the least number of slices.
    "create topics": (
        create_topics,
        CreateTopicsRequest(topics=[topic(f"new-{number}") for number in range(TOPICS)]),
        TOPICS * (RESOURCE_COST + 1) // PARTITIONS_PER_SLICE,
    ),
    "create partitions of a topic": (
        create_topics,
        CreateTopicsRequest(topics=[topic("new", 4 * PARTITIONS_PER_SLICE)]),
        4,
    ),
    "describe": (
        handle_describe_configs,
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in NAMES]
        ),
        TOPICS * RESOURCE_COST // PARTITIONS_PER_SLICE,
    ),
    "alter": (
        handle_incremental_alter_configs,
        incremental.IncrementalAlterConfigsRequest(
            resources=[
                incremental.AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name=name,
                    configs=[incremental.AlterableConfig(name="retention.ms", value="1")],
                )
                for name in NAMES
            ]
        ),
        TOPICS * RESOURCE_COST // PARTITIONS_PER_SLICE,
    ),
    "replace": (
        handle_alter_configs,
        legacy.AlterConfigsRequest(
            resources=[
                legacy.AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name=name,
                    configs=[legacy.AlterableConfig(name="retention.ms", value="1")],
                )
                for name in NAMES
            ]
        ),
        TOPICS * RESOURCE_COST // PARTITIONS_PER_SLICE,
    ),
    # Nearly all of these partitions do not exist. They are judged in slices as well.
    "elect leaders": (
        elect_leaders,
        ElectLeadersRequest(
            election_type=ElectionType.PREFERRED,
            topic_partitions=[TopicPartitions(topic=name, partitions=list(range(20))) for name in NAMES],
        ),
        TOPICS * 20 // PARTITIONS_PER_SLICE,
    ),
    "elect leaders of topics without partitions": (
        elect_leaders,
        ElectLeadersRequest(
            election_type=ElectionType.PREFERRED,
            topic_partitions=[TopicPartitions(topic=f"new-{number}") for number in range(4 * PARTITIONS_PER_SLICE)],
        ),
        4,
    ),
    "reassign topics without partitions": (
        alter_partition_reassignments,
        reassign.AlterPartitionReassignmentsRequest(
            topics=[reassign.ReassignableTopic(name=f"new-{number}") for number in range(4 * PARTITIONS_PER_SLICE)]
        ),
        4,
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_decided_in_slices_with_the_same_result(name: str) -> None:
    """The same request is decided with slices and in a single one, on equal controllers."""
    operation, request, slices_min = OPERATIONS[name]
    result, count = decided_in_slices(operation(cluster().turn(), request))
    assert count >= slices_min
    with patch.object(long_decisions, "PARTITIONS_PER_SLICE", 10**9):
        same, once = decided_in_slices(operation(cluster().turn(), request))
    assert once == 1
    assert (result.records, result.response, result.is_atomic) == (same.records, same.response, same.is_atomic)


# So that a few partitions make many slices.
SHORT_SLICE = 10
PARTITIONS = 6 * SHORT_SLICE


def large_topic() -> tuple[ControllerContext, TopicId]:
    """Returns a controller with a topic of PARTITIONS partitions, which broker 1 leads."""
    controller = ControllerContext()
    for broker_id in (1, 2):
        controller.start(broker_id, [f"{broker_id}a", f"{broker_id}b"])
    return controller, controller.topic("t", [[1, 2]] * PARTITIONS)


def assignment_request(controller: ControllerContext, topic_id: TopicId) -> Any:
    partitions = [assign.RequestPartitionData(partition_index=index) for index in range(PARTITIONS)]
    topics = [assign.RequestTopicData(topic_id=topic_id, partitions=partitions)]
    return assign.AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=controller.epoch(1),
        directories=[assign.RequestDirectoryData(id=directory("1b"), topics=topics)],
    )


def isr_request(controller: ControllerContext, topic_id: TopicId) -> Any:
    partitions = [
        alter.RequestPartitionData(partition_index=index, new_isr_with_epochs=[alter.BrokerState(broker_id=1)])
        for index in range(PARTITIONS)
    ]
    topics = [alter.RequestTopicData(topic_id=topic_id, partitions=partitions)]
    return alter.AlterPartitionRequest(broker_id=1, broker_epoch=controller.epoch(1), topics=topics)


def reassignment_request(_controller: ControllerContext, _topic_id: TopicId) -> Any:
    partitions = [reassign.ReassignablePartition(partition_index=index, replicas=[2, 1]) for index in range(PARTITIONS)]
    topics = [reassign.ReassignableTopic(name="t", partitions=partitions)]
    return reassign.AlterPartitionReassignmentsRequest(topics=topics)


def growth_request(_controller: ControllerContext, _topic_id: TopicId) -> Any:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2 * PARTITIONS, assignments=None)])


def growth_by_hand_request(_controller: ControllerContext, _topic_id: TopicId) -> Any:
    replicas = [CreatePartitionsAssignment(broker_ids=[2, 1])] * PARTITIONS
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2 * PARTITIONS, assignments=replicas)])


@pytest.mark.parametrize(
    ("operation", "request_for", "passes"),
    [
        (handle_assign_replicas_to_dirs, assignment_request, 2),
        (handle_alter_partition, isr_request, 1),
        (alter_partition_reassignments, reassignment_request, 1),
        (create_partitions, growth_request, 1),
        (create_partitions, growth_by_hand_request, 2),
    ],
)
def test_the_partitions_of_a_request_are_decided_in_slices(
    operation: Operation, request_for: Callable[[ControllerContext, TopicId], Any], passes: int
) -> None:
    """So that a request about 10,000 partitions does not hold up the heartbeats. `passes` counts how often an operation
    looks at each of them."""
    controller, topic_id = large_topic()
    with patch.object(long_decisions, "PARTITIONS_PER_SLICE", SHORT_SLICE):
        result, count = decided_in_slices(operation(controller.turn(), request_for(controller, topic_id)))
    assert count > passes * PARTITIONS // SHORT_SLICE
    assert len(result.records) == PARTITIONS
    controller, topic_id = large_topic()
    same, once = decided_in_slices(operation(controller.turn(), request_for(controller, topic_id)))
    assert once == 1
    assert (result.records, result.response, result.is_atomic) == (same.records, same.response, same.is_atomic)


@pytest.mark.parametrize("names", [True, False])
def test_reassignments_are_listed_in_slices(*, names: bool) -> None:
    """Whether the request names them, or asks for all. Others are named as well, and most of the topics do not exist."""
    controller, topic_id = large_topic()
    for broker_id in (3, 4):
        controller.start(broker_id, [f"{broker_id}a"])
    moves = reassignment_request(controller, topic_id)
    for partition in moves.topics[0].partitions[: PARTITIONS // 2]:
        partition.replicas = [3, 4]
    controller.apply(at_once(alter_partition_reassignments(controller.turn(), moves)))
    topics = [ongoing.ListPartitionReassignmentsTopics(name="t", partition_indexes=list(range(2 * PARTITIONS)))]
    topics += [ongoing.ListPartitionReassignmentsTopics(name=f"u{number}") for number in range(PARTITIONS)]
    request = ongoing.ListPartitionReassignmentsRequest(topics=topics if names else None)
    with patch.object(long_decisions, "PARTITIONS_PER_SLICE", SHORT_SLICE):
        result, count = decided_in_slices(list_partition_reassignments(controller.turn(), request))
    # To look up what is named, and to look at it.
    assert count > (4 * PARTITIONS if names else PARTITIONS) // SHORT_SLICE
    same, once = decided_in_slices(list_partition_reassignments(controller.turn(), request))
    assert once == 1
    assert result == same
    [listed] = result.response.topics
    assert [each.partition_index for each in listed.partitions] == list(range(PARTITIONS // 2))


def test_topics_are_deleted_in_slices() -> None:
    """Nine entries in ten name no topic: these are judged in slices as well."""
    unknown = [DeleteTopicState(name=f"unknown-{number}") for number in range(10 * PARTITIONS_PER_SLICE)]
    request = DeleteTopicsRequest(topics=[*(DeleteTopicState(name=name) for name in NAMES), *unknown])
    controller = cluster()
    result, count = decided_in_slices(delete_topics(controller.turn(), request))
    assert count > 10
    assert len(result.records) == TOPICS
    controller.apply(result)
    assert not controller.state.topics


def test_a_topic_that_sets_nothing_shares_the_description_of_the_others() -> None:
    """The result of a topic lists its whole configuration, so thousands of topics would take seconds and gigabytes. Only the
    keys that a topic sets are described for it alone."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    first, second, third = topic("first"), topic("second"), topic("third")
    third.configs = [CreatableTopicConfig(name="retention.ms", value="1")]
    result = at_once(create_topics(controller.turn(), CreateTopicsRequest(topics=[first, second, third])))
    described = [each.configs or [] for each in result.response.topics]
    assert described[0] is described[1]
    different = [
        (mine.name, mine.value, mine.config_source)
        for mine, shared in zip(described[2], described[0], strict=True)
        if mine is not shared
    ]
    assert different == [("retention.ms", "1", 1)]


def test_a_slice_ends_when_its_work_is_done() -> None:
    """Work of different cost is added up, and what is left over does not count for the next slice."""
    meter = SliceMeter()
    assert not meter.ends_slice(PARTITIONS_PER_SLICE - 1)
    assert meter.ends_slice(2)
    assert not meter.ends_slice(PARTITIONS_PER_SLICE - 1)
    assert meter.ends_slice(1)


def test_work_by_items_becomes_slices_of_their_cost() -> None:
    def work() -> Sliced[str]:
        for _ in range(10):
            yield
        return "done"

    assert decided_in_slices(slices_of(work(), PARTITIONS_PER_SLICE // 2)) == ("done", 6)
