"""kafka-python's admin client adds partitions, moves them to other brokers while a producer writes, and elects leaders."""

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.topics import create_topic
from tests.interop.waiting import until_equal

with warnings.catch_warnings():
    # kafka-python loads its schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import (
        ElectionNotNeededError,
        InvalidPartitionsError,
        InvalidReplicationAssignmentError,
        NoReassignmentInProgressError,
    )

MS_MAX = 60_000
POLL_SECONDS = 0.05
PREFERRED = 0


@pytest.fixture
def servers(bootstrap: str) -> list[str]:
    return bootstrap.split(",")


@pytest.fixture
def admin(servers: list[str]) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=MS_MAX)
    yield client
    client.close()


class Writer:
    """Writes numbered records to partition 0 with acks=all, in a thread of its own."""

    def __init__(self, servers: list[str], topic: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self._servers = servers
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _write(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._servers, enable_idempotence=False, acks="all", retries=100)
        while not self._is_over.is_set():
            value = b"value %d" % len(self.acknowledged)
            sent = producer.send(self._topic, value, partition=0).get(MS_MAX / 1000)
            self.acknowledged[sent.offset] = value
        producer.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MS_MAX / 1000
    while not condition():
        assert time.monotonic() < deadline, f"not within {MS_MAX / 1000:g} s"
        time.sleep(POLL_SECONDS)


def described(admin: Any, topic: str, index: int) -> dict[str, Any]:
    (found,) = admin.describe_topics([topic])
    parts: dict[int, dict[str, Any]] = {part["partition_index"]: part for part in found["partitions"]}
    return parts[index]


def test_a_partition_moves_while_records_are_written(
    admin: Any, servers: list[str], bootstrap: str, new_topic_name: Callable[[], str]
) -> None:
    """One of the two replicas moves, and it is the leader's. When no reassignment is listed any more, the replicas are on
    the new brokers, one of which leads, and every acknowledged record can be read at its offset."""
    topic = create_topic(bootstrap, new_topic_name(), partitions=1, replication_factor=2, assignments={0: [1, 2]})
    partition = TopicPartition(topic, 0)
    with Writer(servers, topic) as writer:
        wait_until(lambda: len(writer.acknowledged) > 20)
        assert admin.alter_partition_reassignments({partition: [3, 2]}) == {partition: None}
        listed = admin.list_partition_reassignments([partition])
        assert listed in ({}, {partition: {"replicas": [3, 2, 1], "adding_replicas": [3], "removing_replicas": [1]}})
        wait_until(lambda: admin.list_partition_reassignments([partition]) == {})
        moved = len(writer.acknowledged)
        wait_until(lambda: len(writer.acknowledged) > moved + 20)
    wait_until(lambda: described(admin, topic, 0)["replica_nodes"] == [3, 2])
    found = described(admin, topic, 0)
    assert sorted(found["isr_nodes"]) == [2, 3]
    assert found["leader_id"] in (2, 3)
    consumer = KafkaConsumer(bootstrap_servers=servers, check_crcs=True, auto_offset_reset="none")
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    read: dict[int, bytes] = {}
    while len(read) < len(writer.acknowledged):
        batch = consumer.poll(timeout_ms=MS_MAX)
        assert batch, f"{len(read)} of {len(writer.acknowledged)} records came"
        read |= {record.offset: record.value for record in batch[partition]}
    consumer.close()
    assert writer.acknowledged.items() <= read.items()


def test_reassignments_that_are_refused(admin: Any, bootstrap: str, new_topic_name: Callable[[], str]) -> None:
    """A broker that does not exist is refused as a target. A cancellation is refused if no reassignment is in progress."""
    topic = create_topic(bootstrap, new_topic_name(), partitions=2, replication_factor=2, assignments={0: [1, 2], 1: [2, 3]})
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    results = admin.alter_partition_reassignments({first: [1, 77], second: None})
    assert results == {first: InvalidReplicationAssignmentError, second: NoReassignmentInProgressError}
    assert described(admin, topic, 0)["replica_nodes"] == [1, 2]


def test_the_preferred_leader_changes(admin: Any, bootstrap: str, new_topic_name: Callable[[], str]) -> None:
    """Changing only the order of the replicas moves no data. The new first replica becomes the leader through an election; a
    second election is not needed."""
    topic = create_topic(bootstrap, new_topic_name(), partitions=1, assignments={0: [1, 2, 3]})
    assert admin.alter_partition_reassignments({TopicPartition(topic, 0): [2, 1, 3]}) == {TopicPartition(topic, 0): None}
    until_equal(lambda: described(admin, topic, 0)["replica_nodes"], [2, 1, 3])
    admin.elect_leaders(PREFERRED, {topic: [0]})
    until_equal(lambda: described(admin, topic, 0)["leader_id"], 2)
    (elected,) = admin.elect_leaders(PREFERRED, {topic: [0]}).replica_election_results
    assert elected.partition_result[0].error_code == ElectionNotNeededError.errno


def test_partitions_are_added(admin: Any, topic: str) -> None:
    """Partitions can be added by a new count alone, or with given replicas as well. A count that is not an increase is
    refused."""
    admin.create_partitions({topic: 4}, validate_only=True)
    admin.create_partitions({topic: 4})
    admin.create_partitions({topic: {"count": 5, "assignments": [[3, 1, 2]]}})
    until_equal(lambda: len(admin.describe_topics([topic])[0]["partitions"]), 5)
    assert described(admin, topic, 4)["replica_nodes"] == [3, 1, 2]
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 5})
