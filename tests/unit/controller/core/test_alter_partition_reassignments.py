"""AlterPartitionReassignments and ListPartitionReassignments: the exact records, and every refusal."""

from collections.abc import Sequence
from typing import Any

import pytest

from common.ids import NO_LEADER, DirectoryId, TopicId, TopicIdPartition
from common.metadata.directory_ids import MIGRATING, UNASSIGNED
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from common.protocol.messages.list_partition_reassignments import OngoingPartitionReassignment, OngoingTopicReassignment
from common.records.metadata_records import PartitionChangeRecord
from controller.core import alter_partition_reassignments as operation
from tests.unit.controller.core.context import ControllerContext, directory


def cluster(*, unclean: bool = False) -> ControllerContext:
    """Returns a controller with brokers 1 to 4, which have two directories each, and broker 5, which has one."""
    context = ControllerContext(unclean=unclean)
    for broker_id in range(1, 5):
        context.start(broker_id, [f"{broker_id}-a", f"{broker_id}-b"])
    context.start(5, ["5-a"])
    return context


def topic(context: ControllerContext, *assignments: Sequence[int]) -> TopicId:
    """Creates the topic t. The replica on each broker is in that broker's directory "a"."""
    brokers = sorted({broker_id for replicas in assignments for broker_id in replicas})
    return context.topic("t", assignments, {broker_id: f"{broker_id}-a" for broker_id in brokers})


def change(topic_id: TopicId, *, directories: Sequence[DirectoryId] | None = None, **fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        topic_id=topic_id, partition_id=0, directories=None if directories is None else list(directories), **fields
    )


def in_a(*broker_ids: int) -> list[DirectoryId]:
    return [directory(f"{broker_id}-a") for broker_id in broker_ids]


def test_a_replica_moves_to_another_broker() -> None:
    """When the reassignment begins, the new replica has no directory and is outside the ISR, and the leader stays. When an
    ISR change brings the last replica of the target into the ISR, the old replica is removed. It was the leader, so another
    replica is elected."""
    context = cluster()
    topic_id = topic(context, [1, 2, 3])
    assert context.reassign("t", {0: [4, 2, 3]})[0].error_code == ErrorCode.NONE
    assert context.records == [
        change(
            topic_id,
            replicas=[4, 2, 3, 1],
            directories=[UNASSIGNED, *in_a(2, 3, 1)],
            adding_replicas=[4],
            removing_replicas=[1],
        )
    ]
    assert context.event("reassignments_altered") == {"partitions": 1, "cancelled": 0, "refused": 0}
    assert context.leader_and_isr(topic_id) == (1, [1, 2, 3])
    context.assign(4, {"4-a": [TopicIdPartition(topic_id, 0)]})
    result = context.alter(topic_id, 0, [1, 2, 3, 4])
    assert context.records == [
        change(
            topic_id,
            replicas=[4, 2, 3],
            directories=in_a(4, 2, 3),
            isr=[2, 3, 4],
            leader=4,
            adding_replicas=[],
            removing_replicas=[],
        )
    ]
    assert context.event("reassignment_completed") == {"partition": "t-0"}
    # The broker that sent the ISR change no longer leads. It learns the new state from the metadata.
    assert (result.error_code, result.isr) == (ErrorCode.NEW_LEADER_ELECTED, [])
    assert context.reassignments() == []


def test_a_broker_is_emptied_while_another_one_is_down() -> None:
    """The replica on broker 2 stays, but its broker is down. Broker 3 is emptied all the same. Fewer replicas than before
    would make the ISR smaller, so there everything that is left must be in it."""
    context = cluster()
    topic_id = topic(context, [1, 2, 3])
    context.fence(2)
    context.reassign("t", {0: [1, 2, 4]})
    context.alter(topic_id, 0, [1, 3, 4])
    partition = context.partition(topic_id)
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2, 4), (1, 4), 1)
    assert context.reassignments() == []
    context.reassign("t", {0: [1, 2]})
    partition = context.partition(topic_id)
    assert (partition.replicas, partition.isr, partition.removing_replicas) == ((1, 2, 4), (1, 4), (4,))


