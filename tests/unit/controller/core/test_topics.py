"""Topic creation and deletion: the records of good requests, the error codes of bad ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from common.ids import ZERO_UUID, BrokerId, TopicId, Uuid
from common.metadata.directory_ids import MIGRATING, UNASSIGNED
from common.metadata.topic_names import collision_key
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from common.records.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from controller.core import topics
from controller.core.placement import place_replicas
from tests.unit.controller.core.context import ControllerContext, directory


def cluster(brokers: int = 3) -> ControllerContext:
    """Registers brokers with two directories each, and broker 9 with only one."""
    controller = ControllerContext()
    for broker_id in range(1, brokers + 1):
        controller.start(broker_id, [f"{broker_id}-a", f"{broker_id}-b"])
    return controller


# --- creation ---------------------------------------------------------------------------------------------------


def test_a_manual_assignment_is_followed() -> None:
    """The topic's configuration records come first, then the topic record, then its partitions. A replica gets its broker's
    directory if the broker has only one. The response has the topic's id, its size and the whole effective configuration."""
    controller = cluster()
    controller.start(9, ["only"])
    response = controller.create("t", [[1, 9], [9, 2]], configs={"retention.ms": "5"})
    result = response.topics[0]
    topic_id = TopicId(result.topic_id)
    assert controller.records == [
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        TopicRecord(name="t", topic_id=topic_id),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1, 9],
            isr=[1, 9],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[UNASSIGNED, directory("only")],
        ),
        PartitionRecord(
            partition_id=1,
            topic_id=topic_id,
            replicas=[9, 2],
            isr=[9, 2],
            leader=9,
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory("only"), UNASSIGNED],
        ),
    ]
    assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 2, 2)
    assert result.configs is not None
    sources = {config.name: (config.value, config.config_source) for config in result.configs}
    assert sources["retention.ms"] == ("5", 1)
    assert sources["unclean.leader.election.enable"] == ("false", 5)


def test_minus_one_means_the_servers_defaults() -> None:
    """A partition count and a replication factor of -1 mean the server's defaults."""
    controller = cluster()
    controller.settings = replace(
        controller.settings,
        num_partitions=4,
        default_replication_factor=2,
    )
    result = controller.create("t").topics[0]
    assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 4, 2)
    topic = controller.state.topics[TopicId(result.topic_id)]
    assert [len(partition.replicas) for partition in topic.partitions.values()] == [2, 2, 2, 2]


def test_fenced_replicas_are_not_in_the_first_isr() -> None:
    """KAFKA-13083: the first ISR has only unfenced replicas. The leader is the first replica that can lead."""
    controller = cluster()
    controller.fence(1)
    topic_id = controller.topic("t", [[1, 2, 3]])
    assert controller.leader_and_isr(topic_id) == (2, [2, 3])


def test_below_17_partitions_are_migrating() -> None:
    """Below metadata.version 17 the partition record has no directories."""
    controller = ControllerContext(level=16)
    controller.start(1)
    topic_id = controller.topic("t", [[1]])
    assert controller.partition(topic_id).directories == (MIGRATING,)
    assert controller.last_records[-1].version == 0


def test_validate_only_writes_nothing() -> None:
    """The response is the same as for a creation, except for the id."""
    controller = cluster()
    response = controller.create("t", partitions=3, replication_factor=2, validate_only=True)
    assert controller.records == []
    assert response.topics[0].error_code == ErrorCode.NONE
    assert response.topics[0].topic_id == ZERO_UUID
    assert response.topics[0].num_partitions == 3


