"""Transactions with real clients and their default settings: commit, abort, fencing, and a coordinator that is killed.

Consumers with isolation.level=read_committed must see all records of the committed transactions and none of the others. The
test that kills a broker has a cluster of its own.
"""

import asyncio
import contextlib
import itertools
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient as ClusterAdmin
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from common.configuration.endpoints import HostPort
from common.protocol.api_keys import ApiKey
from common.protocol.codec import joined
from common.protocol.errors import ErrorCode
from common.protocol.messages.headers import RequestHeader
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from common.records.batch import TRANSACTIONAL_BIT
from common.records.record import Record, encode_batch
from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import until
from tests.interop.apache_kafka_tools import Kafka
from tests.interop.topics import create_topic
from tests.request_frames import encode_request_frame
from tests.response_frames import parse_response
from tools.lab.local_cluster import LocalCluster

SECONDS_MAX = 60
PARTITIONS = 3
FENCED = -144
# The newest that does not add partitions to transactions.
PRODUCE_VERSION = 11
_numbers = itertools.count()


@pytest.fixture
def transactional_id(new_topic_name: Callable[[], str]) -> str:
    return f"id-{new_topic_name()}"


def librdkafka_producer(bootstrap: str, transactional_id: str, **settings: object) -> Producer:
    """Returns a producer that has its epoch."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings})
    producer.init_transactions(SECONDS_MAX)
    return producer


def write(producer: Producer, topic: str, name: str) -> set[bytes]:
    """Writes a record to each partition within the open transaction, and waits until the brokers have them."""
    values = {f"{name} {index}".encode() for index in range(PARTITIONS)}
    for index, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=index)
    assert producer.flush(SECONDS_MAX) == 0
    return values


def read(bootstrap: str, topic: str, count: int, *, isolation: str = "read_committed") -> list[bytes]:
    """Returns the values from the beginning of the topic up to its end as consumers of this isolation see it. Waits until
    there are `count` of them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{next(_numbers)}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([Position(topic, index, 0) for index in range(PARTITIONS)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS or len(values) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"only {len(values)} records and the ends of {sorted(ended)}"
        if message.error() is not None:
            ended.add(message.partition() or 0)
        else:
            ended.discard(message.partition() or 0)
            values.append(message.value() or b"")
    consumer.close()
    return sorted(values)


@pytest.mark.slow
def test_librdkafka_commits_and_aborts(bootstrap: str, topic: str, transactional_id: str) -> None:
    """What is aborted is in the log: a consumer that reads everything sees it."""
    producer = librdkafka_producer(bootstrap, transactional_id)
    committed, all_values = set(), set()
    for number in range(4):
        producer.begin_transaction()
        values = write(producer, topic, f"transaction {number}")
        all_values |= values
        if number % 2:
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)
            committed |= values
    assert read(bootstrap, topic, len(committed)) == sorted(committed)
    assert read(bootstrap, topic, len(all_values), isolation="read_uncommitted") == sorted(all_values)


@pytest.mark.slow
def test_an_open_transaction_holds_readers_back(bootstrap: str, topic: str, transactional_id: str) -> None:
    """Also what others have written after it: the order of a partition is kept."""
    producer = librdkafka_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    inside = write(producer, topic, "inside")
    other = Producer({"bootstrap.servers": bootstrap})
    outside = write(other, topic, "outside")
    assert read(bootstrap, topic, 0) == []
    producer.commit_transaction(SECONDS_MAX)
    assert read(bootstrap, topic, 2 * PARTITIONS) == sorted(inside | outside)


@pytest.mark.slow
def test_a_new_producer_fences_the_old_one(bootstrap: str, topic: str, transactional_id: str) -> None:
    """The open transaction of the old producer is aborted, and its commit fails for good."""
    zombie = librdkafka_producer(bootstrap, transactional_id)
    zombie.begin_transaction()
    write(zombie, topic, "zombie")
    successor = librdkafka_producer(bootstrap, transactional_id)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(SECONDS_MAX)
    assert raised.value.args[0].code() == FENCED
    successor.begin_transaction()
    values = write(successor, topic, "successor")
    successor.commit_transaction(SECONDS_MAX)
    assert read(bootstrap, topic, PARTITIONS) == sorted(values)


@pytest.mark.slow
def test_a_transaction_that_takes_too_long_is_aborted(bootstrap: str, topic: str, transactional_id: str) -> None:
    """By the coordinator, without another producer. Readers go on."""
    producer = librdkafka_producer(bootstrap, transactional_id, **{"transaction.timeout.ms": 2000})
    producer.begin_transaction()
    write(producer, topic, "late")
    other = Producer({"bootstrap.servers": bootstrap})
    values = write(other, topic, "outside")
    assert read(bootstrap, topic, PARTITIONS) == sorted(values)
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS_MAX)


