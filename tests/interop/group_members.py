"""Members of a consumer group, each a real client with default settings in a thread of its own.

A member polls until it is closed and remembers what it has read and what it is assigned. Apart from the bootstrap servers,
the group and where to begin, nothing is configured: offsets are committed by the client itself, as by default.
"""

import asyncio
import re
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException

with warnings.catch_warnings():
    # kafka-python loads its schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

SECONDS_MAX = 120.0
POLL_SECONDS = 0.2

# A record as (partition, offset, value).
Read = tuple[int, int, bytes]


class Member(ABC, threading.Thread):
    """Joins when it is started. `close` leaves the group and returns once the client has returned from its own close."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__(daemon=True, name=f"member of {group}")
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.assigned: frozenset[int] = frozenset()
        self.read: list[Read] = []
        self.failure: BaseException | None = None
        self._is_told_to_close = threading.Event()

    @abstractmethod
    def consume(self, goes_on: Callable[[], bool]) -> None:
        """Polls while `goes_on()`, then closes the client."""

    def run(self) -> None:
        try:
            self.consume(lambda: not self._is_told_to_close.is_set())
        except BaseException as error:  # noqa: BLE001 (shown by the test, which runs in another thread)
            self.failure = error

    def close(self) -> None:
        """Raises what the client raised. The client must return in time."""
        self._is_told_to_close.set()
        self.join(SECONDS_MAX)
        assert not self.is_alive(), f"the client did not return from close within {SECONDS_MAX:g} s"
        if self.failure is not None:
            raise self.failure


class KafkaPythonMember(Member):
    def consume(self, goes_on: Callable[[], bool]) -> None:
        consumer = KafkaConsumer(
            self.topic, bootstrap_servers=self.bootstrap.split(","), group_id=self.group, auto_offset_reset="earliest"
        )
        try:
            while goes_on():
                try:
                    polled = consumer.poll(timeout_ms=round(POLL_SECONDS * 1000))
                except KafkaError as error:
                    # kafka-python 3 passes on what Java's consumer retries within its poll.
                    if not error.retriable:
                        raise
                    time.sleep(POLL_SECONDS)
                    continue
                for records in polled.values():
                    self.read += [(each.partition, each.offset, each.value) for each in records]
                self.assigned = frozenset(each.partition for each in consumer.assignment())
        finally:
            consumer.close()


class AiokafkaMember(Member):
    def consume(self, goes_on: Callable[[], bool]) -> None:
        asyncio.run(self._consume(goes_on))

    async def _consume(self, goes_on: Callable[[], bool]) -> None:
        consumer = AIOKafkaConsumer(
            self.topic, bootstrap_servers=self.bootstrap, group_id=self.group, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            while goes_on():
                for records in (await consumer.getmany(timeout_ms=round(POLL_SECONDS * 1000))).values():
                    self.read += [(each.partition, each.offset, each.value or b"") for each in records]
                self.assigned = frozenset(each.partition for each in consumer.assignment())
        finally:
            await consumer.stop()


class ConfluentMember(Member):
    # Settings beside those that every member has.
    settings: Mapping[str, str] = MappingProxyType({})

    def topics(self) -> list[str]:
        return [self.topic]

    def consume(self, goes_on: Callable[[], bool]) -> None:
        common = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**common, **self.settings})
        consumer.subscribe(self.topics())
        try:
            while goes_on():
                for message in consumer.consume(100, timeout=POLL_SECONDS):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None and offset is not None
                    self.read.append((partition, offset, message.value() or b""))
                self.assigned = frozenset(each.partition for each in consumer.assignment())
        finally:
            consumer.close()


class ConfluentBriskMember(ConfluentMember):
    """Is told of a rebalance sooner than with the default settings."""

    settings = MappingProxyType({"heartbeat.interval.ms": "300"})


class ConfluentConsumerProtocolMember(ConfluentMember):
    """Speaks the protocol of KIP-848."""

    settings = MappingProxyType({"group.protocol": "consumer"})


class ConfluentRegexMember(ConfluentConsumerProtocolMember):
    """Leaves it to the coordinator which topics match."""

    def topics(self) -> list[str]:
        return [f"^{re.escape(self.topic)}$"]


CONSUMER_PROTOCOL = "confluent-kafka, consumer protocol"
REGULAR_EXPRESSION = "confluent-kafka, regular expression"

MEMBERS: dict[str, Callable[[str, str, str], Member]] = {
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
    "confluent-kafka": ConfluentMember,
    CONSUMER_PROTOCOL: ConfluentConsumerProtocolMember,
    REGULAR_EXPRESSION: ConfluentRegexMember,
}


def until(condition: Callable[[], object], members: Iterable[Member], what: str) -> None:
    """Waits until the condition holds. Fails at once if a member has failed."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        for member in members:
            if member.failure is not None:
                raise member.failure
        assert time.monotonic() < deadline, f"not so within {SECONDS_MAX:g} s: {what}"
        time.sleep(0.05)
