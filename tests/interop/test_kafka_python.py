"""kafka-python, the only Python client with DescribeLogDirs: producing, consuming by assignment, administration."""

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.topics import wait_until_listed
from tests.interop.waiting import until_equal
from tools.lab.local_cluster import LocalCluster

with warnings.catch_warnings():
    # kafka-python loads its schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
    from kafka.structs import OffsetAndMetadata

MS_MAX = 60_000
TIMESTAMP = 1_700_000_000_000
RECORDS = 50


@pytest.fixture
def servers(bootstrap: str) -> list[str]:
    return bootstrap.split(",")


@pytest.fixture
def admin(servers: list[str]) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=MS_MAX)
    yield client
    client.close()


@pytest.fixture
def consumer(servers: list[str]) -> Iterator[Any]:
    client = KafkaConsumer(bootstrap_servers=servers, check_crcs=True, auto_offset_reset="none")
    yield client
    client.close()


def produce(servers: list[str], topic: str, **settings: Any) -> list[int]:
    """Writes numbered records to partition 0 and returns the acknowledged offsets."""
    producer = KafkaProducer(
        bootstrap_servers=servers, enable_idempotence=settings.get("acks") == "all", linger_ms=5, **settings
    )
    pending = [
        producer.send(
            topic,
            None if number == 7 else f"value {number}".encode(),
            key=None if number == 8 else f"key {number}".encode(),
            headers=[("number", str(number).encode()), ("empty", b"")],
            partition=0,
            timestamp_ms=TIMESTAMP + number,
        )
        for number in range(RECORDS)
    ]
    offsets = [each.get(MS_MAX / 1000).offset for each in pending]
    producer.close()
    return offsets


def read(consumer: Any, topic: str, count: int) -> list[Any]:
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    records: list[Any] = []
    while len(records) < count:
        batch = consumer.poll(timeout_ms=MS_MAX)
        assert batch, f"{len(records)} of {count} records came"
        records.extend(batch[partition])
    return records


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_what_is_written_is_read(servers: list[str], topic: str, consumer: Any, acks: str | int, compression: str) -> None:
    """Values, keys, headers, timestamps and nulls come back equal, in order, at consecutive offsets."""
    offsets = produce(servers, topic, acks=acks, compression_type=compression)
    if acks != 0:
        assert offsets == list(range(RECORDS))
    records = read(consumer, topic, RECORDS)
    assert [record.offset for record in records] == list(range(RECORDS))
    for number, record in enumerate(records):
        assert record.value == (None if number == 7 else f"value {number}".encode())
        assert record.key == (None if number == 8 else f"key {number}".encode())
        assert record.headers == [("number", str(number).encode()), ("empty", b"")]
        assert record.timestamp == TIMESTAMP + number


def test_offsets_of_a_partition(servers: list[str], topic: str, consumer: Any) -> None:
    """The consumer gets the beginning offset, the end offset and the offset for a timestamp."""
    produce(servers, topic, acks="all")
    partition, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert consumer.beginning_offsets([partition, empty]) == {partition: 0, empty: 0}
    assert consumer.end_offsets([partition, empty]) == {partition: RECORDS, empty: 0}
    found = consumer.offsets_for_times({partition: TIMESTAMP + 20, empty: 0})
    assert (found[partition].offset, found[partition].timestamp) == (20, TIMESTAMP + 20)
    assert found[empty] is None
    assert consumer.partitions_for_topic(topic) == {0, 1, 2}


def test_every_replica_is_described_in_one_directory_with_the_size_of_its_files(
    admin: Any, servers: list[str], topic: str, cluster: LocalCluster
) -> None:
    """Every directory of every broker is listed with its space. Each replica of the topic is in exactly one directory of its
    broker, with the size of its files."""
    produce(servers, topic, acks="all")
    described = {entry["broker"]: entry["log_dirs"] for entry in admin.describe_log_dirs([topic])}
    assert sorted(described) == [1, 2, 3]
    for broker_id, log_dirs in described.items():
        assert [each["log_dir"] for each in log_dirs] == list(cluster.broker(broker_id).files.data_dirs)
        assert {each["error_code"] for each in log_dirs} == {0}
        assert all(each["total_bytes"] > each["usable_bytes"] > 0 for each in log_dirs)
        found = [
            (part["partition_index"], each["log_dir"], part)
            for each in log_dirs
            for entry in each["topics"]
            for part in entry["partitions"]
        ]
        assert sorted(index for index, _, _ in found) == [0, 1, 2]
        for index, path, part in found:
            assert not part["is_future_key"]
            segment = os.path.join(path, f"{topic}-{index}", "0".zfill(20) + ".log")
            assert part["partition_size"] == os.path.getsize(segment)
            assert (part["partition_size"] > 0) == (index == 0)