@pytest.mark.slow
def test_librdkafka_moves_a_groups_offsets_with_its_records(
    bootstrap: str, topic: str, transactional_id: str, new_topic_name: Callable[[], str]
) -> None:
    """Read, write, commit both together: an aborted attempt leaves the group where it was."""
    target = create_topic(bootstrap, new_topic_name())
    values = write(Producer({"bootstrap.servers": bootstrap}), topic, "input")
    group = f"group-{transactional_id}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    positions = [Position(topic, index, 0) for index in range(PARTITIONS)]
    consumer.assign(positions)
    taken = [message.value() or b"" for _ in values if (message := consumer.poll(SECONDS_MAX)) is not None]
    assert sorted(taken) == sorted(values)
    producer = librdkafka_producer(bootstrap, transactional_id)

    def attempt(name: str) -> set[bytes]:
        producer.begin_transaction()
        written = write(producer, target, name)
        producer.send_offsets_to_transaction(consumer.position(positions), consumer.consumer_group_metadata(), SECONDS_MAX)
        return written

    def committed() -> list[int]:
        return [each.offset for each in consumer.committed(positions, SECONDS_MAX)]

    attempt("aborted")
    producer.abort_transaction(SECONDS_MAX)
    assert max(committed()) < 0
    written = attempt("committed")
    producer.commit_transaction(SECONDS_MAX)
    assert committed() == [1] * PARTITIONS
    assert read(bootstrap, target, PARTITIONS) == sorted(written)
    consumer.close()


@pytest.mark.slow
def test_aiokafka_moves_a_groups_offsets_with_its_records(bootstrap: str, topic: str, transactional_id: str) -> None:
    asyncio.run(_aiokafka(bootstrap, topic, transactional_id))


