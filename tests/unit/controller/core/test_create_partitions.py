"""CreatePartitions: the exact records that add partitions to a topic, and every refusal."""

import pytest

from common.ids import Uuid
from common.metadata.directory_ids import UNASSIGNED
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from common.records.metadata_records import PartitionRecord, TopicRecord
from controller.core import create_partitions as operation
from tests.unit.controller.core.context import ControllerContext, directory


def cluster() -> ControllerContext:
    """Returns a controller with brokers 1 and 2, which have two directories each, broker 3, which has one, and topic t with
    two partitions."""
    context = ControllerContext()
    for broker_id in (1, 2):
        context.start(broker_id, [f"{broker_id}-a", f"{broker_id}-b"])
    context.start(3, ["3-a"])
    context.topic("t", [[1, 2], [2, 1]])
    return context


def test_partitions_with_given_replicas() -> None:
    """The new partitions continue the topic's numbering. A replica on an inactive broker stays outside the ISR."""
    context = cluster()
    context.fence(2)
    result = context.create_partitions("t", 4, [[3, 2], [2, 1]])
    topic = context.state.topic_named("t")
    assert topic is not None
    assert (result.name, result.error_code, result.error_message) == ("t", ErrorCode.NONE, None)
    assert context.records == [
        PartitionRecord(
            partition_id=2,
            topic_id=topic.id,
            replicas=[3, 2],
            isr=[3],
            leader=3,
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory("3-a"), UNASSIGNED],
        ),
        PartitionRecord(
            partition_id=3,
            topic_id=topic.id,
            replicas=[2, 1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[UNASSIGNED, UNASSIGNED],
        ),
    ]
    assert context.event("partitions_created") == {"topic": "t", "topic_id": topic.id, "partitions": 4, "added": 2}


def test_partitions_are_placed() -> None:
    """Each new partition gets as many replicas as the first partition has. If the first partition is being reassigned, the
    size of its target counts. All new replicas are on active brokers."""
    context = cluster()
    context.fence(2)
    assert context.create_partitions("t", 5).error_code == ErrorCode.NONE
    topic = context.state.topic_named("t")
    assert topic is not None
    added = [topic.partitions[index] for index in (2, 3, 4)]
    assert all(len(partition.replicas) == 2 and partition.isr == partition.replicas for partition in added)
    assert {broker_id for partition in added for broker_id in partition.replicas} == {1, 3}
    context.reassign("t", {0: [1, 2, 3]})
    context.create_partitions("t", 6)
    assert len(topic.partitions[5].replicas) == 3


def test_validation_writes_nothing() -> None:
    context = cluster()
    assert context.create_partitions("t", 3, validate_only=True).error_code == ErrorCode.NONE
    assert context.records == []
    assert context.create_partitions("t", 1, validate_only=True).error_code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize(
    ("count", "assignments", "code", "message"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            -1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); -1 would not be an increase.",
        ),
        (
            4,
            [[1, 2]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            3,
            [],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        (
            3,
            [[]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            3,
            [[1, 9]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            3,
            [[1, 1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            3,
            [[1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with "
            "previous partitions, which have 2 replica(s).",
        ),
        (10_003, None, ErrorCode.POLICY_VIOLATION, "one request may write 10000 records at most"),
    ],
)
def test_refusals(count: int, assignments: list[list[int]] | None, code: ErrorCode, message: str) -> None:
    context = cluster()
    result = context.create_partitions("t", count, assignments)
    assert (result.error_code, result.error_message) == (code, message)
    assert context.records == []


def test_a_topic_whose_creation_was_interrupted() -> None:
    """Its partitions are missing. Nobody knows how many replicas they were to have."""
    context = cluster()
    context.state.replay(TopicRecord(name="half", topic_id=Uuid(b"h" * 16)), offset=context.next_write_offset)
    result = context.create_partitions("half", 2)
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_PARTITIONS,
        "The topic half was not created completely. Delete it and create it again.",
    )


def test_inactive_brokers() -> None:
    """A partition is refused if all its replicas are on fenced brokers. It does not matter whether the client or the
    controller chose the replicas."""
    context = cluster()
    context.fence(1)
    context.fence(2)
    result = context.create_partitions("t", 3, [[1, 2]])
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "All brokers specified in the manual partition assignment for partition 2 are fenced or in controlled shutdown.",
    )
    context.fence(3)
    assert context.create_partitions("t", 3).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_topics_are_judged_separately() -> None:
    """An unknown topic gets its own error, and so does a topic that is named twice. Partitions are added to the other
    topics."""
    context = cluster()
    context.topic("u", [[1]])
    named = [("t", 3), ("no-topic", 3), ("u", 2), ("t", 4)]
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in named]
    )
    response = context.apply(operation.create_partitions(context.turn(), request))
    assert [(result.name, result.error_code) for result in response.results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("no-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", ErrorCode.NONE),
    ]
    assert response.results[0].error_message == "Duplicate topic name."
    assert len(context.records) == 1