def test_topics_are_created_listed_and_deleted(admin: Any, bootstrap: str, new_topic_name: Callable[[], str]) -> None:
    """The topic gets the configuration that the response shows. Creating or deleting it again is an error."""
    name = new_topic_name()
    wanted = {name: {"num_partitions": 4, "replication_factor": 2, "configs": {"retention.ms": "5000000"}}}
    (created,) = admin.create_topics(wanted, wait_for_metadata=True)["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (4, 2)
    assert created["configs"]["retention.ms"]["value"] == "5000000"
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(wanted)
    wait_until_listed(bootstrap, name)
    assert name in admin.list_topics()
    (described,) = admin.describe_topics([name])
    assert [part["partition_index"] for part in described["partitions"]] == [0, 1, 2, 3]
    assert all(sorted(part["isr_nodes"]) == sorted(part["replica_nodes"]) for part in described["partitions"])
    admin.delete_topics([name])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_the_cluster_and_its_quorum_are_described(admin: Any, cluster: LocalCluster) -> None:
    """The client gets the brokers, the cluster id, and the metadata quorum with the controller
    as its leader and the brokers as observers."""
    described = admin.describe_cluster()
    assert described["cluster_id"] == cluster.cluster_id
    assert {(broker["broker_id"], broker["port"]) for broker in described["brokers"]} == {
        (node.files.node_id, node.files.port) for node in cluster.brokers
    }
    assert described["controller_id"] in {1, 2, 3}
    quorum = admin.describe_metadata_quorum()
    (topic,) = quorum["topics"]
    (partition,) = topic["partitions"]
    assert (topic["topic_name"], partition["leader_id"]) == ("__cluster_metadata", cluster.controller.files.node_id)
    assert [voter["replica_id"] for voter in partition["current_voters"]] == [cluster.controller.files.node_id]
    assert sorted(observer["replica_id"] for observer in partition["observers"]) == [1, 2, 3]
    assert partition["high_watermark"] > 0
    assert admin.describe_features()["metadata.version"]["finalized"] == (21, 21)


def test_transactional_ids_are_listed_by_a_pattern(admin: Any, servers: list[str], topic: str) -> None:
    """The whole id has to match (KIP-1152), and an expression that is none is refused as such."""
    ids = [f"{topic}/eu west", f"{topic}/\u00fc", f"my {topic}/eu west"]
    for transactional_id in ids:
        producer = KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
        producer.init_transactions()
        producer.close()

    def listed(pattern: str) -> list[str]:
        by_broker = admin.list_transactions(transactional_id_pattern=pattern)
        return sorted(each.transactional_id for found in by_broker.values() for each in found)

    assert listed(f".*{topic}.*") == sorted(ids)
    assert listed(f"\\Q{topic}\\E/\\pL") == [ids[1]]
    assert listed(f"{topic}.*\\bwest") == [ids[0]]
    assert listed(topic) == []
    # kafka-python has no name for INVALID_REGULAR_EXPRESSION.
    with pytest.raises(KafkaError, match="error_code=128"):
        listed("(")


def test_groups_are_listed_described_and_deleted(admin: Any, servers: list[str], topic: str) -> None:
    """A consumer that only commits makes a group without members."""
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=topic, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(7, "where I am", -1)})
    assert consumer.committed(partition) == 7
    consumer.close()
    until_equal(lambda: topic in {group["group_id"] for group in admin.list_groups()}, True)
    assert admin.list_group_offsets(topic)[topic][partition].metadata == "where I am"
    admin.delete_groups([topic])
    until_equal(lambda: topic in {group["group_id"] for group in admin.list_groups()}, False)