async def _aiokafka(bootstrap: str, topic: str, transactional_id: str) -> None:
    """Aborts one transaction and commits another, each with records and offsets, then reads both back."""
    group, position = f"group-{transactional_id}", TopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id) as producer:
        with contextlib.suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"aborted", partition=0)
                await producer.send_offsets_to_transaction({position: 7}, group)
                raise ZeroDivisionError
        async with producer.transaction():
            await producer.send_and_wait(topic, b"committed", partition=0)
            await producer.send_offsets_to_transaction({position: 5}, group)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, isolation_level="read_committed")
    async with consumer:
        consumer.assign([position])
        assert await consumer.committed(position) == 5
        consumer.seek(position, 0)
        assert (await asyncio.wait_for(consumer.getone(), SECONDS_MAX)).value == b"committed"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_apache_kafkas_clients_copy_a_topic_in_transactions(
    kafka: Kafka, bootstrap: str, topic: str, transactional_id: str, new_topic_name: Callable[[], str]
) -> None:
    """TransactionalMessageCopier, from Kafka's own system tests, moves records and offsets together and aborts some of its
    transactions. kafka-transactions lists and describes the transactional id. Its epoch shows that the producer uses
    transaction.version 2: it rises with each of ten transactions."""
    target = create_topic(bootstrap, new_topic_name())
    source = Producer({"bootstrap.servers": bootstrap})
    values = {f"value {number}".encode() for number in range(200)}
    for value in values:
        source.produce(topic, value, partition=0)
    assert source.flush(SECONDS_MAX) == 0
    copied = kafka.run(
        *("org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", bootstrap),
        *("--input-topic", topic, "--input-partition", "0", "--output-topic", target, "--transaction-size", "20"),
        *("--transactional-id", transactional_id, "--consumer-group", f"group-{transactional_id}"),
        *("--max-messages", "200", "--enable-random-aborts"),
    )
    assert copied.status == 0, copied.errors
    assert sorted(set(read(bootstrap, target, 200))) == sorted(values)
    assert len(read(bootstrap, target, 200)) == 200
    tool, server = "org.apache.kafka.tools.TransactionsCommand", ("--bootstrap-server", bootstrap)
    listed = kafka.run(tool, *server, "list")
    [line] = [line.split() for line in listed.lines if line.startswith(transactional_id)]
    assert line[-1] in ("CompleteCommit", "CompleteAbort", "Empty"), line
    described = kafka.run(tool, *server, "describe", "--transactional-id", transactional_id)
    assert (described.status, transactional_id in described.lines[-1]) == (0, True)
    header, columns = described.lines[-2].split(), described.lines[-1].split()
    assert int(columns[header.index("ProducerEpoch")]) >= 10, described.lines


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_apache_kafkas_producer_begins_one_transaction_after_the_other(
    kafka: Kafka, bootstrap: str, topic: str, transactional_id: str
) -> None:
    """With several batches in flight to each partition, of which the first one waits until the coordinator has confirmed the
    transaction. Nothing is lost or written twice."""
    count = 5_000
    options = ("--topic", topic, "--num-records", str(count), "--record-size", "100", "--throughput", "-1")
    done = kafka.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *options,
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={bootstrap}", "batch.size=1000", "linger.ms=0"),
    )
    assert (done.status, done.errors) == (0, [])
    assert len(read(bootstrap, topic, count)) == count


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kafka_transactions_finds_and_aborts_a_hanging_transaction(
    kafka: Kafka, bootstrap: str, topic: str, transactional_id: str
) -> None:
    """A leader that does not ask the coordinator accepts a batch that belongs to no transaction there, such as a batch that
    arrives late (KIP-890). Nothing ever completes that transaction, so read_committed consumers are stuck until an operator
    finds and aborts it."""
    librdkafka_producer(bootstrap, transactional_id)
    with BlockingAdmin(bootstrap) as admin:
        leader = admin.metadata([topic]).topics[0].partitions[0].leader_id
        address = admin.brokers()[leader]
    tool, server = "org.apache.kafka.tools.TransactionsCommand", ("--bootstrap-server", bootstrap)
    described = kafka.run(tool, *server, "describe", "--transactional-id", transactional_id)
    columns = dict(zip(described.lines[-2].split(), described.lines[-1].split(), strict=False))
    batch = encode_batch(
        [Record(key=None, value=b"late", timestamp_ms=1_700_000_000_000)],
        attributes=TRANSACTIONAL_BIT,
        producer_id=int(columns["ProducerId"]),
        producer_epoch=int(columns["ProducerEpoch"]),
        base_sequence=0,
    )
    with verification_turned_off(bootstrap, leader):
        produce_once(address, topic, transactional_id, batch)
    values = write(Producer({"bootstrap.servers": bootstrap}), topic, "after")
    assert read(bootstrap, topic, 0) == sorted(values)[1:]

    found = kafka.run(tool, *server, "find-hanging", "--broker-id", str(leader), "--topic", topic)
    assert found.status == 0, found.errors
    hanging = dict(zip(found.lines[0].split(), found.lines[1].split(), strict=False))
    aborted = kafka.run(
        *(tool, *server, "abort", "--topic", topic, "--partition", "0"),
        *("--start-offset", hanging["StartOffset"]),
    )
    assert (aborted.status, aborted.errors) == (0, []), aborted
    assert read(bootstrap, topic, PARTITIONS) == sorted(values)
    again = kafka.run(tool, *server, "find-hanging", "--broker-id", str(leader), "--topic", topic)
    assert (again.status, len(again.lines)) == (0, 1), again


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kafka_transactions_lists_the_ids_of_a_pattern(kafka: Kafka, bootstrap: str, transactional_id: str) -> None:
    """The whole id has to match (KIP-1152)."""
    for name in (f"{transactional_id}/eu", f"my-{transactional_id}/eu"):
        librdkafka_producer(bootstrap, name)
    tool, server = "org.apache.kafka.tools.TransactionsCommand", ("--bootstrap-server", bootstrap)
    found = kafka.run(tool, *server, "list", "--transactional-id-pattern", f"{transactional_id}/\\pL+")
    assert found.status == 0, found.errors
    assert [line.split()[0] for line in found.lines[1:]] == [f"{transactional_id}/eu"]


