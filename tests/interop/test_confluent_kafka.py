"""confluent-kafka (librdkafka): every acks setting and compression type, offsets by time, administration, unsupported
requests."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.interop.topics import wait_until_listed
from tests.interop.waiting import until_equal
from tools.lab.local_cluster import LocalCluster

SECONDS_MAX = 60.0
FIRST_TIMESTAMP = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Sent:
    """One record as passed to the producer; the consumer must return the same."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def records() -> list[Sent]:
    """Ordinary records, and pairs that are easily confused: null and empty keys, values and headers."""
    ordinary = [
        Sent(f"key {n}".encode(), f"value {n} ".encode() * n, (("number", str(n).encode()),), FIRST_TIMESTAMP + n)
        for n in range(200)
    ]
    special = [
        Sent(None, b"no key", (), FIRST_TIMESTAMP + 200),
        Sent(b"no value", None, (), FIRST_TIMESTAMP + 201),
        Sent(b"", b"", (), FIRST_TIMESTAMP + 202),
        Sent(None, None, (("null", None), ("empty", b""), ("twice", b"1"), ("twice", b"2")), FIRST_TIMESTAMP + 203),
        Sent(b"\x00\xff", "größer".encode(), (("ключ", b"\x00"),), FIRST_TIMESTAMP + 204),
    ]
    return ordinary + special


def produce(bootstrap: str, topic: str, sent: Sequence[Sent], settings: dict[str, Any]) -> list[int]:
    """Writes the records to partition 0 and returns the acknowledged offsets."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20} | settings)
    offsets: list[int] = []
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            failures.append(error)
        else:
            offsets.append(message.offset())

    for record in sent:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=0,
            headers=list(record.headers),
            timestamp=record.timestamp,
            on_delivery=delivered,
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert failures == []
    return offsets


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    """A consumer with manually assigned partitions. It checks every batch's CRC."""
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    yield made
    made.close()


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def read(consumer: Consumer, topic: str, count: int, *, offset: int = 0) -> list[Any]:
    """Reads `count` messages of partition 0 from that offset on."""
    consumer.assign([TopicPartition(topic, 0, offset)])
    messages: list[Any] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        for message in consumer.consume(count - len(messages), timeout=1.0):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def as_sent(message: Any) -> Sent:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Sent(message.key(), message.value(), headers, message.timestamp()[1])


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_what_is_written_is_read(bootstrap: str, topic: str, consumer: Consumer, acks: str, compression: str) -> None:
    """Values, keys, headers, timestamps and nulls come back equal and in order, at consecutive offsets."""
    sent = records()
    offsets = produce(bootstrap, topic, sent, {"acks": acks, "compression.type": compression})
    if acks != "0":
        assert offsets == list(range(len(sent)))
    messages = read(consumer, topic, len(sent))
    assert [as_sent(message) for message in messages] == sent
    assert [message.offset() for message in messages] == list(range(len(sent)))


