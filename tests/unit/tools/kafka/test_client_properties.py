"""Settings of the Java clients as librdkafka takes them."""

import pytest
from confluent_kafka import Producer

from tools.errors import ToolError
from tools.kafka.client_properties import consumer_settings, key_values, merged, producer_settings


def test_arguments_with_a_key_and_a_value() -> None:
    assert key_values(["a=1", "b=", "a=2=3"], "--property") == {"a": "2=3", "b": ""}
    for wrong in ("a", "=1", ""):
        with pytest.raises(ToolError, match=r"--property .* is not KEY=VALUE"):
            key_values([wrong], "--property")


def test_options_come_before_properties_and_these_before_defaults() -> None:
    options = {"a": (1, 9), "b": (None, 9), "c": (None, 9), "d": (0, 9)}
    assert merged({"a": "5", "b": "5"}, options) == {"a": "1", "b": "5", "c": "9", "d": "0"}


def test_a_producer() -> None:
    """Names of Java are translated or left out. The defaults are Java's, and keys have Java's partitions."""
    given = {
        "linger.ms": "5",
        "buffer.memory": "33554432",
        "max.request.size": "77",
        "send.buffer.bytes": "-1",
        "receive.buffer.bytes": "9",
        "key.serializer": "x",
        "max.block.ms": "1",
        "unknown": "is passed on",
    }
    assert producer_settings(given) == {
        "linger.ms": "5",
        "queue.buffering.max.kbytes": "32768",
        "message.max.bytes": "77",
        "socket.receive.buffer.bytes": "9",
        "unknown": "is passed on",
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": "120000",
        "enable.idempotence": "true",
    }


@pytest.mark.parametrize(
    ("given", "is_idempotent"),
    [
        ({"acks": "all"}, "true"),
        ({"acks": "-1", "retries": "3"}, "true"),
        ({"acks": "1"}, "false"),
        ({"retries": "0"}, "false"),
        ({"acks": "1", "enable.idempotence": "true"}, "true"),
    ],
)
def test_idempotence_is_on_where_it_can_be(given: dict[str, str], is_idempotent: str) -> None:
    """As in Java, it is off if the user chose weaker acks or no retries. A contradiction is left to librdkafka."""
    assert producer_settings(given)["enable.idempotence"] == is_idempotent


def test_acks_that_the_java_client_does_not_know_are_refused() -> None:
    with pytest.raises(ToolError, match="acks=2 is not valid; it takes all, -1, 0, 1"):
        producer_settings({"acks": "2"})


@pytest.mark.parametrize(
    ("given", "delivery_timeout"),
    [
        ({}, "60000"),
        ({"transaction.timeout.ms": "5000"}, "5000"),
        ({"transaction.timeout.ms": "5000", "delivery.timeout.ms": "7000"}, "5000"),
        ({"transaction.timeout.ms": "5000", "delivery.timeout.ms": "3000"}, "3000"),
        ({"transaction.timeout.ms": "900000"}, "120000"),
    ],
)
def test_a_record_fits_into_its_transaction(given: dict[str, str], delivery_timeout: str) -> None:
    """librdkafka refuses a record that may wait for longer than its transaction may take, so each case must give a
    producer."""
    settings = producer_settings(given | {"transactional.id": "x"})
    assert settings["delivery.timeout.ms"] == delivery_timeout
    Producer(settings | {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})


def test_a_wrong_number_of_bytes() -> None:
    with pytest.raises(ToolError, match=r"buffer\.memory=much is not a number of bytes"):
        producer_settings({"buffer.memory": "much"})


def test_a_consumer() -> None:
    names = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor, range"
    given = {
        "fetch.max.wait.ms": "5",
        "partition.assignment.strategy": names,
        "request.timeout.ms": "7",
        "max.poll.records": "3",
        "isolation.level": "read_committed",
    }
    assert consumer_settings(given) == {
        "fetch.wait.max.ms": "5",
        "partition.assignment.strategy": "cooperative-sticky,range",
        "socket.timeout.ms": "7",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": "true",
    }
    assert consumer_settings({})["isolation.level"] == "read_uncommitted"