@contextlib.contextmanager
def verification_turned_off(bootstrap: str, broker_id: int) -> Iterator[None]:
    """Lets the broker take transactional batches without a question to the coordinator."""
    admin, key = ClusterAdmin({"bootstrap.servers": bootstrap}), "transaction.partition.verification.enable"

    def change(value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, value or "", incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)

    change("false")
    try:
        yield
    finally:
        change(None)


def produce_once(address: HostPort, topic: str, transactional_id: str, batch: bytearray) -> None:
    """Writes the batch to partition 0 in a version of Produce that does not add the partition to the transaction. The broker
    may not have heard yet that it need not ask."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])]
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=data)
    header = RequestHeader(
        request_api_key=ApiKey.PRODUCE, request_api_version=PRODUCE_VERSION, correlation_id=1, client_id="late"
    )
    frame = joined(encode_request_frame(header, request, PRODUCE_VERSION))

    def is_taken() -> bool:
        with socket.create_connection((address.host, address.port)) as connection, connection.makefile("rb") as answers:
            connection.sendall(frame)
            (size,) = struct.unpack(">i", answers.read(4))
            _, response = parse_response(ProduceResponse, answers.read(size), PRODUCE_VERSION)
        [[answer]] = [each.partition_responses for each in response.responses]
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE), answer
        return answer.error_code == ErrorCode.NONE

    until(is_taken, "the leader takes a batch that no transaction has")


# --- a coordinator that is killed ------------------------------------------------------------------------------------


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster whose brokers may be killed."""
    made = LocalCluster.create(
        tmp_path / "cluster",
        brokers=3,
        disks=1,
        loop=False,
        overrides={
            "transaction.state.log.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        },
    )
    try:
        made.start()
        yield made
    finally:
        made.kill()
    made.delete()


def coordinator_of(cluster: LocalCluster) -> int:
    """Returns the leader of the only partition of `__transaction_state`."""
    with BlockingAdmin(cluster.bootstrap) as admin:
        [topic] = admin.metadata(["__transaction_state"]).topics
    return int(topic.partitions[0].leader_id)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_coordinator_loses_no_transaction(own_cluster: LocalCluster, transactional_id: str) -> None:
    """The coordinator is killed with kill -9 in the middle of a transaction, which then commits; another one is aborted."""
    topic = create_topic(own_cluster.bootstrap, "t")
    producer = librdkafka_producer(own_cluster.bootstrap, transactional_id)
    committed: set[bytes] = set()
    for round_number in range(2):
        producer.begin_transaction()
        committed |= write(producer, topic, f"committed {round_number}")
        killed = own_cluster.broker(coordinator_of(own_cluster))
        killed.signal(signal.SIGKILL)
        killed.wait_until_ended()
        producer.commit_transaction(SECONDS_MAX)
        producer.begin_transaction()
        write(producer, topic, f"aborted {round_number}")
        producer.abort_transaction(SECONDS_MAX)
        killed.start()
        killed.wait_for("broker_running")
    assert read(own_cluster.bootstrap, topic, len(committed)) == sorted(committed)


def written(bootstrap: str, topic: str) -> int:
    """Returns how many offsets are taken, markers included."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody"})
    ends = [consumer.get_watermark_offsets(Position(topic, index), SECONDS_MAX) for index in range(PARTITIONS)]
    consumer.close()
    return sum(high for _, high in ends)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_apache_kafkas_producer_survives_its_coordinator(
    kafka: Kafka, own_cluster: LocalCluster, transactional_id: str
) -> None:
    """It uses transaction.version 2 and begins one transaction after the other. The coordinator is killed with kill -9 in
    the middle and stays away. Nothing is lost or written twice."""
    topic, count = create_topic(own_cluster.bootstrap, "t"), 3_000
    command = kafka.command(
        *("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--payload-monotonic"),
        *("--num-records", str(count), "--throughput", "500"),
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={own_cluster.bootstrap}"),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as java:
        try:
            until(lambda: written(own_cluster.bootstrap, topic) > count // 10, "some transactions are committed")
            killed = own_cluster.broker(coordinator_of(own_cluster))
            killed.signal(signal.SIGKILL)
            killed.wait_until_ended()
            assert java.poll() is None, "the producer was done before the kill"
            _, errors = java.communicate(timeout=SECONDS_MAX)
        finally:
            java.kill()
    assert (java.returncode, errors) == (0, "")
    assert read(own_cluster.bootstrap, topic, count) == sorted(str(number).encode() for number in range(count))
