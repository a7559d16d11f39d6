"""aiokafka with ApiVersions 0 and old message versions: no idempotent producer, and consumers without a group."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.interop.topics import wait_until_listed
from tools.lab.local_cluster import LocalCluster

MS_MAX = 60_000
TIMESTAMP = 1_700_000_000_000
RECORDS = 50


async def produce(bootstrap: str, topic: str, **settings: Any) -> list[int]:
    """Writes numbered records to partition 0. Returns the acknowledged offsets, none with acks=0."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False, **settings)
    await producer.start()
    try:
        pending = [
            await producer.send(
                topic,
                None if number == 7 else f"value {number} ".encode() * 10,
                key=f"key {number}".encode(),
                headers=[("number", str(number).encode())],
                partition=0,
                timestamp_ms=TIMESTAMP + number,
            )
            for number in range(RECORDS)
        ]
        answers = [await each for each in pending]
    finally:
        await producer.stop()
    return [answer.offset for answer in answers if answer is not None]


async def read(bootstrap: str, topic: str, count: int) -> list[Any]:
    partition = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, check_crcs=True, auto_offset_reset="earliest")
    consumer.assign([partition])
    await consumer.start()
    records: list[Any] = []
    try:
        while len(records) < count:
            batch = await consumer.getmany(partition, timeout_ms=MS_MAX)
            assert batch, f"{len(records)} of {count} records came"
            records.extend(batch[partition])
    finally:
        await consumer.stop()
    return records


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", 1, 0])
async def test_what_is_written_is_read(bootstrap: str, topic: str, acks: str | int, compression: str | None) -> None:
    """Values, keys, headers, timestamps and nulls come back equal, in order, at consecutive offsets."""
    offsets = await produce(bootstrap, topic, acks=acks, compression_type=compression)
    assert offsets == ([] if acks == 0 else list(range(RECORDS)))
    records = await read(bootstrap, topic, RECORDS)
    assert [record.offset for record in records] == list(range(RECORDS))
    for number, record in enumerate(records):
        assert record.value == (None if number == 7 else f"value {number} ".encode() * 10)
        assert record.key == f"key {number}".encode()
        assert record.headers == (("number", str(number).encode()),)
        assert record.timestamp == TIMESTAMP + number


async def test_offsets_of_a_partition(bootstrap: str, topic: str) -> None:
    """The consumer gets the beginning offset, the end offset and the offset for a timestamp."""
    await produce(bootstrap, topic, acks="all")
    partition = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    consumer.assign([partition])
    await consumer.start()
    try:
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: RECORDS}
        found = await consumer.offsets_for_times({partition: TIMESTAMP + 20})
        assert (found[partition].offset, found[partition].timestamp) == (20, TIMESTAMP + 20)
    finally:
        await consumer.stop()


async def test_topics_and_the_cluster(bootstrap: str, cluster: LocalCluster, new_topic_name: Callable[[], str]) -> None:
    """A topic is created, listed and deleted; the description of the cluster has its id and its brokers."""
    name = new_topic_name()
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        created = await admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=3)])
        assert [entry[:2] for entry in created.topic_errors] == [(name, 0)]
        await asyncio.to_thread(wait_until_listed, bootstrap, name)
        assert name in await admin.list_topics()
        deleted = await admin.delete_topics([name])
        assert deleted.topic_error_codes == [(name, 0)]
        described = await admin.describe_cluster()
        assert described["cluster_id"] == cluster.cluster_id
        assert sorted(broker["node_id"] for broker in described["brokers"]) == [1, 2, 3]
    finally:
        await admin.close()
