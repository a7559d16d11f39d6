"""The loads of bench_clients: what one librdkafka client does to a cluster, and how long it takes.

Each function does one thing to one topic and returns its figures. It knows nothing of the cluster but its address.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.integration.traffic import end_offset

SECONDS_MAX = 180.0
# The brokers of both restart in the startup part, and librdkafka would log every lost connection to stderr.
QUIET: dict[str, str | int | float | bool] = {"log_level": 0}
BATCH = 500
# Much less than librdkafka's own limits, so that a batch of messages is never refused.
QUEUED_MAX = 50_000
QUEUED_BYTES_MAX = 64_000_000
HEARTBEAT_MS = 200
SESSION_MS = 10_000


def produce(bootstrap: str, topic: str, *, acks: str, record_bytes: int, megabytes: float) -> float:
    """Writes as fast as the client can, with acks=all idempotently. Returns MB/s (10^6 bytes of values)."""
    producer = Producer(
        QUIET
        | {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    failures: list[str] = []

    def delivered(error: Any, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    # Makes the client find the leader and connect to it, and get its producer id.
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    messages = [{"value": os.urandom(record_bytes)} for _ in range(BATCH)]
    queued_max = min(QUEUED_MAX, QUEUED_BYTES_MAX // record_bytes)
    batches = _batches(record_bytes, megabytes)
    started = time.perf_counter()
    for number in range(batches):
        while len(producer) > queued_max:
            producer.poll(0.001)
        # The last batch shows whether all arrived in order; a callback for each record would measure Python.
        on_delivery = {"on_delivery": delivered} if number == batches - 1 else {}
        assert producer.produce_batch(topic, messages, partition=0, **on_delivery) == BATCH
    assert producer.flush(SECONDS_MAX) == 0, "records are left"
    seconds = time.perf_counter() - started
    assert failures == []
    return batches * BATCH * record_bytes / 1e6 / seconds


def wait_until_replicated(bootstrap: str, topic: str, *, record_bytes: int, megabytes: float) -> None:
    """Waits until every replica has what `produce` has written. With acks=1 the followers are behind for a while, and their
    work is a part of what the records cost."""
    count = 1 + BATCH * _batches(record_bytes, megabytes)
    deadline = time.monotonic() + SECONDS_MAX
    with closing(Consumer(QUIET | {"bootstrap.servers": bootstrap, "group.id": "unused"})) as consumer:
        # The end that a consumer sees is the high watermark.
        while (end := end_offset(consumer, topic, 0)) < count:
            assert time.monotonic() < deadline, f"{end} of {count} records are on all replicas"
            time.sleep(0.02)


def _batches(record_bytes: int, megabytes: float) -> int:
    return max(1, int(megabytes * 1e6 / record_bytes / BATCH))


def fetch(bootstrap: str, topic: str, *, record_bytes: int, times: int) -> float:
    """Reads partition 0 from the beginning to its end, this many times. Returns MB/s. The clock runs from the first message
    to the last."""
    found = [_fetch_once(bootstrap, topic) for _ in range(times)]
    return sum(read for read, _ in found) * record_bytes / 1e6 / sum(seconds for _, seconds in found)


def _fetch_once(bootstrap: str, topic: str) -> tuple[int, float]:
    """Returns the number of records and the seconds."""
    consumer = Consumer(
        QUIET
        | {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 1,
        }
    )
    with closing(consumer):
        end = end_offset(consumer, topic, 0)
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + SECONDS_MAX
        read = len(_consume(consumer, 1, deadline))
        started = time.perf_counter()
        first = read
        while read < end:
            read += len(_consume(consumer, min(1000, end - read), deadline))
        return read - first, time.perf_counter() - started


def _consume(consumer: Consumer, count: int, deadline: float) -> list[Message]:
    while True:
        messages = consumer.consume(count, timeout=1.0)
        for message in messages:
            assert message.error() is None, message.error()
        if messages:
            return messages
        assert time.monotonic() < deadline, "nothing can be read"


def single_records(bootstrap: str, topic: str, *, acks: str, seconds: float) -> float:
    """Sends one record of 100 bytes in each request, five requests at a time. Returns requests per second."""
    producer = Producer(
        QUIET
        | {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "max.in.flight.requests.per.connection": 5,
        }
    )
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    value, sent, started = os.urandom(100), 0, time.perf_counter()
    while time.perf_counter() < started + seconds:
        while len(producer) < 50:
            producer.produce(topic, value, partition=0)
            sent += 1
        producer.poll(0.001)
    assert producer.flush(SECONDS_MAX) == 0
    return sent / (time.perf_counter() - started)


def latencies(bootstrap: str, topic: str, *, rate: int, seconds: float) -> list[float]:
    """Sends records at a steady rate (acks=all, idempotent), and reads them in another thread. Returns the milliseconds from
    each record's due time until the consumer has it."""
    producer = Producer(QUIET | {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    consumer = Consumer(QUIET | {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    count, found, failures = int(rate * seconds), list[float](), list[BaseException]()
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        for _ in range(10):
            # What the first records wait for is the connection.
            producer.produce(topic, b"0", partition=0)
        assert producer.flush(SECONDS_MAX) == 0
        deadline = time.monotonic() + SECONDS_MAX
        _read_all(consumer, 10, lambda _: None, deadline)

        def read() -> None:
            try:
                _read_all(consumer, count, lambda value: found.append((time.perf_counter() - float(value)) * 1000), deadline)
            except BaseException as error:  # noqa: BLE001 (raised again in the measuring thread)
                failures.append(error)

        reader = threading.Thread(target=read, name="reader")
        reader.start()
        started = time.perf_counter()
        for number in range(count):
            due = started + number / rate
            while (wait := due - time.perf_counter()) > 0:
                producer.poll(wait)
            producer.produce(topic, repr(due).encode(), partition=0)
        assert producer.flush(SECONDS_MAX) == 0
        reader.join(SECONDS_MAX)
    if failures:
        raise failures[0]
    assert len(found) == count
    return found


def _read_all(consumer: Consumer, count: int, tell: Callable[[bytes], object], deadline: float) -> None:
    read = 0
    while read < count:
        message = consumer.poll(1.0)
        assert time.monotonic() < deadline, f"{read} of {count} records came"
        if message is not None:
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            tell(value)
            read += 1


def rebalance_seconds(bootstrap: str, topic: str, group: str, *, members: int, partitions: int) -> float:
    """Lets a group of this many members come to rest, then one more joins. Returns the seconds until it has its share and
    the others have given it up."""
    options = QUIET | {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        # Often, because members learn of a rebalance with a heartbeat: otherwise this would be what is measured.
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "session.timeout.ms": SESSION_MS,
        "partition.assignment.strategy": "roundrobin",
    }
    consumers = [Consumer(options) for _ in range(members)]
    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        _until_shared(consumers, partitions)
        newcomer = Consumer(options)
        started = time.perf_counter()
        newcomer.subscribe([topic])
        consumers.append(newcomer)
        _until_shared(consumers, partitions)
        return time.perf_counter() - started
    finally:
        # All at once: Apache Kafka answers some of them only when the others have left, too.
        with ThreadPoolExecutor(len(consumers)) as pool:
            pool.map(Consumer.close, consumers)


def _until_shared(consumers: Sequence[Consumer], partitions: int) -> None:
    """Polls until the members own all partitions together, each partition once and each member its share."""
    deadline = time.monotonic() + SECONDS_MAX
    least = partitions // len(consumers)
    while True:
        for consumer in consumers:
            message = consumer.poll(0)
            assert message is None or message.error() is None, message.error()
        owned = [[part.partition for part in consumer.assignment()] for consumer in consumers]
        shared = sorted(index for each in owned for index in each)
        if shared == list(range(partitions)) and min(map(len, owned)) >= least:
            return
        assert time.monotonic() < deadline, f"{sum(map(bool, owned))} of {len(consumers)} members own partitions"
        time.sleep(0.002)