def test_a_leader_that_stays_is_named_again() -> None:
    """The removed replica must not go on replicating in the current leader epoch, so the record names the leader again to
    start a new epoch. The leader's ISR change completed the reassignment; the response gives it the new epoch."""
    context = cluster()
    topic_id = topic(context, [1, 2])
    context.reassign("t", {0: [1, 3]})
    before = context.partition(topic_id)
    result = context.alter(topic_id, 0, [1, 2, 3])
    assert context.records == [
        change(
            topic_id,
            replicas=[1, 3],
            directories=[*in_a(1), UNASSIGNED],
            isr=[1, 3],
            leader=1,
            adding_replicas=[],
            removing_replicas=[],
        )
    ]
    assert result.error_code == ErrorCode.NONE
    assert (result.leader_id, result.leader_epoch, result.isr) == (1, before.leader_epoch + 1, [1, 3])


def test_what_needs_no_data_is_completed_at_once() -> None:
    """A new order of the replicas, or fewer replicas, needs no data to be copied. Only the removal of a replica starts a new
    leader epoch."""
    context = cluster()
    topic_id = topic(context, [1, 2, 3])
    context.reassign("t", {0: [3, 2, 1]})
    assert context.records == [change(topic_id, replicas=[3, 2, 1], directories=in_a(3, 2, 1))]
    context.reassign("t", {0: [3, 1]})
    assert context.records == [change(topic_id, replicas=[3, 1], directories=in_a(3, 1), isr=[1, 3], leader=1)]
    context.reassign("t", {0: [3, 1]})
    assert context.records == []
    context.reassign("t", {0: [3]})
    assert context.records == [change(topic_id, replicas=[3], directories=in_a(3), isr=[3], leader=3)]


def test_more_replicas() -> None:
    """The completion changes only the ISR and the list of added replicas. The added replica's broker has only one directory,
    so the controller assigns it at once."""
    context = cluster()
    topic_id = topic(context, [1])
    context.reassign("t", {0: [1, 5]})
    assert context.records == [change(topic_id, replicas=[1, 5], directories=in_a(1, 5), adding_replicas=[5])]
    context.alter(topic_id, 0, [1, 5])
    assert context.records == [change(topic_id, isr=[1, 5], adding_replicas=[])]
    assert context.event("reassignment_completed") == {"partition": "t-0"}


def test_below_directory_assignment_no_record_names_directories() -> None:
    """At this metadata.version the records contain no directories, so both new and kept replicas are MIGRATING."""
    context = ControllerContext(level=13)
    for broker_id in (1, 2, 3):
        context.start(broker_id, [f"{broker_id}-a"])
    topic_id = context.topic("t", [[1, 2]])
    context.reassign("t", {0: [3, 2]})
    assert context.records == [change(topic_id, replicas=[3, 2, 1], adding_replicas=[3], removing_replicas=[1])]
    assert context.partition(topic_id).directories == (MIGRATING,) * 3


def test_cancelled() -> None:
    """A cancellation restores the original replicas. If an added replica leads, another one is elected. Otherwise the leader
    stays, with a new leader epoch."""
    context = cluster()
    topic_id = topic(context, [1, 2])
    context.reassign("t", {0: [3, 2]})
    assert context.reassign("t", {0: None})[0].error_code == ErrorCode.NONE
    assert context.records == [
        change(topic_id, replicas=[2, 1], directories=in_a(2, 1), leader=1, adding_replicas=[], removing_replicas=[])
    ]
    assert context.event("reassignments_altered") == {"partitions": 0, "cancelled": 1, "refused": 0}
    context.reassign("t", {0: [3, 4]})
    context.alter(topic_id, 0, [1, 3])
    context.fence(1)
    assert context.leader_and_isr(topic_id) == (3, [3])
    context.heartbeat(1)
    context.alter(topic_id, 0, [3, 2])
    context.reassign("t", {0: None})
    assert context.records == [
        change(
            topic_id,
            replicas=[1, 2],
            directories=in_a(1, 2),
            isr=[2],
            leader=2,
            adding_replicas=[],
            removing_replicas=[],
        )
    ]


