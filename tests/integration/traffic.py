"""Clients that write while daemons and disks die, and check afterwards that every acknowledged record is there.

`Writer` is a librdkafka producer (acks=all, no idempotence) that writes numbered records at a steady rate and remembers the
partition and offset of every acknowledgement. `assert_nothing_lost` reads all partitions and checks that each acknowledged
record is at its offset, with its number. A record that got an error may be in the log too, so only acknowledgements count.
`Reader` is a consumer that reads along while a Writer writes.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

SECONDS_MAX = 60.0
LEADER_CHANGES = (
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    # librdkafka reports these while it refreshes metadata, and when the broker that it queries has just died.
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._TRANSPORT,
)
# For tests with stopped or isolated leaders. Such a leader returns no error that would make the client look for the new
# leader, so the client must give up its requests early and refresh its metadata often.
IMPATIENT = {"socket.timeout.ms": 2000, "request.timeout.ms": 1000, "topic.metadata.refresh.interval.ms": 1000}
# Many brokers die in these tests, and librdkafka would log every lost connection to stderr.
QUIET = {"log_level": 0}
Promises = dict[tuple[int, int], int]
"""(Partition, offset) -> number of the acknowledged record."""


class Writer:
    """Writes until it is stopped. Record n goes to partition n modulo `partitions`, or to the partitions of `only` in
    turn."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        rate: int = 400,
        size: int = 0,
        timeout_ms: int = 60_000,
        first: int = 0,
        only: Sequence[int] | None = None,
        options: dict[str, int] | None = None,
    ) -> None:
        self._producer = Producer(
            QUIET
            | {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": timeout_ms,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "topic.metadata.propagation.max.ms": 10,
            }
            | (options or {})
        )
        self._topic = topic
        self._partitions = list(range(partitions)) if only is None else list(only)
        self._rate = rate
        self._padding = b"." * size
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write, name="writer")
        self._first = first
        self.sent = first
        """The number of the next record."""
        self.acknowledged: Promises = {}
        self.errors: Counter[str] = Counter()
        self.pauses: dict[int, float] = {}
        """Partition -> longest time in seconds between two of its acknowledgements, since `forget_pauses`."""
        self._last_ack: dict[int, float] = {}
        self._newest: dict[int, int] = {}

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        if error is None:
            assert self._producer.flush(SECONDS_MAX) == 0, f"records are still unanswered after {SECONDS_MAX:g} s"

    def stop(self) -> None:
        """Stops writing and waits for the responses to all sent records."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(SECONDS_MAX) == 0, f"records are still unanswered after {SECONDS_MAX:g} s"

    def wait_for_acks(self, partitions: Collection[int] | None = None, *, seconds: float = SECONDS_MAX) -> None:
        """Waits until each of the partitions acknowledged a record that was sent after this call."""
        waiting = set(self._partitions if partitions is None else partitions)
        with self._changed:
            first = self.sent

            def is_served() -> bool:
                return all(self._newest.get(index, -1) >= first for index in waiting)

            assert self._changed.wait_for(is_served, seconds), (
                f"partitions {sorted(waiting)} of {self._topic} do not all acknowledge within {seconds:g} s: "
                f"{dict(self.errors)}"
            )

    def forget_pauses(self) -> None:
        """Restarts the measurement of pauses."""
        with self._changed:
            self.pauses.clear()
            now = time.monotonic()
            self._last_ack = dict.fromkeys(self._partitions, now)

    def longest_pause(self, partitions: Collection[int]) -> float:
        """Returns the longest time in seconds that any of these partitions went without an acknowledgement so far."""
        with self._changed:
            now = time.monotonic()
            return max(max(self.pauses.get(part, 0.0), now - self._last_ack[part]) for part in partitions)

    def acknowledged_so_far(self) -> Promises:
        """Returns a copy of `acknowledged`, which grows meanwhile."""
        with self._changed:
            return dict(self.acknowledged)

    def _write(self) -> None:
        started = time.monotonic()
        while not self._stopped.is_set():
            due = self._first + int((time.monotonic() - started) * self._rate)
            while self.sent < due and not self._stopped.is_set():
                self._send(self.sent)
                self.sent += 1
            self._producer.poll(0.005)

    def _send(self, number: int) -> None:
        value = b"%d %b" % (number, self._padding)
        while not self._stopped.is_set():
            try:
                partition = self._partitions[number % len(self._partitions)]
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered(number))
            except BufferError:
                # The client's own queue is full. It drains as responses arrive.
                self._producer.poll(0.05)
            else:
                return

    def _delivered(self, number: int) -> Callable[[KafkaError | None, Any], None]:
        def callback(error: KafkaError | None, message: Any) -> None:
            with self._changed:
                if error is not None:
                    self.errors[str(error)] += 1
                    return
                partition = message.partition()
                self.acknowledged[partition, message.offset()] = number
                self._newest[partition] = max(self._newest.get(partition, -1), number)
                now = time.monotonic()
                last = self._last_ack.get(partition, now)
                self.pauses[partition] = max(self.pauses.get(partition, 0.0), now - last)
                self._last_ack[partition] = now
                self._changed.notify_all()

        return callback


class Reader:
    """Reads the partitions from offset 0 on, in a thread of its own, until the block ends."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int) -> None:
        self._consumer = _consumer(bootstrap)
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        self._topic = topic
        self._next_offsets = dict.fromkeys(range(partitions), 0)
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="reader")
        self.found: Promises = {}
        self.problems: list[str] = []
        """Errors that the consumer got, and offsets that did not follow the one before."""

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()

    def wait_for(self, promises: Promises) -> None:
        """Waits until all these records have been read, each at its offset, and none of these offsets a second time."""

        def is_read() -> bool:
            return bool(self.problems) or promises.keys() <= self.found.keys()

        with self._changed:
            assert self._changed.wait_for(is_read, SECONDS_MAX), (
                f"not read within {SECONDS_MAX:g} s: {sorted(promises.keys() - self.found.keys())[:5]} of {self._topic}"
            )
            assert self.problems == []
            assert {place: self.found[place] for place in promises} == promises

    def repeated(self) -> list[int]:
        """Returns the numbers of the records that were read at more than one offset."""
        with self._changed:
            return sorted(number for number, count in Counter(self.found.values()).items() if count > 1)

    def _read(self) -> None:
        while not self._stopped.is_set():
            messages = self._consumer.consume(500, timeout=0.1)
            with self._changed:
                for message in messages:
                    self._add(message)
                self._changed.notify_all()

    def _add(self, message: Any) -> None:
        index, offset = message.partition(), message.offset()
        if message.error() is not None:
            self.problems.append(f"{self._topic}-{index}: {message.error()}")
        elif offset != self._next_offsets[index]:
            self.problems.append(f"{self._topic}-{index}: offset {offset} follows {self._next_offsets[index] - 1}")
        else:
            self._next_offsets[index] += 1
            self.found[index, offset] = int(message.value().partition(b" ")[0])


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        QUIET
        | {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "topic.metadata.refresh.fast.interval.ms": 50,
        }
    )


