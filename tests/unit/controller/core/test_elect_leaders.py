"""ElectLeaders: preferred and unclean elections, their records and the result of every partition."""

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
    """Brokers 1, 2 and 3. Broker 1 was away: the first partition of t has lost its preferred leader, the second is led by
    its own, and in the third broker 1 was the only one in sync."""
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
    """The first replica leads if it is in the ISR and can lead. All partitions are tried, each with its own result."""
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
    """Not even where the topic allows it: the sweep of leaderless partitions does that."""
    context, _ = cluster(unclean=True)
    context.fence(2)
    assert outcome(context.elect({"t": [0]})["t", 0]) == NO_PREFERRED


def test_unclean_elections() -> None:
    """Only a partition without a leader gets one, whatever the topic's configuration says."""
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
    """The last way to a leader, at the administrator's request."""
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
    """What needs no election is left out of the response."""
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
    """An election type that does not exist, and more elections than one request may hold."""
    context, _ = cluster()
    with pytest.raises(ApiError) as refused:
        context.elect(election_type=2)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, "Unknown election type 2")
    monkeypatch.setattr(operation, "RECORDS_PER_REQUEST_MAX", 0)
    with pytest.raises(ApiError) as refused:
        context.elect(election_type=ElectionType.UNCLEAN)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
