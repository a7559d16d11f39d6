"""Writes records and reads all that are committed, with librdkafka."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.integration.cluster import until

SECONDS_MAX = 240.0
SECONDS_PER_LINE = 0.01
# What brokers answer from the death of the leader's disk until the next leader knows the end.
BETWEEN_LEADERS = (
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
)


def write(bootstrap: str, topic: str, values: Iterable[str]) -> None:
    """Returns once every record is acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failures: list[str] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(str(error)) if error else None)
    assert producer.flush(SECONDS_MAX) == 0
    assert failures == []


@contextmanager
def being_written(bootstrap: str, topic: str) -> Iterator[Callable[[], int]]:
    """Lines are written all the time. The function ends that and returns their number."""
    over = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failures: list[str] = []
    written = 0

    def write() -> None:
        nonlocal written
        while not over.wait(SECONDS_PER_LINE):
            producer.produce(
                topic, f"line {written}", on_delivery=lambda error, _: failures.append(str(error)) if error else None
            )
            producer.poll(0)
            written += 1

    def end() -> int:
        over.set()
        writer.join()
        assert producer.flush(SECONDS_MAX) == 0
        assert failures == []
        return written

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield end
    finally:
        over.set()
        writer.join()


def committed_records(bootstrap: str, topic: str, *, partitions: int = 1) -> Iterator[Message]:
    """Returns what a reader with read_committed sees, from the start to the present end: in order in each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        # While a topic is written without a pause, its reader may never be at its end, so the end is what it is now.
        ends = {index: _end(consumer, TopicPartition(topic, index)) for index in range(partitions)}
        ended: set[int | None] = {index for index, end in ends.items() if end == 0}
        while len(ended) < partitions:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"{topic} cannot be read to its end"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
            else:
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                if offset + 1 >= ends[partition]:
                    ended.add(partition)
                yield message
    finally:
        consumer.close()


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """Returns the end of a partition. librdkafka repeats a fetch at the next leader, but not this request."""

    def look() -> int | None:
        try:
            return consumer.get_watermark_offsets(partition, timeout=SECONDS_MAX)[1]
        except KafkaException as error:
            if error.args[0].code() not in BETWEEN_LEADERS:
                raise
            return None

    return until(look, f"{partition.topic} has a leader", seconds=SECONDS_MAX)
