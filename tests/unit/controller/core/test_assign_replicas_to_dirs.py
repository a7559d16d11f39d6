"""AssignReplicasToDirs: any directory id is accepted, and leader and ISR change if the directory is not online."""

import pytest

from common.ids import NO_LEADER, DirectoryId, TopicId, TopicIdPartition, Uuid
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.protocol.errors import ApiError, ErrorCode
from common.records.metadata_records import PartitionChangeRecord
from controller.core.assign_replicas_to_dirs import UNREGISTERED_DIRECTORIES_MAX
from controller.core.record_limit import RECORDS_PER_REQUEST_MAX
from tests.unit.controller.core.context import ControllerContext, directory


def two_brokers() -> ControllerContext:
    controller = ControllerContext()
    controller.start(1, ["a", "b"])
    controller.start(2, ["c", "d"])
    return controller


def test_an_assignment_to_an_online_directory_changes_the_directory_only() -> None:
    """The record contains the directories of all replicas. Those of the other replicas are unchanged."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[2, 1]])
    controller.assign(1, {"b": [TopicIdPartition(topic_id, 0)]})
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, directories=[UNASSIGNED, directory("b")])
    ]
    controller.assign(1, {"b": [TopicIdPartition(topic_id, 0)]})
    assert controller.records == []


def test_an_assignment_to_an_offline_directory_elects() -> None:
    """The directory failed before the broker could assign the replica to it. One record changes directory, ISR and leader,
    as if the failure were reported only now."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1, 2]])
    controller.heartbeat(1, offline=["a"])
    assert controller.leader_and_isr(topic_id) == (1, [1, 2])
    controller.assign(1, {"a": [TopicIdPartition(topic_id, 0)]})
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2], leader=2, directories=[directory("a"), UNASSIGNED])
    ]
    assert controller.event("replicas_assigned_offline") == {
        "broker_id": 1,
        "directory_id": directory("a"),
        "partitions": 1,
        "leaders": 1,
    }


@pytest.mark.parametrize("directory_id", [LOST, directory("never registered"), directory("c")])
def test_lost_and_unknown_ids_are_accepted_and_elect(directory_id: object) -> None:
    """LOST, an unregistered id, and another broker's id all mean that this broker's replica is not online."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1, 2]], {2: "d"})
    response = controller.assign(1, {}, ids={directory_id: [TopicIdPartition(topic_id, 0)]})  # type: ignore[dict-item]
    assert response.directories[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert controller.leader_and_isr(topic_id) == (2, [2])


def test_a_request_names_a_bounded_number_of_unregistered_directories() -> None:
    """One unregistered id more than allowed is refused and changes nothing. Registered directories do not count."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1, 2]])
    controller.heartbeat(1, offline=["a"])
    ids: dict[DirectoryId, list[TopicIdPartition]] = {
        DirectoryId(Uuid((10_000 + number).to_bytes(16, "big"))): [] for number in range(UNREGISTERED_DIRECTORIES_MAX)
    }
    with pytest.raises(ApiError) as caught:
        controller.assign(1, {"b": [TopicIdPartition(topic_id, 0)]}, ids={**ids, LOST: []})
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    controller.assign(1, {"a": [], "b": [TopicIdPartition(topic_id, 0)]}, ids=ids)
    assert len(controller.records) == 1


