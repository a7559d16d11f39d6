"""Which requests Produce refuses, that a refusal appends nothing, and which answers do not wait for replication."""

import asyncio
import gc
from collections.abc import Callable

import pytest

from broker.requests.produce import ProduceHandler
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from common.records.batch import CONTROL_BIT, TIMESTAMP_TYPE_BIT, Record, encode_batch
from tests.unit.broker.cluster import Cluster, batch, run
from tests.unit.broker.requests.contexts import context

RECORDS = [Record(key=None, value=b"value", timestamp_ms=1)]


def wrong_crc() -> bytearray:
    records = batch("a")
    records[-1] ^= 1
    return records


def wrong_magic() -> bytearray:
    records = batch("a")
    records[16] = 1
    return records


def wrong_count() -> bytearray:
    return resealed(batch("a", "b"), 60, 5)


def negative_count() -> bytearray:
    return resealed(resealed(batch("a"), 57, 0xFF), 26, 0xFF)


def too_many_counted() -> bytearray:
    records = batch("a")
    records[23:27] = (2**24).to_bytes(4, "big")
    records[57:61] = (2**24).to_bytes(4, "big")
    return resealed(records, 60, 1)


def resealed(records: bytearray, position: int, value: int) -> bytearray:
    """Returns the batch with one byte changed and a valid checksum."""
    from crc32c import crc32c

    records[position] = value
    records[17:21] = crc32c(bytes(records[21:])).to_bytes(4, "big")
    return records


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (wrong_crc, ErrorCode.CORRUPT_MESSAGE),
        (lambda: batch("a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (lambda: bytearray(b"\0" * 30), ErrorCode.INVALID_RECORD),
        (lambda: bytearray(b"\0" * 10), ErrorCode.CORRUPT_MESSAGE),
        (wrong_magic, ErrorCode.INVALID_RECORD),
        (wrong_count, ErrorCode.INVALID_RECORD),
        (negative_count, ErrorCode.INVALID_RECORD),
        (too_many_counted, ErrorCode.INVALID_RECORD),
        (lambda: batch("a") + batch("b"), ErrorCode.INVALID_RECORD),
        (bytearray, ErrorCode.INVALID_RECORD),
        (lambda: batch("x" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
        (lambda: batch("x" * 700), ErrorCode.RECORD_LIST_TOO_LARGE),
        (lambda: encode_batch(RECORDS, attributes=CONTROL_BIT), ErrorCode.INVALID_RECORD),
        (lambda: encode_batch(RECORDS, attributes=TIMESTAMP_TYPE_BIT), ErrorCode.INVALID_TIMESTAMP),
        (lambda: encode_batch(RECORDS, attributes=7), ErrorCode.INVALID_RECORD),
        (
            lambda: encode_batch(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0),
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_a_refused_batch_has_its_error_and_leaves_the_log_empty(make: Callable[[], bytearray], expected: ErrorCode) -> None:
    """Every refused batch gets its error, and the log stays empty. The next batch on the same connection is appended."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"max.message.bytes": "1000", "segment.bytes": "600"})
        await cluster.started()
        answer = await cluster.produce(1, records=make())
        assert (answer.error_code, answer.base_offset) == (expected, -1)
        assert cluster[1].partition().log.log_end_offset == 0
        assert (await cluster.produce(1, "fine")).error_code == ErrorCode.NONE

    run(scenario)


def test_null_records_are_refused() -> None:
    """The protocol allows null records, but a broker must refuse them."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        request = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=None)])],
        )
        response = await cluster.request(1, request)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD

    run(scenario)


@pytest.mark.parametrize(("version", "names_leaders"), [(9, False), (10, True)])
def test_each_partition_of_a_request_has_its_own_answer(version: int, names_leaders: bool) -> None:
    """One request has a good batch, a corrupt batch, a batch for a partition with another leader, one for an unknown
    partition and one for an unknown topic. Only the good batch is appended. From version 10 on, the answer names the other
    leader."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1], [1], [2, 1])
        for index in range(3):
            await cluster.started(index)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name="t",
                    partition_data=[
                        PartitionProduceData(index=0, records=batch("a")),
                        PartitionProduceData(index=1, records=wrong_crc()),
                        PartitionProduceData(index=2, records=batch("b")),
                        PartitionProduceData(index=9, records=batch("c")),
                    ],
                ),
                TopicProduceData(name="nowhere", partition_data=[PartitionProduceData(index=0, records=batch("d"))]),
            ],
        )
        response = await cluster.request(1, request, version=version)
        codes = [answer.error_code for topic in response.responses for answer in topic.partition_responses]
        assert codes == [
            ErrorCode.NONE,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert response.responses[0].partition_responses[2].current_leader.leader_id == (2 if names_leaders else -1)
        assert [(each.node_id, each.host) for each in response.node_endpoints] == [(2, "broker-2")] * names_leaders
        assert cluster[2].partition(2).log.log_end_offset == 0

    run(scenario)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_unknown_acks_are_refused(acks: int) -> None:
    """Only 0, 1 and -1 are valid values of acks."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        assert (await cluster.produce(1, "a", acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert cluster[1].partition().log.log_end_offset == 0

    run(scenario)


def test_acks_1_does_not_wait_for_followers() -> None:
    """The record is acknowledged when the leader's kernel has it. A consumer sees it only when the ISR has it."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        cluster.crash(2)
        assert (await cluster.produce(1, "a", acks=1)).error_code == ErrorCode.NONE
        assert await cluster.read_all(1) == []

    run(scenario)


def test_acks_1_that_waits_for_followers_meets_its_deadline() -> None:
    """A leader that is not certain whether it still leads waits for replication even with acks=1, but no longer than the
    request's timeout."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        cluster.controller.is_reachable = False
        cluster.crash(2)
        request = ProduceRequest(
            acks=1,
            timeout_ms=300,
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=memoryview(batch("a")))])
            ],
        )
        handler = ProduceHandler(cluster[1].env, cluster[1].replicas, is_certain=lambda: False)
        begun_ns = cluster.world.now_ns()
        answer = handler.handle(context(ApiKey.PRODUCE, 9), request)
        assert answer is not None
        response = await answer
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.world.now_ns() - begun_ns == 300_000_000

    run(scenario)


