"""KeyPartitions: a key stays in its partition while the topic grows."""

from broker.coordinator.core.group_partition import group_partition
from broker.coordinator.core.key_partitions import KeyPartitions
from common.ids import TopicIdPartition
from common.metadata.state import MetadataState
from common.records.metadata_records import RemoveTopicRecord
from tests.unit.common.metadata.builders import partition, replay, topic, topic_id

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
# Its partition is 1 of 2, but 0 of 3.
GROUP = "group-5"


def image() -> MetadataState:
    """__consumer_offsets has two partitions."""
    return replay(topic(1, OFFSETS), partition(1, 0, [1]), partition(1, 1, [1]))


def test_the_keys_of_a_topic_that_grows_stay_where_they_are() -> None:
    state = image()
    known = KeyPartitions(state)
    known.metadata_changed()
    replay(partition(1, 2, [1]), into=state)
    known.metadata_changed()
    assert known.find(OFFSETS, GROUP) == TopicIdPartition(topic_id(1), 1)


def test_a_broker_that_starts_later_takes_the_new_number() -> None:
    state = image()
    replay(partition(1, 2, [1]), into=state)
    assert group_partition(GROUP, 3) == 0
    assert KeyPartitions(state).find(OFFSETS, GROUP) == TopicIdPartition(topic_id(1), 0)


def test_what_a_starting_broker_replays_is_not_the_first_number() -> None:
    """A client asks while the broker replays what was before its start."""
    state = image()
    known = KeyPartitions(state)
    assert known.find(OFFSETS, GROUP) == TopicIdPartition(topic_id(1), 1)
    replay(partition(1, 2, [1]), into=state)
    known.metadata_changed()
    assert known.find(OFFSETS, GROUP) == TopicIdPartition(topic_id(1), 0)


def test_a_topic_that_was_made_again_is_counted_again() -> None:
    state = image()
    known = KeyPartitions(state)
    assert known.find(OFFSETS, GROUP) == TopicIdPartition(topic_id(1), 1)
    replay(RemoveTopicRecord(topic_id=topic_id(1)), into=state)
    assert known.find(OFFSETS, GROUP) is None
    replay(topic(2, OFFSETS), *(partition(2, index, [1]) for index in range(3)), into=state)
    assert known.find(OFFSETS, GROUP) == TopicIdPartition(topic_id(2), 0)


def test_each_topic_has_its_own_number() -> None:
    state = image()
    known = KeyPartitions(state)
    assert known.find(TRANSACTIONS, GROUP) is None
    replay(topic(2, TRANSACTIONS), partition(2, 0, [1]), into=state)
    assert known.find(TRANSACTIONS, GROUP) == TopicIdPartition(topic_id(2), 0)
    assert known.find(OFFSETS, GROUP) == TopicIdPartition(topic_id(1), 1)