def test_a_request_assigns_a_bounded_number_of_replicas() -> None:
    """As with any other request, 10,000 records at most."""
    controller = two_brokers()
    partition = TopicIdPartition(controller.topic("t", [[1, 2]]), 0)
    with pytest.raises(ApiError) as caught:
        controller.assign(1, {"b": [partition] * (RECORDS_PER_REQUEST_MAX + 1)})
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_a_sole_isr_member_that_is_lost_stays_without_leading() -> None:
    """The replica leads again as soon as it is assigned to an online directory."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1]])
    controller.assign(1, {}, ids={LOST: [TopicIdPartition(topic_id, 0)]})
    assert controller.leader_and_isr(topic_id) == (NO_LEADER, [1])
    controller.assign(1, {"b": [TopicIdPartition(topic_id, 0)]})
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1, directories=[directory("b")])
    ]


def test_a_replica_is_not_revived_by_the_request_that_calls_it_lost() -> None:
    """Unclean elections are allowed, and the other replica's broker is fenced. Assigning LOST removes the leader, assigning
    LOST again changes nothing, and the next sweep elects the same replica in a new epoch."""
    controller = ControllerContext(unclean=True)
    controller.start(1, ["a", "b"])
    controller.start(2, ["c", "d"])
    topic_id = controller.topic("t", [[1, 2]], {1: "a", 2: "c"})
    controller.alter(topic_id, 0, [1])
    controller.fence(2)
    controller.assign(1, {}, ids={LOST: [TopicIdPartition(topic_id, 0)]})
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NO_LEADER, directories=[LOST, directory("c")])
    ]
    controller.assign(1, {}, ids={LOST: [TopicIdPartition(topic_id, 0)]})
    assert controller.records == []
    assert controller.sweep() == 1
    assert controller.records == [
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id, leader=1, directories=[UNASSIGNED, directory("c")], leader_recovery_state=1
        )
    ]
    assert controller.partition(topic_id).leader_epoch == 2


def test_another_brokers_lost_replica_is_revived_at_once() -> None:
    """The election skips only the replica that was just assigned LOST, so the other LOST replica becomes the leader."""
    controller = ControllerContext(unclean=True)
    controller.start(1, ["a", "b"])
    controller.start(2, ["c", "d"])
    topic_id = controller.topic("t", [[1, 2]], {1: "a", 2: "c"})
    controller.assign(2, {}, ids={LOST: [TopicIdPartition(topic_id, 0)]})
    controller.assign(1, {}, ids={LOST: [TopicIdPartition(topic_id, 0)]})
    assert controller.leader_and_isr(topic_id) == (2, [2])
    assert controller.partition(topic_id).directories == (LOST, UNASSIGNED)


def test_a_fenced_broker_may_assign() -> None:
    """A broker stays fenced until its assignments are known, so a fenced broker must be able to send them."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1, 2]])
    controller.fence(1)
    controller.assign(1, {"a": [TopicIdPartition(topic_id, 0)]})
    assert controller.partition(topic_id).directories == (directory("a"), UNASSIGNED)
    assert controller.leader_and_isr(topic_id) == (2, [2])


def test_errors_are_per_partition() -> None:
    """One request names an unknown topic, an unknown partition, a partition without a replica on the broker, and a valid
    one. The response has an error code for each, in the structure of the request."""
    controller = two_brokers()
    controller.start(3, ["e"])
    topic_id = controller.topic("t", [[1, 2], [2, 3]])
    unknown = TopicId(Uuid(b"?" * 16))
    response = controller.assign(
        1,
        {
            "a": [
                TopicIdPartition(unknown, 0),
                TopicIdPartition(topic_id, 9),
                TopicIdPartition(topic_id, 1),
                TopicIdPartition(topic_id, 0),
            ]
        },
    )
    assert [each.id for each in response.directories] == [directory("a")]
    codes = [topic.partitions[0].error_code for topic in response.directories[0].topics]
    assert codes == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
    ]
    assert len(controller.records) == 1


def test_the_last_word_on_a_partition_counts() -> None:
    """If one request names a partition twice, a single record with the later directory is written."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1]])
    controller.assign(1, {"a": [TopicIdPartition(topic_id, 0)], "b": [TopicIdPartition(topic_id, 0)]})
    assert controller.records == [PartitionChangeRecord(partition_id=0, topic_id=topic_id, directories=[directory("b")])]


def test_a_stale_broker_epoch_writes_nothing() -> None:
    """An assignment from an earlier incarnation does not apply to this one."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1]])
    written = len(controller.log)
    with pytest.raises(ApiError) as caught:
        controller.assign(1, {"a": [TopicIdPartition(topic_id, 0)]}, epoch=0)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert len(controller.log) == written


def test_assignments_need_level_17() -> None:
    """Below metadata.version 17, the partition records have no field for directories."""
    controller = ControllerContext(level=16)
    controller.start(1)
    topic_id = controller.topic("t", [[1]])
    with pytest.raises(ApiError) as caught:
        controller.assign(1, {"a": [TopicIdPartition(topic_id, 0)]})
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