def test_acks_0_gets_no_answer_and_an_error_ends_the_connection() -> None:
    """A good batch is appended without an answer. If a batch is refused, the broker can only close the connection (as in
    Kafka)."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        await cluster.send_without_answer(1, batch("a"))
        await cluster.until(lambda: cluster[1].partition().log.written_offset == 1)
        assert await cluster.read_all(1) == ["a"]
        assert await cluster.send_without_answer(1, wrong_crc()) == "closed"

    run(scenario)


@pytest.mark.parametrize("limit_bytes", [256 * 1024 * 1024, 1_000_000])
def test_followers_are_read_while_produce_requests_wait_for_them(limit_bytes: int) -> None:
    """The waiting produce requests may exceed the memory for requests. The followers' fetches, which end the wait, arrive on
    the same listener and must still be read."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], configs={"min.insync.replicas": "2"})
        await cluster.started()
        assert (await cluster.produce(1, "one")).error_code == ErrorCode.NONE
        cluster[1].server.memory._limit_bytes = limit_bytes
        answers = await asyncio.gather(*(cluster.produce(1, "x" * 400_000, timeout_ms=30_000) for _ in range(4)))
        assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 4

    run(scenario, replica_lag_time_max_ms="30000")


def messages_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, ProduceRequest | ProduceResponse) for each in gc.get_objects())


@pytest.mark.slow
def test_requests_that_timed_out_are_let_go() -> None:
    """While the controller is unreachable, the ISR cannot shrink, and the high watermark may never advance. Still, the
    broker keeps nothing of requests that timed out."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        assert (await cluster.produce(1, "one")).error_code == ErrorCode.NONE
        cluster.controller.is_reachable = False
        cluster.crash(2)
        before = messages_in_memory()
        for _ in range(20):
            answer = await cluster.produce(1, "x" * 500_000, timeout_ms=100)
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        await cluster.world.sleep(1)
        assert len(cluster[1].partition()._replication_waiters) == 0
        assert messages_in_memory() <= before

    run(scenario)


@pytest.mark.parametrize("version", [3, 7, 8, 9, 10, 11])
def test_every_version_can_be_answered(version: int) -> None:
    """In every version, both a success and an error can be encoded. Fields that the version lacks have their default."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1], [2])
        await cluster.started(0)
        await cluster.started(1)
        assert (await cluster.produce(1, "a", version=version)).base_offset == 0
        answer = await cluster.produce(1, "a", index=1, version=version)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = await cluster.produce(1, version=version, records=wrong_crc())
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
        zstd = await cluster.produce(1, version=version, records=encode_batch(RECORDS, attributes=4))
        assert zstd.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else ErrorCode.NONE)

    run(scenario)