def only_the_added_replica_in_sync(context: ControllerContext) -> TopicId:
    topic_id = topic(context, [1, 2])
    context.reassign("t", {0: [3, 4]})
    context.alter(topic_id, 0, [1, 3])
    context.fence(1)
    context.heartbeat(1)
    assert context.leader_and_isr(topic_id) == (3, [3])
    return topic_id


def test_a_revert_that_could_lose_records_is_refused() -> None:
    context = cluster()
    topic_id = only_the_added_replica_in_sync(context)
    before = context.partition(topic_id)
    result = context.reassign("t", {0: None})[0]
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Unable to revert partition assignment for t:0 because it would require an unclean leader election.",
    )
    assert context.partition(topic_id) is before


def test_a_revert_may_elect_uncleanly_where_that_is_allowed() -> None:
    """The new leader is RECOVERING, as after any unclean election. If the first replica cannot lead, another replica is
    elected."""
    for is_first_gone, leader in ((False, 1), (True, 2)):
        context = cluster(unclean=True)
        topic_id = only_the_added_replica_in_sync(context)
        if is_first_gone:
            context.fence(1)
        context.reassign("t", {0: None})
        assert context.records == [
            change(
                topic_id,
                replicas=[1, 2],
                directories=in_a(1, 2),
                isr=[leader],
                leader=leader,
                leader_recovery_state=1,
                adding_replicas=[],
                removing_replicas=[],
            )
        ]


def test_another_target_replaces_a_reassignment() -> None:
    """After the second reassignment is reverted, the partition has its original replicas, and not the one that the first
    reassignment added."""
    context = cluster()
    topic_id = topic(context, [1, 2])
    context.reassign("t", {0: [3, 2]})
    context.alter(topic_id, 0, [1, 2])
    context.reassign("t", {0: [4, 2]})
    assert context.records == [
        change(
            topic_id,
            replicas=[4, 2, 1, 3],
            directories=[UNASSIGNED, *in_a(2, 1), UNASSIGNED],
            adding_replicas=[3, 4],
            removing_replicas=[1, 3],
        )
    ]
    context.reassign("t", {0: None})
    assert sorted(context.partition(topic_id).replicas) == [1, 2]


def test_a_reassignment_waits_for_a_replica_that_can_lead() -> None:
    """The target's only replica is in the ISR but fenced. If the other replica were removed now, the partition would have
    only a replica that cannot lead."""
    context = cluster()
    topic_id = topic(context, [1, 2])
    context.fence(2)
    context.fence(1)
    assert context.leader_and_isr(topic_id) == (NO_LEADER, [1])
    context.reassign("t", {0: [1]})
    assert context.records == [
        change(topic_id, removing_replicas=[2]),
    ]
    context.heartbeat(1)
    assert context.records[-1] == change(topic_id, replicas=[1], directories=in_a(1), leader=1, removing_replicas=[])


def test_a_fenced_replica_is_not_added_before_it_is_back() -> None:
    """A fenced broker, an unregistered broker and a failed directory do not end the reassignment. When the leader's broker
    is fenced, another replica is elected."""
    context = cluster()
    topic_id = topic(context, [1, 2])
    context.reassign("t", {0: [3, 4]})
    context.alter(topic_id, 0, [1, 2, 3])
    context.heartbeat(3, offline=["3-a"])
    context.assign(3, {"3-a": [TopicIdPartition(topic_id, 0)]})
    assert context.leader_and_isr(topic_id) == (1, [1, 2])
    context.unregister(4)
    context.fence(1)
    partition = context.partition(topic_id)
    assert (partition.leader, partition.isr) == (2, (2,))
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((3, 4, 1, 2), (3, 4), (1, 2))
    context.delete("t")
    assert context.reassignments() == []


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ([], "The manual partition assignment includes an empty replica list."),
        ([1, 9], "The manual partition assignment includes broker 9, but no such broker is registered."),
        ([1, -1], "The manual partition assignment includes broker -1, but no such broker is registered."),
        ([2, 1, 2], "The manual partition assignment includes the broker 2 more than once."),
    ],
)
def test_replicas_that_cannot_be(replicas: list[int], message: str) -> None:
    context = cluster()
    topic(context, [1, 2])
    result = context.reassign("t", {0: replicas})[0]
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    assert context.records == []
    assert context.event("reassignments_altered") == {"partitions": 0, "cancelled": 0, "refused": 1}


