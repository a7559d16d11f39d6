"""AlterPartition: the order of the checks, the rules of KIP-841 and KIP-903, and the responses."""

from collections.abc import Callable

import pytest

from common.ids import TopicId, TopicIdPartition, Uuid
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from common.records.metadata_records import PartitionChangeRecord
from controller.core.alter_partition import handle_alter_partition, with_older_errors
from tests.unit.controller.core.context import ControllerContext


def cluster() -> tuple[ControllerContext, TopicId]:
    """Makes a partition with replicas 1, 2 and 3, leader epoch 1 and partition epoch 3. Broker 3 has left the ISR, and
    broker 4 is not a replica."""
    controller = ControllerContext()
    for broker_id, names in ((1, "ab"), (2, "cd"), (3, "ef"), (4, "g")):
        controller.start(broker_id, list(names))
    topic_id = controller.topic("t", [[2, 1, 3]])
    controller.alter(topic_id, 0, [2, 1])
    controller.fence(2)
    controller.heartbeat(2)
    controller.alter(topic_id, 0, [1, 2])
    partition = controller.partition(topic_id)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 3)
    return controller, topic_id


def test_a_new_isr_is_recorded_and_answered() -> None:
    """The record contains only the new ISR. The response describes the partition as it is after the commit."""
    controller, topic_id = cluster()
    result = controller.alter(topic_id, 0, [1, 2, 3])
    assert controller.records == [PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1, 2, 3])]
    assert result == ResponsePartitionData(partition_index=0, leader_id=1, leader_epoch=1, isr=[1, 2, 3], partition_epoch=4)


def test_the_isr_that_is_there_already_changes_nothing() -> None:
    """The requested ISR is the present one: no record is written, and the response describes the present state."""
    controller, topic_id = cluster()
    result = controller.alter(topic_id, 0, [1, 2])
    assert controller.records == []
    assert result.error_code == ErrorCode.NONE
    assert result.partition_epoch == 3