def test_reading_from_the_middle_and_the_end(bootstrap: str, topic: str, consumer: Consumer) -> None:
    """A consumer may start inside a batch, sees the watermarks, and receives what is written while it waits."""
    sent = records()
    produce(bootstrap, topic, sent, {"acks": "all"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS_MAX) == (0, len(sent))
    (message,) = read(consumer, topic, 1, offset=77)
    assert (message.offset(), as_sent(message)) == (77, sent[77])
    consumer.assign([TopicPartition(topic, 0, len(sent))])
    assert consumer.consume(1, timeout=0.2) == []
    produce(bootstrap, topic, [sent[0]], {"acks": "all"})
    (late,) = consumer.consume(1, timeout=SECONDS_MAX)
    assert (late.offset(), as_sent(late)) == (len(sent), sent[0])


def test_records_too_large_for_the_topic_are_refused(bootstrap: str, topic: str) -> None:
    """One record over max.message.bytes fails with MSG_SIZE_TOO_LARGE; the next is written."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4_000_000, "linger.ms": 0})
    outcomes: list[int | None] = []
    for value in (bytes(2_000_000), b"small"):
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: outcomes.append(error.code() if error else None)
        )
        assert producer.flush(SECONDS_MAX) == 0
    assert outcomes == [KafkaError.MSG_SIZE_TOO_LARGE, None]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_time_is_answered_with_the_first_record_at_or_after_it(
    bootstrap: str, topic: str, consumer: Consumer, admin: AdminClient, compression: str
) -> None:
    """A timestamp maps to the first record at or after it, and a timestamp after all records maps to the end."""
    sent = records()
    produce(bootstrap, topic, sent, {"acks": "all", "batch.num.messages": 10, "compression.type": compression})
    for timestamp, offset in (
        (0, 0),
        (FIRST_TIMESTAMP, 0),
        (FIRST_TIMESTAMP + 123, 123),
        (FIRST_TIMESTAMP + len(sent) - 1, len(sent) - 1),
        (FIRST_TIMESTAMP + len(sent), -1),
    ):
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=SECONDS_MAX)
        assert found.offset == offset, timestamp
    empty = TopicPartition(topic, 1)
    assert admin.list_offsets({empty: OffsetSpec.latest()})[empty].result(SECONDS_MAX).offset == 0
    asked = TopicPartition(topic, 0)
    assert admin.list_offsets({asked: OffsetSpec.earliest()})[asked].result(SECONDS_MAX).offset == 0
    for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        latest = admin.list_offsets({asked: OffsetSpec.latest()}, isolation_level=isolation)[asked].result(SECONDS_MAX)
        assert latest.offset == len(sent)
    newest = admin.list_offsets({asked: OffsetSpec.max_timestamp()})[asked].result(SECONDS_MAX)
    assert (newest.offset, newest.timestamp) == (len(sent) - 1, FIRST_TIMESTAMP + len(sent) - 1)


def test_topics_are_created_described_and_deleted(
    bootstrap: str, admin: AdminClient, new_topic_name: Callable[[], str]
) -> None:
    """A topic with configuration is created, described, listed and deleted. Creating or deleting it again is refused."""
    name = new_topic_name()
    new = NewTopic(
        name, num_partitions=4, replication_factor=2, config={"retention.ms": "123456789", "cleanup.policy": "delete"}
    )
    admin.create_topics([new])[name].result(SECONDS_MAX)
    with pytest.raises(KafkaException) as again:
        admin.create_topics([new])[name].result(SECONDS_MAX)
    assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS

    wait_until_listed(bootstrap, name)
    described = admin.describe_topics(TopicCollection([name]))[name].result(SECONDS_MAX)
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3]
    assert all(len(partition.replicas) == 2 and partition.leader is not None for partition in described.partitions)
    assert name in admin.list_topics(timeout=SECONDS_MAX).topics

    resource = ConfigResource(ResourceType.TOPIC, name)
    configs = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    assert configs["retention.ms"].value == "123456789"
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "delete"
    assert not configs["cleanup.policy"].is_default
    assert configs["compression.type"].value == "producer"
    assert configs["compression.type"].is_default
    assert configs["segment.bytes"].value == str(1024**3)
    assert configs["segment.bytes"].is_default

    admin.delete_topics([name])[name].result(SECONDS_MAX)
    until_equal(lambda: name in admin.list_topics(timeout=SECONDS_MAX).topics, False)
    with pytest.raises(KafkaException) as gone:
        admin.delete_topics([name])[name].result(SECONDS_MAX)
    assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"num_partitions": 1, "replication_factor": 9}, KafkaError.INVALID_REPLICATION_FACTOR),
        ({"num_partitions": 1, "config": {"cleanup.policy": "archive"}}, KafkaError.INVALID_CONFIG),
        ({"num_partitions": 1, "config": {"segment.bytes": "many"}}, KafkaError.INVALID_CONFIG),
        ({"num_partitions": 1, "config": {"no.such.key": "1"}}, KafkaError.INVALID_CONFIG),
    ],
)
def test_topics_that_cannot_be_made(
    admin: AdminClient, new_topic_name: Callable[[], str], change: dict[str, Any], code: int
) -> None:
    """Each request is refused with Kafka's code and leaves nothing behind."""
    name = new_topic_name()
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(name, **change)])[name].result(SECONDS_MAX)
    error = refused.value.args[0]
    assert (error.code(), bool(error.str())) == (code, True)
    assert name not in admin.list_topics(timeout=SECONDS_MAX).topics


def test_the_cluster_and_its_brokers_are_described(admin: AdminClient, cluster: LocalCluster) -> None:
    """The client gets the cluster id, the brokers, a broker as controller, and a broker's configuration as in its file."""
    described = admin.describe_cluster().result(SECONDS_MAX)
    assert described.cluster_id == cluster.cluster_id
    assert {(node.id, node.port) for node in described.nodes} == {
        (node.files.node_id, node.files.port) for node in cluster.brokers
    }
    assert described.controller.id in {1, 2, 3}
    resource = ConfigResource(ResourceType.BROKER, "2")
    configs = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    assert configs["log.dirs"].value == ",".join(cluster.broker(2).files.data_dirs)
    assert configs["node.id"].value == "2"


def test_a_configuration_is_changed(topic: str, admin: AdminClient) -> None:
    """The change is in effect. DescribeConfigs names the topic as the value's source."""
    entry = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)

    def described() -> tuple[str | None, bool]:
        [future] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        found = future.result(SECONDS_MAX)["retention.ms"]
        return found.value, found.is_default

    until_equal(described, ("123456", False))


def test_a_configuration_that_is_not_valid_is_refused(topic: str, admin: AdminClient) -> None:
    entry = ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
