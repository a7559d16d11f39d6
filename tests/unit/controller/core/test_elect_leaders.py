"""ElectLeaders: preferred and unclean elections, their records, and the result of every partition."""

from typing import Any

import pytest

from common.ids import NO_LEADER, TopicId, TopicIdPartition
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.elect_leaders import ElectionType, PartitionResult
from common.records.metadata_records import PartitionChangeRecord
from controller.core import elect_leaders as operation
from tests.unit.controller.core.context import ControllerContext

NEEDLESS = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
NO_PREFERRED = (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
NOBODY = (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")


def cluster(*, unclean: bool = False) -> tuple[ControllerContext, TopicId]:
    """Returns a controller with brokers 1, 2 and 3, and topic t. Broker 1 is fenced. Partition 0 has lost its preferred
    leader, partition 1 is led by its preferred leader, and partition 2 has no leader because broker 1 was alone in its
    ISR."""
    context = ControllerContext(unclean=unclean)
    for broker_id in (1, 2, 3):
        context.start(broker_id, [f"{broker_id}-a", f"{broker_id}-b"])
    topic_id = context.topic("t", [[1, 2], [2, 1], [1, 2]])
    context.alter(topic_id, 2, [1])
    context.fence(1)
    return context, topic_id


def outcome(result: PartitionResult) -> tuple[int, str | None]:
    return result.error_code, result.error_message


def change(topic_id: TopicId, index: int, **fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=topic_id, partition_id=index, **fields)


def test_preferred_leaders() -> None:
    """The first replica becomes the leader if it is in the ISR and can lead. Each partition has its own result, and an error
    of one does not stop the others."""
    context, topic_id = cluster()
    results = context.elect({"t": [0, 1, 2, 5], "no-topic": [0]})
    assert {key: outcome(result) for key, result in results.items()} == {
        ("t", 0): NO_PREFERRED,
        ("t", 1): NEEDLESS,
        ("t", 2): NO_PREFERRED,
        ("t", 5): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-5"),
        ("no-topic", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as no-topic"),
    }
    assert context.records == []
    assert context.last_events == []
    context.heartbeat(1)
    context.alter(topic_id, 0, [2, 1])
    assert outcome(context.elect({"t": [0]})["t", 0]) == (ErrorCode.NONE, None)
    assert context.records == [change(topic_id, 0, leader=1)]
    assert context.event("leaders_elected") == {"election_type": "preferred", "partitions": 1}


def test_a_preferred_election_is_never_unclean() -> None:
    """A preferred election is never unclean, even if the topic allows unclean elections: those are left to the controller's
    regular sweep of leaderless partitions."""
    context, _ = cluster(unclean=True)
    context.fence(2)
    assert outcome(context.elect({"t": [0]})["t", 0]) == NO_PREFERRED


def test_unclean_elections() -> None:
    """A leader is elected only for the partition that has none. The topic's configuration does not allow unclean elections,
    but that does not matter here."""
    context, topic_id = cluster()
    results = context.elect({"t": [0, 2]}, election_type=ElectionType.UNCLEAN)
    assert {key: outcome(result) for key, result in results.items()} == {
        ("t", 0): NEEDLESS,
        ("t", 2): (ErrorCode.NONE, None),
    }
    assert context.records == [change(topic_id, 2, isr=[2], leader=2, leader_recovery_state=1)]
    assert context.event("leaders_elected") == {"election_type": "unclean", "partitions": 1}
    context.fence(2)
    assert outcome(context.elect({"t": [2]}, election_type=ElectionType.UNCLEAN)["t", 2]) == NOBODY


def test_an_unclean_election_revives_a_lost_replica() -> None:
    """Both replicas are lost with their directories, so only an election that the administrator requests can give the
    partition a leader. That leader starts with an empty log."""
    context, topic_id = cluster()
    context.fence(2)
    context.heartbeat(1)
    context.heartbeat(2)
    context.assign(1, {}, ids={LOST: [TopicIdPartition(topic_id, 2)]})
    context.assign(2, {}, ids={LOST: [TopicIdPartition(topic_id, 2)]})
    assert context.leader_and_isr(topic_id, 2) == (NO_LEADER, [1])
    assert outcome(context.elect({"t": [2]}, election_type=ElectionType.UNCLEAN)["t", 2]) == (ErrorCode.NONE, None)
    assert context.records == [
        change(topic_id, 2, leader=1, directories=[UNASSIGNED, LOST], leader_recovery_state=1),
    ]


def test_all_partitions() -> None:
    """The response omits partitions that need no election."""
    context, _ = cluster()
    assert {key: outcome(result) for key, result in context.elect().items()} == {
        ("t", 0): NO_PREFERRED,
        ("t", 2): NO_PREFERRED,
    }
    results = context.elect(election_type=ElectionType.UNCLEAN)
    assert {key: outcome(result) for key, result in results.items()} == {("t", 2): (ErrorCode.NONE, None)}


def test_a_partition_named_twice_is_elected_once() -> None:
    context, topic_id = cluster()
    context.elect({"t": [2, 2]}, election_type=ElectionType.UNCLEAN)
    assert context.records == [change(topic_id, 2, isr=[2], leader=2, leader_recovery_state=1)]


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller refuses an unknown election type, unless it is to elect nothing (as Apache Kafka), and a request that
    needs more elections than the limit."""
    context, _ = cluster()
    assert context.elect({}, election_type=2) == {}
    with pytest.raises(ApiError) as refused:
        context.elect(election_type=2)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, "Unknown election type 2")
    monkeypatch.setattr(operation, "RECORDS_PER_REQUEST_MAX", 0)
    with pytest.raises(ApiError) as refused:
        context.elect(election_type=ElectionType.UNCLEAN)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