def write_some(bootstrap: str, topic: str, *, partitions: int, count: int, first: int = 0, size: int = 0) -> Promises:
    """Writes `count` records, all of which must be acknowledged. Returns their numbers by (partition, offset)."""
    producer = Producer(QUIET | {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "retry.backoff.ms": 20})
    promises: Promises = {}
    errors: list[str] = []

    def delivered(number: int) -> Callable[[KafkaError | None, Any], None]:
        def callback(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                errors.append(str(error))
            else:
                promises[message.partition(), message.offset()] = number

        return callback

    for number in range(first, first + count):
        value = b"%d %b" % (number, b"." * size)
        producer.produce(topic, value, partition=number % partitions, on_delivery=delivered(number))
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0
    assert errors == []
    assert len(promises) == count
    return promises


def read_all(bootstrap: str, topic: str, *, partitions: Collection[int]) -> Promises:
    """Reads everything in these partitions. Fails unless they can be read from offset 0 to their end without a gap."""
    consumer = _consumer(bootstrap)
    found: Promises = {}
    try:
        ends = {index: end_offset(consumer, topic, index) for index in partitions}
        waiting = {index for index, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, index, 0) for index in sorted(waiting)])
        next_offsets = dict.fromkeys(partitions, 0)
        deadline = time.monotonic() + SECONDS_MAX
        while waiting:
            assert time.monotonic() < deadline, f"partitions {sorted(waiting)} of {topic} cannot be read to their end"
            for message in consumer.consume(2000, timeout=0.2):
                assert message.error() is None, message.error()
                index, offset, value = message.partition(), message.offset(), message.value()
                assert index is not None and offset is not None and value is not None
                assert offset == next_offsets[index], f"{topic}-{index}: offset {offset} follows {next_offsets[index] - 1}"
                next_offsets[index] += 1
                found[index, offset] = int(value.partition(b" ")[0])
                if offset + 1 >= ends[index]:
                    waiting.discard(index)
    finally:
        consumer.close()
    return found


def end_offset(consumer: Consumer, topic: str, index: int) -> int:
    """Returns the end offset of the partition. Retries after a leader change, because librdkafka does not retry this
    call by itself."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=SECONDS_MAX)[1])
        except KafkaException as error:
            if error.args[0].code() not in LEADER_CHANGES or time.monotonic() > deadline:
                raise
        # Make the client look up the new leader. Without assigned partitions it does not refresh its metadata by itself.
        consumer.list_topics(topic, timeout=SECONDS_MAX)


def assert_nothing_lost(bootstrap: str, topic: str, promises: Promises, *, partitions: Collection[int]) -> None:
    """Checks that every acknowledged record of these partitions is at its offset."""
    found = read_all(bootstrap, topic, partitions=partitions)
    kept = {place: number for place, number in promises.items() if place[0] in set(partitions)}
    lost = {place: number for place, number in kept.items() if found.get(place) != number}
    assert kept, "nothing was acknowledged, so nothing was tested"
    assert lost == {}, f"{len(lost)} of {len(kept)} acknowledged records are lost, for example {sorted(lost.items())[:5]}"