def test_what_does_not_exist() -> None:
    """An error of one partition does not affect the other partitions of the request."""
    context = cluster()
    topic_id = topic(context, [1, 2])
    results = context.reassign("t", {0: [2, 1], 7: [2, 1]})
    assert (results[7].error_code, results[7].error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "Unable to find partition t:7.",
    )
    assert context.records == [change(topic_id, replicas=[2, 1], directories=in_a(2, 1))]
    result = context.reassign("no-topic", {0: [2, 1]})[0]
    assert (result.error_code, result.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "Unable to find a topic named no-topic.",
    )
    result = context.reassign("t", {0: None})[0]
    assert (result.error_code, result.error_message) == (
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        "No partition reassignment is in progress.",
    )


def test_a_partition_is_reassigned_once_per_request() -> None:
    """All changes of a request are computed from the same state. A second change of the same partition would undo parts of
    the first."""
    context = cluster()
    topic(context, [1, 2])
    twice = [ReassignablePartition(partition_index=0, replicas=replicas) for replicas in ([1, 3], [1, 4])]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=twice)])
    response = context.apply(operation.alter_partition_reassignments(context.turn(), request))
    assert [each.error_code for each in response.responses[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2
    assert context.records == []


def test_the_replication_factor_may_be_kept() -> None:
    """If a reassignment is in progress, its target's number of replicas is the one to keep (KIP-860)."""
    context = cluster()
    topic(context, [1, 2], [1, 2])
    context.reassign("t", {1: [3, 4, 5]})
    for index, replicas, size in ((0, [3], 2), (0, [1, 2, 3], 2), (1, [1, 2], 3)):
        result = context.reassign("t", {index: replicas}, allow_replication_factor_change=False)[index]
        assert (result.error_code, result.error_message) == (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {size} to {len(replicas)}",
        )
    results = context.reassign("t", {0: [3, 4], 1: [1, 3, 5]}, allow_replication_factor_change=False)
    assert [result.error_code for result in results.values()] == [ErrorCode.NONE] * 2


def test_a_request_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    context = cluster()
    topic(context, [1, 2], [1, 2])
    monkeypatch.setattr(operation, "RECORDS_PER_REQUEST_MAX", 1)
    with pytest.raises(ApiError) as refused:
        context.reassign("t", {0: [2, 1], 1: [2, 1]})
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_reassignments_are_listed() -> None:
    """The response lists all reassignments, or those of the named partitions. It omits partitions that do not exist or are
    not being reassigned."""
    context = cluster()
    topic(context, [1, 2], [1, 2], [1, 2])
    context.reassign("t", {0: [3, 2], 2: [1, 2, 4]})
    first = OngoingPartitionReassignment(partition_index=0, replicas=[3, 2, 1], adding_replicas=[3], removing_replicas=[1])
    second = OngoingPartitionReassignment(partition_index=2, replicas=[1, 2, 4], adding_replicas=[4])
    assert context.reassignments() == [OngoingTopicReassignment(name="t", partitions=[first, second])]
    assert context.reassignments({"t": [2, 1, 2, 9], "no-topic": [0]}) == [
        OngoingTopicReassignment(name="t", partitions=[second])
    ]
    assert context.reassignments({"t": [1]}) == []
    assert context.reassignments({}) == []
