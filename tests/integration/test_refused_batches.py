"""librdkafka's idempotent producer stores nothing twice although a batch of another topic was refused meanwhile.

A topic's record is appended, and waits for a follower that is stopped. On the same connection, a batch of another topic is
refused for lack of in-sync replicas, and the next one comes when there are enough again. If that one were out of order, the
producer would begin a new epoch, and send the waiting record again under a new sequence number (librdkafka issue 4953).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.integration.cluster import WatchedCluster, continue_process, stop_process, until, watched_cluster
from tests.interop.topics import create_topic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LEADER, STOPPED = 1, 3
WAITING, REFUSED = "waiting", "refused"
# How long the waiting record heads the answers of its connection.
REQUEST_TIMEOUT_MS = 10_000
PROBE_TIMEOUT_MS = 3000
SECONDS_MAX = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WatchedCluster]:
    overrides = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "3000"}
    with watched_cluster(tmp_path, disks=1, loop=False, overrides=overrides) as made:
        yield made


def is_accepted(cluster: WatchedCluster) -> bool:
    """Whether a record of another client is accepted by the topic that refuses for lack of in-sync replicas."""
    errors = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "retries": 0, "message.timeout.ms": PROBE_TIMEOUT_MS, "log_level": 0}
    )
    producer.produce(REFUSED, b"probe", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    # Not `errors == [None]`: comparing confluent-kafka's errors with None leaves an exception behind.
    [error] = errors
    return error is None


def need_only_two_replicas(cluster: WatchedCluster) -> None:
    entry = ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, REFUSED, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(SECONDS_MAX)


def read_all(cluster: WatchedCluster, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS_MAX)
    assert high - low >= count
    messages = consumer.consume(high - low, timeout=SECONDS_MAX)
    consumer.close()
    if any(message.error() for message in messages):
        raise KafkaException(*(message.error() for message in messages))
    return [(message.value() or b"").decode() for message in messages]


def test_a_refused_batch_makes_a_producer_store_nothing_twice(cluster: WatchedCluster) -> None:
    create_topic(
        cluster.bootstrap,
        WAITING,
        partitions=1,
        replication_factor=2,
        assignments={0: [LEADER, STOPPED]},
        configs={"min.insync.replicas": "2"},
    )
    create_topic(
        cluster.bootstrap,
        REFUSED,
        partitions=1,
        assignments={0: [LEADER, 2, STOPPED]},
        configs={"min.insync.replicas": "3"},
    )
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "log_level": 0,
        }
    )
    errors: list[object] = []

    def send(topic: str, value: str) -> None:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)

    send(WAITING, "a0")
    send(REFUSED, "b0")
    assert producer.flush(SECONDS_MAX) == 0
    stop_process(cluster.broker(STOPPED))
    send(WAITING, "a1")
    until(lambda: STOPPED not in cluster.partitions(REFUSED)[0].isr_nodes, "an ISR without the stopped broker")
    send(REFUSED, "b1")
    assert not is_accepted(cluster)
    need_only_two_replicas(cluster)
    until(lambda: is_accepted(cluster), "a record accepted by two replicas")
    assert len(errors) == 2, "a record was acknowledged without its follower"
    send(REFUSED, "b2")
    # The waiting record has timed out and is sent again before the follower returns.
    assert producer.flush(REQUEST_TIMEOUT_MS / 1000) >= 1
    continue_process(cluster.broker(STOPPED))
    assert producer.flush(SECONDS_MAX) == 0
    assert len(errors) == 5
    assert all(error is None for error in errors)
    assert read_all(cluster, WAITING, 2) == ["a0", "a1"]
    assert [value for value in read_all(cluster, REFUSED, 3) if value != "probe"] == ["b0", "b1", "b2"]
