"""The clients of the history check, each a process of its own, so that it can be killed or paused like a daemon (shell).

    python -m tests.integration.history.clients ROLE NAME --bootstrap … --topic … --partitions N --folder FOLDER

A role is `producer` or `member`, with the library it uses: `confluent` or `kafka-python`. `producer-transactional` is
librdkafka's, with transactions. The client works until SIGTERM,
finishes what it has begun, and exits with 0. A producer is idempotent and sends to all partitions in turn at a steady rate.
A member of the group commits what it has polled, synchronously and often. A `reader` belongs to no group and reads every
partition from the beginning.
"""

import argparse
import random
import signal
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.integration.history.operations import (
    NO_OFFSET,
    Assign,
    Commit,
    Committed,
    EndTransaction,
    Outcome,
    Poll,
    Send,
    value_of,
)
from tests.integration.history.recorder import Recorder

with warnings.catch_warnings():
    # kafka-python loads its schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError as KafkaPythonError
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as KafkaPythonPartition

GROUP = "history"
# Longer than any fault lasts: a producer that gives up a record leaves its outcome unknown, which proves less.
DELIVERY_MS = 300_000
# Shorter than the longest pause of a member, so that a paused member loses its partitions and must notice when it wakes.
SESSION_MS = 6000
# A killed producer leaves a transaction open, beyond which nobody reads until it has timed out.
TRANSACTION_MS = 10_000
TRANSACTION_RECORDS = 8
ABORTED_SHARE = 0.3
COMMIT_SECONDS = 0.3
COMMIT_TIMEOUT_SECONDS = 10.0
POLL_MAX = 200
POLL_SECONDS = 0.1


class Client(ABC):
    """What all clients share: the arguments, the history, and the wish to end."""

    def __init__(self, arguments: argparse.Namespace, stopped: threading.Event) -> None:
        self.bootstrap: str = arguments.bootstrap
        self.topic: str = arguments.topic
        self.partitions: int = arguments.partitions
        self.name: str = arguments.name
        self.rate: float = arguments.rate
        self.recorder = Recorder(arguments.folder, arguments.name)
        self.stopped = stopped

    @abstractmethod
    def run(self) -> None:
        """Runs the client until `stopped` is set."""


# --- producers -------------------------------------------------------------------------------------------------------


class ConfluentProducer(Client):
    """librdkafka's idempotent producer."""

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                # Smaller than a segment.
                "batch.size": 16384,
                "message.timeout.ms": DELIVERY_MS,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
                "error_cb": lambda error: print(f"{self.name}: {error}", file=sys.stderr, flush=True),
            }
        )
        send_steadily(self, lambda partition, value, number: send(producer, self, partition, value, number))
        assert producer.flush(DELIVERY_MS / 1000) == 0, "records are left without an answer"


class KafkaPythonProducer(Client):
    """kafka-python's producer, which is idempotent by default."""

    def run(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","),
            enable_idempotence=True,
            delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=10_000,
            max_block_ms=DELIVERY_MS,
            reconnect_backoff_max_ms=1000,
            linger_ms=5,
        )
        send_steadily(self, lambda partition, value, number: self._send(producer, partition, value, number))
        producer.flush(DELIVERY_MS / 1000)
        producer.close(timeout=30)

    def _send(self, producer: Any, partition: int, value: str, number: int) -> None:
        future = producer.send(self.topic, value.encode(), partition=partition)
        future.add_callback(lambda written: self.recorder.end(number, offset=max(written.offset, NO_OFFSET)))
        future.add_errback(lambda error: self.recorder.end(number, Outcome.UNKNOWN, error=str(error)))


class TransactionalProducer(Client):
    """librdkafka's transactional producer. Its transactions have a few records in several partitions; some are aborted."""

    def run(self) -> None:
        self._numbers = dict.fromkeys(range(self.partitions), 0)
        rng = random.Random(self.name)
        transaction = 0
        while not self.stopped.is_set():
            producer = self._new_producer()
            try:
                while not self.stopped.wait(TRANSACTION_RECORDS / self.rate):
                    transaction += 1
                    self._transact(producer, f"{self.name}#{transaction}", is_aborted=rng.random() < ABORTED_SHARE)
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise
                # Fenced, or the client gives up on this producer's state: a new one begins with the next transaction.
                print(f"{self.name}: {error}", file=sys.stderr, flush=True)

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_MS,
                # Not longer than the transaction may take.
                "message.timeout.ms": TRANSACTION_MS,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )
        retry(producer.init_transactions)
        return producer

    def _transact(self, producer: Producer, transaction: str, *, is_aborted: bool) -> None:
        producer.begin_transaction()
        for each in range(TRANSACTION_RECORDS):
            partition = each % self.partitions
            value = value_of(self.name, partition, self._numbers[partition])
            self._numbers[partition] += 1
            number = self.recorder.begin(Send, partition=partition, value=value, transaction=transaction)
            send(producer, self, partition, value, number)
        number = self.recorder.begin(EndTransaction, transaction=transaction)
        if not is_aborted:
            try:
                retry(producer.commit_transaction)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
            else:
                self.recorder.end(number)
                return
        retry(producer.abort_transaction)
        self.recorder.end(number, Outcome.FAILED)


