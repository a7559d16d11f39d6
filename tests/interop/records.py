"""Writes records and reads all that are committed, with librdkafka."""

from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

SECONDS_MAX = 240.0


def write(bootstrap: str, topic: str, values: Iterable[str]) -> None:
    """Returns once every record is acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failures: list[str] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(str(error)) if error else None)
    assert producer.flush(SECONDS_MAX) == 0
    assert failures == []


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
        ended: set[int | None] = set()
        while len(ended) < partitions:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"{topic} cannot be read to its end"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
            else:
                yield message
    finally:
        consumer.close()