BAD_NUMBERS = [
    (0, 1, ErrorCode.INVALID_PARTITIONS),
    (-2, 1, ErrorCode.INVALID_PARTITIONS),
    (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
    (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
    (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    (10_000, 1, ErrorCode.POLICY_VIOLATION),
    (2**31 - 1, 32_767, ErrorCode.POLICY_VIOLATION),
]


@pytest.mark.parametrize(("partitions", "factor", "code"), BAD_NUMBERS)
def test_impossible_numbers_are_refused_and_write_nothing(partitions: int, factor: int, code: ErrorCode) -> None:
    """The numbers are zero or negative, or ask for more replicas than brokers or for more records than one request may
    write."""
    controller = cluster()
    response = controller.create("t", partitions=partitions, replication_factor=factor)
    assert response.topics[0].error_code == code
    assert response.topics[0].error_message
    assert controller.records == []


BAD_ASSIGNMENTS: list[tuple[Sequence[Sequence[int]], ErrorCode]] = [
    ([[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ([[1, 2], [1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ([[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ([[1, 77]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ([[1], [3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
]


@pytest.mark.parametrize(("assignments", "code"), BAD_ASSIGNMENTS)
def test_impossible_assignments_are_refused_and_write_nothing(assignments: Sequence[Sequence[int]], code: ErrorCode) -> None:
    """The bad assignments are empty, of uneven length, or name a broker twice, an unknown broker, or only a fenced broker
    (3)."""
    controller = cluster()
    controller.fence(3)
    assert controller.create("t", assignments).topics[0].error_code == code
    assert controller.records == []


def test_assignments_leave_the_numbers_at_minus_one() -> None:
    """Like Kafka, the controller refuses an assignment together with a partition count or a replication factor."""
    controller = cluster()
    assert controller.create("t", [[1]], partitions=1).topics[0].error_code == ErrorCode.INVALID_REQUEST
    assert controller.create("t", [[1]], replication_factor=1).topics[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("indexes", [[0, 0], [1, 2], [0, 2]])
def test_partitions_are_numbered_from_zero_without_gaps(indexes: list[int]) -> None:
    """These indexes are refused: the same index twice, indexes that do not start at zero, and indexes with a gap."""
    controller = cluster()
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in indexes],
    )
    response = controller.create_request(CreateTopicsRequest(topics=[topic]))
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("there.is", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("there_is", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
    ],
)
def test_illegal_or_taken_names_are_refused_and_write_nothing(name: str, code: ErrorCode) -> None:
    """These names are refused: illegal ones, existing ones, ones that differ from an existing one only in '.' and '_', and
    that of the metadata log."""
    controller = cluster()
    controller.topic("there_is", [[1]])
    assert controller.create(name, [[1]]).topics[0].error_code == code
    assert controller.records == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("taken", "Topic 'taken' already exists."),
        ("__cluster_metadata", "Creation of internal topic __cluster_metadata is prohibited."),
    ],
)
def test_refused_names_get_kafkas_message(name: str, message: str) -> None:
    """Scripts that create topics look for these words in the output of kafka-topics."""
    controller = cluster()
    controller.topic("taken", [[1]])
    assert controller.create(name, [[1]]).topics[0].error_message == message


@pytest.mark.parametrize(
    "configs",
    [{"no.such.key": "1"}, {"retention.ms": "soon"}, {"retention.ms": None}, {"preallocate": "true"}],
)
def test_bad_configurations_are_refused_and_write_nothing(configs: Mapping[str, str | None]) -> None:
    """These configuration keys are refused: unknown ones, and ones with a malformed value, without a value, or without
    effect in this version."""
    controller = cluster()
    response = controller.create("t", [[1]], configs=configs)
    assert response.topics[0].error_code == ErrorCode.INVALID_CONFIG
    assert controller.records == []


def test_a_configuration_that_asks_for_what_is_done_anyway_is_kept() -> None:
    """preallocate=false has no effect, but it is stored as the topic's own setting. In the response, all settings that the
    topic does not have are marked as defaults."""
    controller = cluster()
    configs = {"leader.replication.throttled.replicas": "", "preallocate": "false"}
    result = controller.create("t", [[1]], configs=configs).topics[0]
    assert result.error_code == ErrorCode.NONE
    assert controller.records[:2] == [
        ConfigRecord(resource_type=2, resource_name="t", name="leader.replication.throttled.replicas", value=""),
        ConfigRecord(resource_type=2, resource_name="t", name="preallocate", value="false"),
    ]
    assert controller.state.configs == {(2, "t"): configs}
    assert result.configs is not None
    sources = {config.name: (config.value, config.config_source) for config in result.configs}
    assert sources["preallocate"] == ("false", 1)
    assert sources["leader.replication.throttled.replicas"] == ("", 1)
    assert sources["compression.type"] == ("producer", 5)


def test_topics_of_one_request_stand_for_themselves() -> None:
    """The bad topic and the topic named twice get errors, and the good topic is created. Names may not collide within the
    request either."""
    controller = cluster()
    assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    names = ["good_one", "twice", "good.one", "twice", "bad/"]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignment) for name in names
        ]
    )
    response = controller.create_request(request)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("good_one", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("good.one", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("bad/", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert list(controller.state.topic_ids) == ["good_one"]


def test_the_limit_of_records_holds_for_the_whole_request() -> None:
    """The second large topic exceeds the limit together with the first."""
    controller = cluster(1)
    topics = [CreatableTopic(name=name, num_partitions=6_000, replication_factor=1) for name in ("one", "two", "three")]
    topics[2].num_partitions = 1
    controller.check_invariants = lambda: None  # type: ignore[method-assign]
    response = controller.create_request(CreateTopicsRequest(topics=topics))
    assert [topic.error_code for topic in response.topics] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
    ]
    assert controller.state.partition_count == 6_001


def test_refused_topics_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition records of each large topic would just fit into one request, but with the topic's own record they do
    not. The topic is refused before any replicas are placed."""
    controller = cluster()
    placed: list[int] = []

    def place(*args: Any, partitions: int, **others: Any) -> list[tuple[BrokerId, ...]]:
        placed.append(partitions)
        return place_replicas(*args, partitions=partitions, **others)

    monkeypatch.setattr(topics, "place_replicas", place)
    wishes = [CreatableTopic(name=f"t{number}", num_partitions=10_000, replication_factor=3) for number in range(20)]
    # One topic that would fit without its configuration record, and one that fits.
    config = CreatableTopicConfig(name="retention.ms", value="5")
    wishes.append(CreatableTopic(name="large", num_partitions=9_999, replication_factor=3, configs=[config]))
    wishes.append(CreatableTopic(name="small", num_partitions=5, replication_factor=3, configs=[config]))
    response = controller.create_request(CreateTopicsRequest(topics=wishes, validate_only=True))
    codes = [topic.error_code for topic in response.topics]
    assert codes == [ErrorCode.POLICY_VIOLATION] * 21 + [ErrorCode.NONE]
    assert placed == [5]


def test_names_are_compared_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of name comparisons is linear in the number of existing and new topics, not proportional to their
    product."""
    controller = cluster()
    for number in range(300):
        record = TopicRecord(name=f"t_{number}", topic_id=TopicId(Uuid(number.to_bytes(16, "big"))))
        controller.state.replay(record, offset=controller.next_write_offset)
    looked_at: list[str] = []

    def key(name: str) -> str:
        looked_at.append(name)
        return collision_key(name)

    monkeypatch.setattr(topics, "collision_key", key)
    names = [*(f"u_{number}" for number in range(200)), "t.7", "u.7"]
    wishes = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    response = controller.create_request(CreateTopicsRequest(topics=wishes, validate_only=True))
    codes = [topic.error_code for topic in response.topics]
    assert codes == [ErrorCode.NONE] * 200 + [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2
    assert len(looked_at) < 300 + 4 * len(names)


def test_a_topic_needs_an_unfenced_broker() -> None:
    """All registered brokers are fenced, so no replica can be placed."""
    controller = cluster(2)
    controller.fence(1)
    controller.fence(2)
    response = controller.create("t", partitions=1, replication_factor=1)
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


# --- deletion ---------------------------------------------------------------------------------------------------


def test_topics_are_deleted_by_name_and_by_id() -> None:
    """The response has name and id even if the request gave only one of them, and nothing of the topic remains."""
    controller = cluster()
    one = controller.topic("one", [[1]], configs={"retention.ms": "5"})
    two = controller.topic("two", [[1]])
    response = controller.delete("one", ids=[two])
    assert controller.records == [RemoveTopicRecord(topic_id=two), RemoveTopicRecord(topic_id=one)]
    assert [(each.name, each.topic_id, each.error_code) for each in response.responses] == [
        ("two", two, ErrorCode.NONE),
        ("one", one, ErrorCode.NONE),
    ]
    assert controller.state.topics == {}
    assert controller.state.configs == {}


def test_a_deletion_that_fails_leaves_the_others_alone() -> None:
    """Entries with an unknown name, with an unknown id, and with neither get errors. The valid topic in the same request is
    deleted."""
    controller = cluster()
    one = controller.topic("one", [[1]])
    response = controller.delete("none", "one", ids=[TopicId(Uuid(b"?" * 16)), TopicId(ZERO_UUID)])
    assert [each.error_code for each in response.responses] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert controller.records == [RemoveTopicRecord(topic_id=one)]


@pytest.mark.parametrize(("names", "has_id"), [(["t", "t"], False), (["t"], True)])
def test_a_topic_named_twice_is_not_deleted(names: list[str], has_id: bool) -> None:
    """The topic is refused, whether by name or by id. The other topic in the request is deleted."""
    controller = cluster()
    topic_id, other = controller.topic("t", [[1]]), controller.topic("other", [[1]])
    response = controller.delete(*names, "other", ids=[topic_id] if has_id else [])
    *refused, deleted = [each.error_code for each in response.responses]
    assert set(refused) == {ErrorCode.INVALID_REQUEST}
    assert deleted == ErrorCode.NONE
    assert controller.records == [RemoveTopicRecord(topic_id=other)]


def test_a_name_or_an_id_that_occurs_twice_has_one_answer() -> None:
    """As in Apache Kafka, even if there is no such topic."""
    controller = cluster()
    one = controller.topic("one", [[1]])
    unknown = TopicId(Uuid(b"?" * 16))
    response = controller.delete("none", "none", ids=[one, one, one, unknown, unknown])
    assert [(each.name, each.topic_id, each.error_code) for each in response.responses] == [
        (None, one, ErrorCode.INVALID_REQUEST),
        (None, unknown, ErrorCode.INVALID_REQUEST),
        ("none", ZERO_UUID, ErrorCode.INVALID_REQUEST),
    ]
    assert controller.records == []


def test_deletion_may_be_disabled() -> None:
    """With delete.topic.enable=false, every topic is refused."""
    controller = cluster()
    controller.topic("one", [[1]])
    controller.settings = replace(
        controller.settings,
        is_topic_deletion_enabled=False,
    )
    assert controller.delete("one").responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert controller.records == []
