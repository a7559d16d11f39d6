"""Reads what a topic holds, with a client that the stories do not depend on."""

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

POLL_SECONDS = 1.0


def stored_values(bootstrap: str, topic: str, *, partitions: int) -> set[bytes]:
    """Returns the values of all records below the high watermarks. Joins no group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "of-no-member",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    unread = set(range(partitions))
    found = set()
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in sorted(unread)])
        while unread:
            for message in consumer.consume(500, timeout=POLL_SECONDS):
                error = message.error()
                if error is None:
                    found.add(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found