def send(producer: Producer, client: Client, partition: int, value: str, number: int) -> None:
    """Hands a record to librdkafka. The operation of this number ends with its delivery report."""

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offset = message.offset()
            client.recorder.end(number, offset=NO_OFFSET if offset is None or offset < 0 else offset)
        else:
            client.recorder.end(number, Outcome.UNKNOWN, error=error.str())

    while True:
        try:
            producer.produce(client.topic, value.encode(), partition=partition, on_delivery=delivered)
        except BufferError:
            # The cluster has been unavailable for long: wait for room.
            producer.poll(0.1)
        except KafkaException:
            # Lets librdkafka say why first: the exception itself says no more than "Fatal error".
            producer.poll(0)
            raise
        else:
            break
    producer.poll(0)


def retry(call: Callable[[float], None]) -> None:
    """Repeats what librdkafka says can be repeated: its coordinator may be away for as long as a fault lasts."""
    deadline = time.monotonic() + DELIVERY_MS / 1000
    while True:
        try:
            return call(COMMIT_TIMEOUT_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def send_steadily(client: Client, send_one: Callable[[int, str, int], None]) -> None:
    """Sends records to all partitions in turn until the client is told to end. `send_one` gets the partition, the value and
    the number of the operation in the history."""
    started, sent = time.monotonic(), 0
    while not client.stopped.wait(0.01):
        due = int((time.monotonic() - started) * client.rate)
        # After a pause the client does not try to make up for it in one burst.
        for each in range(max(sent, due - POLL_MAX), due):
            partition = each % client.partitions
            value = value_of(client.name, partition, each // client.partitions)
            send_one(partition, value, client.recorder.begin(Send, partition=partition, value=value))
        sent = due


# --- consumers -------------------------------------------------------------------------------------------------------


class ConfluentMember(Client):
    """librdkafka's consumer in the group. It looks up the committed offsets itself, to put them into the history."""

    def run(self) -> None:
        self._positions: dict[int, int] = {}
        self._found: list[tuple[int, int, str]] = []
        self._polled = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "check.crcs": True,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        committed = time.monotonic()
        while not self.stopped.is_set():
            self._poll()
            if time.monotonic() > committed + COMMIT_SECONDS:
                self._commit(self._positions)
                committed = time.monotonic()
        self._commit(self._positions)
        self._consumer.close()

    def _poll(self) -> None:
        # Single messages: a rebalance is served in between, so each message belongs to the assignment of its moment.
        self._polled = self.recorder.begin(Poll, records=[])
        message = self._consumer.poll(POLL_SECONDS)
        while message is not None:
            if message.error() is None:
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None and offset is not None and value is not None
                self._found.append((partition, offset, value.decode()))
                self._positions[partition] = offset + 1
            message = self._consumer.poll(0) if len(self._found) < POLL_MAX else None
        self._end_poll()

    def _end_poll(self) -> None:
        if self._polled:
            self.recorder.end(self._polled, records=self._found)
        self._polled, self._found = 0, []

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._end_poll()
        self._positions = {}
        number = self.recorder.begin(Committed, offsets={})
        try:
            found = consumer.committed(partitions, timeout=COMMIT_TIMEOUT_SECONDS)
        except KafkaException as error:
            self.recorder.end(number, Outcome.FAILED, error=str(error))
        else:
            self.recorder.end(number, offsets={each.partition: max(each.offset, NO_OFFSET) for each in found})
        self.recorder.end(self.recorder.begin(Assign, partitions=[each.partition for each in partitions]))
        self._polled = self.recorder.begin(Poll, records=[])

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._end_poll()
        gone = {
            each.partition: self._positions.pop(each.partition) for each in partitions if each.partition in self._positions
        }
        self._commit(gone)
        self._polled = self.recorder.begin(Poll, records=[])

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        # Somebody else may own them already.
        for each in partitions:
            self._positions.pop(each.partition, None)

    def _commit(self, positions: dict[int, int]) -> None:
        if not positions:
            return
        number = self.recorder.begin(Commit, offsets=dict(positions))
        wanted = [TopicPartition(self.topic, partition, offset) for partition, offset in positions.items()]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self.recorder.end(number, Outcome.UNKNOWN, error=str(error))
            return
        failed = [each.error.str() for each in done or [] if each.error is not None]
        self.recorder.end(number, Outcome.UNKNOWN if failed else Outcome.OK, error=", ".join(failed))


class KafkaPythonMember(Client):
    """kafka-python's consumer in the group. Where it begins after an assignment shows what it found committed."""

    def run(self) -> None:
        self.positions: dict[int, int] = {}
        self.consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","),
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            request_timeout_ms=10_000,
            reconnect_backoff_max_ms=1000,
        )
        self.consumer.subscribe([self.topic], listener=_Rebalances(self))
        committed = time.monotonic()
        while not self.stopped.is_set():
            self._poll()
            if time.monotonic() > committed + COMMIT_SECONDS:
                self.commit()
                committed = time.monotonic()
        self.commit()
        self.consumer.close(autocommit=False)

    def _poll(self) -> None:
        number = self.recorder.begin(Poll, records=[])
        try:
            polled = self.consumer.poll(timeout_ms=POLL_SECONDS * 1000, max_records=POLL_MAX)
        except KafkaPythonError as error:
            # kafka-python 3 passes on what Java's consumer retries within its poll, such as a refused connection to the
            # coordinator. It has returned no records then, and moved no position.
            if not error.retriable:
                raise
            self.recorder.end(number, Outcome.FAILED, error=str(error))
            self.stopped.wait(POLL_SECONDS)
            return
        found = [(each.partition, each.offset, each.value.decode()) for records in polled.values() for each in records]
        self.positions |= {partition: offset + 1 for partition, offset, _ in found}
        self.recorder.end(number, records=found)

    def commit(self) -> None:
        """Commits the positions, and notes how that ended."""
        if not self.positions:
            return
        number = self.recorder.begin(Commit, offsets=dict(self.positions))
        wanted = {
            KafkaPythonPartition(self.topic, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in self.positions.items()
        }
        try:
            self.consumer.commit(wanted, timeout_ms=COMMIT_TIMEOUT_SECONDS * 1000)
        except KafkaPythonError as error:
            self.recorder.end(number, Outcome.UNKNOWN, error=str(error))
        else:
            self.recorder.end(number)


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Rebalances happen within `poll`, before it returns records. kafka-python drops what it had fetched before. It calls
    these methods in its own thread, where nothing can be committed.

    kafka-python 3 keeps the positions of partitions that it gets again, whatever is committed. This member commits only what
    it has polled since the rebalance, so the records in between would not be committed until a later one comes. It therefore
    gives all positions up and begins where the group has committed, as Java's consumer does."""

    def __init__(self, member: KafkaPythonMember) -> None:
        self._member = member

    def on_partitions_revoked(self, _: Any) -> None:
        self._member.positions = {}
        self._member.consumer._subscription.assign_from_subscribed([])

    def on_partitions_assigned(self, assigned: Any) -> None:
        partitions = sorted(each.partition for each in assigned)
        self._member.recorder.end(self._member.recorder.begin(Assign, partitions=partitions))


class Reader(Client):
    """librdkafka's consumer without a group. It is assigned once, so nothing excuses a jump."""

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "check.crcs": True,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)])
        self.recorder.end(self.recorder.begin(Assign, partitions=list(range(self.partitions))))
        while not self.stopped.is_set():
            number = self.recorder.begin(Poll, records=[])
            found = []
            for message in consumer.consume(POLL_MAX, timeout=POLL_SECONDS):
                value = message.value()
                if message.error() is None and value is not None:
                    found.append((message.partition(), message.offset(), value.decode()))
                elif message.error() is not None:
                    # A jump back to the beginning, had it been allowed: shown by the records that are missing.
                    print(f"{self.name}: {message.error()}", file=sys.stderr, flush=True)
            self.recorder.end(number, records=found)
        consumer.close()


ROLES: dict[str, Callable[[argparse.Namespace, threading.Event], Client]] = {
    "producer-confluent": ConfluentProducer,
    "producer-kafka-python": KafkaPythonProducer,
    "producer-transactional": TransactionalProducer,
    "member-confluent": ConfluentMember,
    "member-kafka-python": KafkaPythonMember,
    "reader": Reader,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("name")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=60.0, help="records per second of a producer")
    arguments = parser.parse_args()
    stopped = threading.Event()
    # Before the client has a history: whoever sees that file may send the signal.
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    ROLES[arguments.role](arguments, stopped).run()


if __name__ == "__main__":
    main()
