"""The invariants of a MetadataState after any history."""

from common.ids import NO_LEADER, BrokerId, DirectoryId, TopicIdPartition
from common.metadata.state import MetadataState


def check_indexes(state: MetadataState) -> None:
    """Checks that the indexes match a scan of all partitions and that every partition keeps the invariants."""
    in_directory: dict[tuple[BrokerId, DirectoryId], set[TopicIdPartition]] = {}
    of_broker: dict[BrokerId, set[TopicIdPartition]] = {}
    in_isr: dict[BrokerId, set[TopicIdPartition]] = {}
    led_by: dict[BrokerId, set[TopicIdPartition]] = {}
    reassigning: set[TopicIdPartition] = set()
    count = 0
    for topic_id, topic in state.topics.items():
        assert topic.id == topic_id
        assert state.topic_ids[topic.name] == topic_id
        for index, partition in topic.partitions.items():
            count += 1
            key = TopicIdPartition(topic_id, index)
            assert len(partition.directories) == len(partition.replicas)
            assert set(partition.isr) <= set(partition.replicas)
            assert partition.leader == NO_LEADER or partition.leader in partition.isr
            for broker_id, directory_id in zip(partition.replicas, partition.directories, strict=True):
                in_directory.setdefault((broker_id, directory_id), set()).add(key)
                of_broker.setdefault(broker_id, set()).add(key)
            for broker_id in partition.isr:
                in_isr.setdefault(broker_id, set()).add(key)
            led_by.setdefault(partition.leader, set()).add(key)
            if partition.adding_replicas or partition.removing_replicas:
                reassigning.add(key)
    assert count == state.partition_count
    assert len(state.topic_ids) == len(state.topics)
    held = state._index
    indexed_directories = {
        (broker_id, directory_id) for broker_id, directories in held._in_directory.items() for directory_id in directories
    }
    assert indexed_directories == set(in_directory)
    assert set(held._in_directory) == set(of_broker)
    for (broker_id, directory_id), keys in in_directory.items():
        assert_same(state.partitions_in_directory(broker_id, directory_id), keys)
    for broker_id, keys in of_broker.items():
        assert_same(state.partitions_of_broker(broker_id), keys)
    assert set(held._with_isr_member) == set(in_isr)
    for broker_id, keys in in_isr.items():
        assert_same(state.partitions_with_broker_in_isr(broker_id), keys)
    assert set(held._led_by) == set(led_by)
    for broker_id, keys in led_by.items():
        assert_same(state.partitions_led_by(broker_id), keys)
        assert state.leads_any(broker_id)
    assert_same(state.reassigning_partitions(), reassigning)


def assert_same(listed: list[TopicIdPartition], expected: set[TopicIdPartition]) -> None:
    assert len(listed) == len(expected)
    assert set(listed) == expected
