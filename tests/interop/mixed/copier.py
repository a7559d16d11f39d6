"""A transactional producer of Java that copies one partition of a topic into that of another, and reads what it committed.

It is TransactionalMessageCopier of Kafka's own system tests: each transaction has some records and the offset of the group
that reads them, and some transactions are aborted on purpose.
"""

import itertools
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from admin.elections import elect_request
from admin.errors import AdminError
from admin.known_nodes import Role
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_transactions import DescribeTransactionsRequest
from common.protocol.messages.elect_leaders import ElectionType
from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import until
from tests.integration.traffic import QUIET
from tests.interop.mixed.cluster import READY_SECONDS, MixedCluster
from tests.interop.mixed.releases import Release

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
RECORDS, RECORDS_PER_TRANSACTION = 1_000, 10
# Enough to be in the middle of the work.
COPIED_FIRST = 50
COPY_SECONDS = 180.0
_TRANSACTION_KEY = 1


def transactional_id_at(cluster: MixedCluster, broker_id: int) -> str:
    """Returns a transactional id whose coordinator is this broker, after an election of the preferred leaders."""
    with BlockingAdmin(cluster.bootstrap) as admin:
        admin.send(elect_request(ElectionType.PREFERRED, None, timeout_ms=30_000), Role.CONTROLLER)
        names = (f"copier-{broker_id}-{number}" for number in itertools.count())
        return next(name for name in names if find_coordinator(admin, name) == broker_id)


def find_coordinator(admin: BlockingAdmin, name: str) -> int:
    """Returns the broker that coordinates the transactional id. While it loads the transactions it is asked again."""
    request = FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=[name])

    def ask() -> list[int] | None:
        try:
            [found] = admin.send(request).coordinators
        except AdminError:
            return None
        return [found.node_id] if found.error_code == ErrorCode.NONE else None

    [broker_id] = until(ask, f"{name} has a coordinator", seconds=READY_SECONDS)
    return broker_id


def producer_epoch(cluster: MixedCluster, name: str) -> int:
    """Returns the epoch that the coordinator has for the transactional id."""
    with BlockingAdmin(cluster.bootstrap) as admin:
        request = DescribeTransactionsRequest(transactional_ids=[name])

        def ask() -> list[int] | None:
            [found] = admin.send(request, find_coordinator(admin, name)).transaction_states
            return [found.producer_epoch] if found.error_code == ErrorCode.NONE else None

        [epoch] = until(ask, f"{name} is described", seconds=READY_SECONDS)
    return epoch


@contextmanager
def copying(cluster: MixedCluster, release: Release, name: str, source: str, target: str) -> Iterator[None]:
    """Copies partition 0 of a topic under this transactional id. At the end all of it must be in the target exactly once."""
    values = sorted(f"{name} {number}" for number in range(RECORDS))
    producer = Producer(QUIET | {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(source, value, partition=0)
    assert producer.flush(READY_SECONDS) == 0
    command = release.command(
        *(COPIER, "--broker-list", cluster.bootstrap, "--transactional-id", name, "--consumer-group", name),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--transaction-size", str(RECORDS_PER_TRANSACTION), "--max-messages", str(RECORDS)),
        *("--enable-random-aborts", "--use-group-metadata"),
    )
    log = cluster.folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        until(lambda: _copied(log) >= COPIED_FIRST or process.poll() is not None, f"{name} copies", seconds=READY_SECONDS)
        assert process.poll() is None, _end_of(log)
        yield
        assert process.wait(COPY_SECONDS) == 0, _end_of(log)
    finally:
        process.kill()
        process.wait()
    assert sorted(committed(cluster.bootstrap, target)) == values
    # With transaction.version 2 each transaction has an epoch of its own.
    assert producer_epoch(cluster, name) >= RECORDS // RECORDS_PER_TRANSACTION


def _copied(log: Path) -> int:
    """Returns how many records the copier has committed by its own account."""
    counts = re.findall(rb'"totalProcessed":(\d+)', log.read_bytes())
    return int(counts[-1]) if counts else 0


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def committed(bootstrap: str, topic: str) -> list[str]:
    """Returns what a consumer with isolation.level=read_committed finds in partition 0."""
    settings = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(QUIET | {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"} | settings)
    found: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def is_read() -> bool:
            for message in consumer.consume(500, timeout=0.1):
                error, value = message.error(), message.value()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return True
                assert error is None and value is not None, error
                found.append(value.decode())
            return False

        until(is_read, f"{topic} read to its end")
    finally:
        consumer.close()
    return found