Attempt = Callable[[ControllerContext, TopicId], ResponsePartitionData]
REFUSALS: dict[str, tuple[Attempt, ErrorCode]] = {
    "unknown partition": (lambda c, t: c.alter(t, 5, [1]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "unknown topic": (lambda c, t: c.alter(TopicId(Uuid(b"?" * 16)), 0, [1]), ErrorCode.UNKNOWN_TOPIC_ID),
    "higher leader epoch": (lambda c, t: c.alter(t, 0, [1], leader_epoch=2), ErrorCode.NOT_CONTROLLER),
    "higher partition epoch": (lambda c, t: c.alter(t, 0, [1], partition_epoch=4), ErrorCode.NOT_CONTROLLER),
    "lower leader epoch, even from a non-leader": (
        lambda c, t: c.alter(t, 0, [1], leader_epoch=0, sender=2),
        ErrorCode.FENCED_LEADER_EPOCH,
    ),
    "not the leader, even with a lower partition epoch": (
        lambda c, t: c.alter(t, 0, [1], sender=2, partition_epoch=0),
        ErrorCode.INVALID_REQUEST,
    ),
    "lower partition epoch": (lambda c, t: c.alter(t, 0, [1], partition_epoch=2), ErrorCode.INVALID_UPDATE_VERSION),
    "no replica": (lambda c, t: c.alter(t, 0, [1, 4]), ErrorCode.INVALID_REQUEST),
    "twice": (lambda c, t: c.alter(t, 0, [1, 2, 2]), ErrorCode.INVALID_REQUEST),
    "without the leader": (lambda c, t: c.alter(t, 0, [2, 3]), ErrorCode.INVALID_REQUEST),
    "empty": (lambda c, t: c.alter(t, 0, []), ErrorCode.INVALID_REQUEST),
    "recovering and not alone": (
        lambda c, t: c.alter(t, 0, [1, 2], leader_recovery_state=1),
        ErrorCode.INVALID_REQUEST,
    ),
    "recovering again": (lambda c, t: c.alter(t, 0, [1], leader_recovery_state=1), ErrorCode.INVALID_REQUEST),
    "no such recovery state": (lambda c, t: c.alter(t, 0, [1], leader_recovery_state=5), ErrorCode.INVALID_REQUEST),
    "another epoch of a member": (lambda c, t: c.alter(t, 0, [1, 3], epoch_of_3=1), ErrorCode.INELIGIBLE_REPLICA),
}


@pytest.mark.parametrize("name", list(REFUSALS))
def test_each_way_to_be_wrong_has_its_code_and_writes_nothing(name: str) -> None:
    """Each kind of bad request gets its own code, in Kafka's order, and writes nothing."""
    controller, topic_id = cluster()
    attempt, code = REFUSALS[name]
    assert attempt(controller, topic_id).error_code == code
    assert controller.records == []


def test_a_member_with_its_present_epoch_is_eligible() -> None:
    """KIP-903: the request names the epoch of broker 3's present incarnation, so broker 3 may join the ISR."""
    controller, topic_id = cluster()
    assert controller.alter(topic_id, 0, [1, 2, 3], epoch_of_3=controller.epoch(3)).error_code == ErrorCode.NONE


def test_version_2_names_no_epochs() -> None:
    """Version 2 of the request has a plain list of broker ids. The checks are the same, except that of broker epochs."""
    controller, topic_id = cluster()
    wish = RequestPartitionData(partition_index=0, leader_epoch=1, partition_epoch=3, new_isr=[1, 2, 3])
    response = controller.alter_request(1, topic_id, wish)
    assert response.topics[0].partitions[0].isr == [1, 2, 3]


def test_a_fenced_replica_may_not_join() -> None:
    """KIP-841: the broker was fenced while the request was on its way."""
    controller, topic_id = cluster()
    controller.fence(3)
    assert controller.alter(topic_id, 0, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leaving_replica_may_not_join() -> None:
    """KIP-841: the broker is still unfenced, but in controlled shutdown."""
    controller, topic_id = cluster()
    controller.topic("keeps 3 busy".replace(" ", "-"), [[3, 4]])
    controller.heartbeat(3, want_shut_down=True)
    assert controller.alter(topic_id, 0, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_an_unregistered_replica_may_not_join() -> None:
    """A broker can be unregistered while it is still in a replica list. It may then not join the ISR."""
    controller, topic_id = cluster()
    controller.unregister(3)
    assert controller.alter(topic_id, 0, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_in_an_offline_directory_may_not_join() -> None:
    """This check is stricter than Kafka's: a replica may join only if `has_online_directory` holds for it."""
    controller, topic_id = cluster()
    controller.assign(3, {"e": [TopicIdPartition(topic_id, 0)]})
    controller.heartbeat(3, offline=["e"])
    assert controller.alter(topic_id, 0, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_partition_named_twice_is_answered_once() -> None:
    """Only the first change is made. The second one is refused, because the leader requested it before it knew the outcome
    of the first one."""
    controller, topic_id = cluster()
    wish = RequestPartitionData(partition_index=0, leader_epoch=1, partition_epoch=3, new_isr=[1])
    response = controller.alter_request(1, topic_id, wish, wish)
    assert [each.error_code for each in response.topics[0].partitions] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert len(controller.records) == 1


def test_topics_that_do_not_exist_are_not_taken_for_one() -> None:
    """Below version 2 the request names topics. Each unknown name gets the same error, not that of a repeated partition."""
    controller, _ = cluster()
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=controller.epoch(1),
        topics=[
            RequestTopicData(topic_name=name, partitions=[RequestPartitionData(new_isr=[1])]) for name in ("gone", "lost")
        ],
    )
    response = with_older_errors(controller.apply(handle_alter_partition(controller.turn(), request)))
    assert [(topic.topic_name, topic.partitions[0].error_code) for topic in response.topics] == [
        ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("lost", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_a_stale_broker_epoch_refuses_the_whole_request() -> None:
    """The request carries the epoch of an earlier incarnation of the broker."""
    controller, topic_id = cluster()
    controller.fence(1)
    controller.register(1, ["a", "b"], incarnation_name="second")
    request = AlterPartitionRequest(broker_id=1, broker_epoch=controller.epoch(1) - 1)
    request.topics.append(RequestTopicData(topic_id=topic_id, partitions=[RequestPartitionData(new_isr=[1])]))
    with pytest.raises(ApiError) as caught:
        controller.apply(handle_alter_partition(controller.turn(), request))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_an_unclean_leader_reports_its_recovery() -> None:
    """The partition stays RECOVERING until its leader reports that it has recovered. Then other replicas may join the
    ISR."""
    controller = ControllerContext(unclean=True)
    controller.start(1, ["a"])
    controller.start(2, ["b"])
    topic_id = controller.topic("t", [[1, 2]])
    controller.fence(2)
    controller.heartbeat(2)
    controller.fence(1)
    assert controller.leader_and_isr(topic_id) == (2, [2])
    assert controller.partition(topic_id).leader_recovery_state == 1
    result = controller.alter(topic_id, 0, [2], leader_recovery_state=0)
    assert result.leader_recovery_state == 0
    assert controller.partition(topic_id).leader_recovery_state == 0
