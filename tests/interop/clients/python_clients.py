"""confluent-kafka, kafka-python and aiokafka behind the interface."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Iterable

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AiokafkaTopic
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.clients.interface import REPLICATION_FACTOR, SECONDS_MAX, Client, Record
from tests.interop.group_members import MEMBERS, Member

with warnings.catch_warnings():
    # kafka-python loads its schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.admin import NewTopic as KafkaPythonTopic

ALL_COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


class _PythonClient(Client):
    def prepare(self) -> None:
        """It is installed with the development tools."""

    def compressions(self) -> list[str]:
        return ALL_COMPRESSIONS

    @property
    def member(self) -> Callable[[str, str, str], Member]:
        return MEMBERS[self.name]


class ConfluentKafka(_PythonClient):
    name = "confluent-kafka"

    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        # An admin client that nothing refers to ends, and its requests with it.
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, partitions, REPLICATION_FACTOR)])[topic].result(SECONDS_MAX)

    def topics(self, bootstrap: str) -> set[str]:
        return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=SECONDS_MAX).topics)

    def delete(self, bootstrap: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics([topic])[topic].result(SECONDS_MAX)

    def produce(self, bootstrap: str, topic: str, compression: str, records: Iterable[Record]) -> set[str]:
        acked: set[str] = set()
        failures: list[Exception] = []
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": compression})
        for partition, value in records:

            def done(error: object, _message: object, value: str = value) -> None:
                if error is None:
                    acked.add(value)
                else:
                    failures.append(KafkaException(error))

            producer.produce(topic, value.encode(), partition=partition, on_delivery=done)
            producer.poll(0)
        assert producer.flush(SECONDS_MAX) == 0
        if failures:
            raise failures[0]
        return acked


class KafkaPython(_PythonClient):
    name = "kafka-python"

    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        wanted = KafkaPythonTopic(topic, num_partitions=partitions, replication_factor=REPLICATION_FACTOR)
        with self._admin(bootstrap) as admin:
            admin.create_topics([wanted])

    def topics(self, bootstrap: str) -> set[str]:
        with self._admin(bootstrap) as admin:
            return set(admin.list_topics())

    def delete(self, bootstrap: str, topic: str) -> None:
        with self._admin(bootstrap) as admin:
            admin.delete_topics([topic])

    def produce(self, bootstrap: str, topic: str, compression: str, records: Iterable[Record]) -> set[str]:
        chosen = None if compression == "none" else compression
        producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), compression_type=chosen)
        try:
            futures = {value: producer.send(topic, value.encode(), partition=partition) for partition, value in records}
            for future in futures.values():
                future.get(timeout=SECONDS_MAX)
        finally:
            producer.close()
        return set(futures)

    def _admin(self, bootstrap: str) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=bootstrap.split(","))


class Aiokafka(_PythonClient):
    name = "aiokafka"
    waits_for_isr = False

    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        asyncio.run(
            self._with_admin(bootstrap, lambda it: it.create_topics([AiokafkaTopic(topic, partitions, REPLICATION_FACTOR)]))
        )

    def topics(self, bootstrap: str) -> set[str]:
        return set(asyncio.run(self._with_admin(bootstrap, lambda it: it.list_topics())))

    def delete(self, bootstrap: str, topic: str) -> None:
        asyncio.run(self._with_admin(bootstrap, lambda it: it.delete_topics([topic])))

    async def _with_admin(
        self, bootstrap: str, action: "Callable[[AIOKafkaAdminClient], Awaitable[list[str]]]"
    ) -> list[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return await action(admin)
        finally:
            await admin.close()

    def produce(self, bootstrap: str, topic: str, compression: str, records: Iterable[Record]) -> set[str]:
        return asyncio.run(self._produce(bootstrap, topic, None if compression == "none" else compression, records))

    async def _produce(self, bootstrap: str, topic: str, compression: str | None, records: Iterable[Record]) -> set[str]:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=compression)
        await producer.start()
        acked = set()
        source = iter(records)
        try:
            # The source may take its time, and the producer lives on the event loop.
            while (record := await asyncio.to_thread(next, source, None)) is not None:
                await producer.send_and_wait(topic, record[1].encode(), partition=record[0])
                acked.add(record[1])
        finally:
            await producer.stop()
        return acked


PYTHON_CLIENTS: list[Client] = [ConfluentKafka(), KafkaPython(), Aiokafka()]
