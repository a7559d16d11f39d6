"""Which requests Produce refuses, that a refusal appends nothing, and which answers do not wait for replication."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.requests import produced_batch, produced_records
from broker.requests.produce import ProduceHandler
from common.ids import TopicId, Uuid
from common.parts import Buffer
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from common.records.batch import (
    CONTROL_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    assemble_batch,
    read_header,
    split_batches,
    validate_integrity,
)
from common.records.compression import compress
from common.records.decompression import ZSTD, decompress
from common.records.record import Record, encode_batch, iterate_records
from tests.unit.broker.cluster import TOPIC, Cluster, batch, run
from tests.unit.broker.requests.contexts import context


def opened(code: int, payload: memoryview) -> Buffer:
    """Decompresses the records of a test."""
    return decompress(code, payload, size_max=1 << 20)


OTHER = TopicId(Uuid(b"O" * 16))
RECORDS = [Record(key=None, value=b"value", timestamp_ms=1)]


def wrong_crc() -> bytearray:
    records = batch("a")
    records[-1] ^= 1
    return records


def of_magic(magic: int) -> bytearray:
    records = batch("a")
    records[16] = magic
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
        (lambda: batch("a")[:-1], ErrorCode.INVALID_RECORD),
        (lambda: bytearray(b"\0" * 30), ErrorCode.INVALID_RECORD),
        (lambda: bytearray(b"\0" * 10), ErrorCode.INVALID_RECORD),
        (lambda: of_magic(1), ErrorCode.INVALID_RECORD),
        (lambda: of_magic(3), ErrorCode.CORRUPT_MESSAGE),
        (lambda: batch("a") + of_magic(3), ErrorCode.CORRUPT_MESSAGE),
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
            lambda: encode_batch(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL_BIT),
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


@pytest.mark.parametrize("size", [1, 60, 61, -1])
def test_a_batch_that_is_cut_short_after_a_whole_one_is_dropped(size: int) -> None:
    """Apache Kafka accepts the whole one too."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        whole, cut = batch("a"), batch("b")[:size]
        assert (await cluster.produce(1, records=whole + cut)).error_code == ErrorCode.NONE
        log = cluster[1].partition().log
        assert (log.log_end_offset, log.size_bytes) == (1, len(whole))

    run(scenario)


def test_only_an_administrators_client_writes_to_an_internal_topic() -> None:
    """The groups' offsets are written by their coordinator. As in Kafka, one client id is exempt."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], name="__consumer_offsets")
        await cluster.started()
        answer = await cluster.produce(1, "x", topic="__consumer_offsets")
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        handler = ProduceHandler(cluster[1].env, cluster[1].replicas, is_certain=lambda: True)
        data = PartitionProduceData(index=0, records=memoryview(batch("x")))
        request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="__consumer_offsets", partition_data=[data])])
        admins = replace(context(ApiKey.PRODUCE, 9), client_id="__admin_client")
        produced = handler.handle(admins, request)
        assert produced is not None
        assert (await produced).responses[0].partition_responses[0].error_code == ErrorCode.NONE

    run(scenario)


def keyed(*keys: bytes | None, compression: int = 0) -> bytearray:
    return encode_batch(
        [Record(key, b"value", 1) for key in keys],
        attributes=compression,
        compress=(lambda payload: compress(compression, payload)) if compression else None,
    )


def broken_record() -> bytearray:
    """The record claims one byte more than there is; the checksum is right."""
    records = keyed(b"k")
    return resealed(records, 61, records[61] + 2)


def wrong_delta() -> bytearray:
    records = keyed(b"k")
    return resealed(records, 64, 2)


@pytest.mark.parametrize("compression", range(5))
def test_a_compacted_topic_takes_only_records_with_keys(compression: int) -> None:
    """The answer names each record without a key. A tombstone is a record like any other."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"cleanup.policy": "compact"})
        await cluster.started()
        answer = await cluster.produce(1, records=keyed(b"a", None, b"b", None, compression=compression))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in answer.record_errors] == [1, 3]
        assert answer.error_message is not None
        assert answer.error_message.startswith("One or more records have been rejected due to 2 record errors in total")
        assert "Compacted topic cannot accept message without key in topic partition t-0." in answer.error_message
        assert cluster[1].partition().log.log_end_offset == 0
        fine = await cluster.produce(1, records=keyed(b"a", b"", compression=compression))
        assert fine.error_code == ErrorCode.NONE
        assert (await cluster.produce(1, records=encode_batch([Record(b"a", None, 1)]))).error_code == ErrorCode.NONE

    run(scenario)


@pytest.mark.parametrize("make", [broken_record, wrong_delta, lambda: encode_batch(RECORDS, attributes=1)])
def test_a_compacted_topic_refuses_broken_records(make: Callable[[], bytearray]) -> None:
    """They would stop the compaction of the log. Other topics' records are not decoded."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"cleanup.policy": "compact,delete"})
        await cluster.started()
        answer = await cluster.produce(1, records=make())
        assert (answer.error_code, answer.record_errors) == (ErrorCode.INVALID_RECORD, [])
        assert cluster[1].partition().log.log_end_offset == 0

    run(scenario)


def at(*timestamps_ms: int) -> bytearray:
    return encode_batch([Record(None, b"value", each) for each in timestamps_ms])


def test_the_broker_sets_the_time_where_the_topic_wants_it() -> None:
    """With LogAppendTime the producer's timestamps do not count, however wrong they are."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"message.timestamp.type": "LogAppendTime"})
        await cluster.started()
        before_ms = cluster[1].env.wall_ms()
        answer = await cluster.produce(1, records=at(5, 2**60))
        assert answer.error_code == ErrorCode.NONE
        assert before_ms <= answer.log_append_time_ms <= cluster[1].env.wall_ms()
        data = (await cluster.fetch(1)).records
        assert isinstance(data, memoryview)
        [(header, view)] = split_batches(data)
        validate_integrity(header, view)
        assert header.has_log_append_time
        assert {record.timestamp_ms for record in iterate_records(view)} == {answer.log_append_time_ms}
        cluster.controller.configure("message.timestamp.type", None)
        assert (await cluster.produce(1, "mine")).log_append_time_ms == -1

    run(scenario)


def test_a_duplicate_is_answered_with_the_time_of_the_first_one() -> None:
    """Otherwise a producer that sends again would tell its caller another timestamp than the record has."""

    def of_a_producer(sequence: int) -> bytearray:
        return encode_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=sequence)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"message.timestamp.type": "LogAppendTime"})
        await cluster.started()
        first = await cluster.produce(1, records=of_a_producer(0))
        await cluster.world.sleep(3)
        again = await cluster.produce(1, records=of_a_producer(0))
        assert (again.base_offset, again.log_append_time_ms) == (0, first.log_append_time_ms)
        refused = await cluster.produce(1, records=of_a_producer(5))
        assert (refused.error_code, refused.log_append_time_ms) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        cluster.controller.configure("message.timestamp.type", None)
        assert (await cluster.produce(1, records=of_a_producer(0))).log_append_time_ms == -1

    run(scenario)


@pytest.mark.parametrize(
    ("timestamps", "untimely"),
    [
        ((-10_000, 0, 4_000), []),
        ((-12_000, 0), [0]),
        ((0, 9_000), [1]),
        ((-20_000, 0, 20_000), [0, 2]),
    ],
)
def test_timestamps_out_of_range_are_refused(timestamps: tuple[int, ...], untimely: list[int]) -> None:
    """The limits are message.timestamp.before.max.ms and message.timestamp.after.max.ms. The answer names the records."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        limits = {"message.timestamp.before.max.ms": "11000", "message.timestamp.after.max.ms": "5000"}
        cluster.controller.create_topic([1], configs=limits)
        await cluster.started()
        now_ms = cluster[1].env.wall_ms()
        answer = await cluster.produce(1, records=at(*(now_ms + each for each in timestamps)))
        assert answer.error_code == (ErrorCode.INVALID_TIMESTAMP if untimely else ErrorCode.NONE)
        assert [each.batch_index for each in answer.record_errors] == untimely
        assert cluster[1].partition().log.log_end_offset == (0 if untimely else len(timestamps))

    run(scenario)


def small_but_full(count: int, payload: bytes, timestamp_ms: int = 0) -> bytearray:
    """Returns a batch of few bytes that says it has `count` records and becomes `payload`."""
    header = read_header(encode_batch(RECORDS))._replace(
        record_count=count, last_offset_delta=count - 1, max_timestamp=timestamp_ms, attributes=ZSTD
    )
    return assemble_batch(header, compress(ZSTD, payload))


@pytest.mark.parametrize(
    ("configs", "count", "payload", "expected"),
    [
        ({"cleanup.policy": "compact"}, 100_001, b"\x0c\0\0\0\1\0\0" * 100_001, "the batch has 100001, more than 100000"),
        ({"message.timestamp.before.max.ms": "1"}, 3_000_000, b"\x0c\0\0\0\1\0\0" * 3_000_000, "the batch has 3000000"),
        ({"compression.type": "gzip"}, 1, bytes(33 << 20), "becomes at most 33554432 bytes"),
        (
            {"compression.type": "lz4"},
            1,
            bytes(3 << 20),
            "compress this batch again, and 3145728 bytes are more than 2097152",
        ),
        ({"cleanup.policy": "compact"}, 1, bytes(33 << 20), "becomes at most 33554432 bytes"),
    ],
)
def test_a_batch_whose_records_would_stop_the_event_loop_is_refused(
    configs: dict[str, str], count: int, payload: bytes, expected: str
) -> None:
    """A few kilobytes can hold millions of records. A producer can split the batch. A topic whose records need not be
    looked at takes it."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs=configs)
        cluster.controller.create_topic([1], name="other", topic_id=OTHER)
        await cluster.started()
        await cluster.started(topic_id=OTHER)
        answer = await cluster.produce(1, records=small_but_full(count, payload))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert expected in str(answer.error_message)
        assert cluster[1].partition().log.log_end_offset == 0
        assert (await cluster.produce(1, topic="other", records=small_but_full(count, payload))).error_code == ErrorCode.NONE

    run(scenario)


@pytest.mark.parametrize(("records_max", "opened_max"), [(5, 1 << 20), (100, 200)])
def test_what_a_request_makes_the_broker_look_at_is_bounded(
    records_max: int, opened_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All batches of a request are appended in one step. Those that are too much after the others are refused for the
    moment. A client sends them again."""
    monkeypatch.setattr(produced_batch, "RECORDS_MAX", records_max)
    monkeypatch.setattr(produced_batch, "OPENED_BYTES_MAX", opened_max)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic(
            [1], [1], [1], [1], configs={"cleanup.policy": "compact", "max.message.bytes": "200"}
        )
        for index in range(4):
            await cluster.started(index)
        data = [PartitionProduceData(index=each, records=keyed(*[b"k" * 60] * 2, compression=ZSTD)) for each in range(4)]
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
        answers = (await cluster.request(1, request, version=9)).responses[0].partition_responses
        assert [each.error_code for each in answers] == [ErrorCode.NONE] * 2 + [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        request.topic_data[0].partition_data = data[2:]
        answers = (await cluster.request(1, request, version=9)).responses[0].partition_responses
        assert [each.error_code for each in answers] == [ErrorCode.NONE] * 2

    run(scenario)


def test_what_a_request_makes_the_broker_compress_again_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it comes without compression. What is too much only after others is sent again."""
    monkeypatch.setattr(produced_batch, "RECOMPRESSED_BYTES_MAX", 200)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], [1], [1], configs={"compression.type": "lz4", "max.message.bytes": "200"})
        # Its batch alone is as large as is allowed.
        configs = {"compression.type": "uncompressed", "max.message.bytes": "100100"}
        cluster.controller.create_topic([1], name="other", topic_id=OTHER, configs=configs)
        for index in range(3):
            await cluster.started(index)
        await cluster.started(topic_id=OTHER)
        data = [PartitionProduceData(index=each, records=batch("v" * 60)) for each in range(3)]
        plain = [PartitionProduceData(index=0, records=keyed(b"k" * 100_000, compression=ZSTD))]
        request = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(name="t", partition_data=data),
                TopicProduceData(name="other", partition_data=plain),
            ],
        )
        responses = (await cluster.request(1, request, version=9)).responses
        found = [each.error_code for topic in responses for each in topic.partition_responses]
        assert found == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        request.topic_data[0].partition_data = data[2:]
        responses = (await cluster.request(1, request, version=9)).responses
        assert responses[0].partition_responses[0].error_code == ErrorCode.NONE

    run(scenario)


def test_an_answer_names_only_the_first_of_many_bad_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer would become many times as large as the request. The message has their true number."""
    monkeypatch.setattr(produced_records, "_NAMED_MAX", 2)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"cleanup.policy": "compact"})
        cluster.controller.create_topic([1], name="other", topic_id=OTHER)
        await cluster.started()
        await cluster.started(topic_id=OTHER)
        answer = await cluster.produce(1, records=keyed(*[None] * 5))
        assert [each.batch_index for each in answer.record_errors] == [0, 1]
        assert "rejected due to 5 record errors in total" in str(answer.error_message)
        late = [2**60] * 5
        assert [each.batch_index for each in (await cluster.produce(1, topic="other", records=at(*late))).record_errors] == [
            0,
            1,
        ]

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
            topic_data=[
                TopicProduceData(name="t", topic_id=TOPIC, partition_data=[PartitionProduceData(index=0, records=None)])
            ],
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


def test_the_timeout_limits_only_the_wait_for_replication() -> None:
    """With a timeout of 0, acks=all is answered without an error if there is nothing to wait for once the record is written,
    and at once with REQUEST_TIMED_OUT otherwise. So it is in Apache Kafka."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1], [1, 2])
        await cluster.started()
        await cluster.started(1)
        cluster.crash(2)
        begun_ns = cluster.world.now_ns()
        assert (await cluster.produce(1, "a", timeout_ms=0)).error_code == ErrorCode.NONE
        assert (await cluster.produce(1, "a", index=1, timeout_ms=0)).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.world.now_ns() - begun_ns < 100_000_000

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


@pytest.mark.parametrize("version", [3, 7, 8, 9, 10, 11, 12, 13])
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
        unknown = await cluster.produce(1, "a", topic="nowhere", version=version)
        assert unknown.error_code == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 13 else ErrorCode.UNKNOWN_TOPIC_ID)

    run(scenario)


def by_id(topic_id: Uuid) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch("a"))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])])


def test_a_topic_is_known_by_its_id() -> None:
    """From version 13 on. The answer has the id, and names the leader where this broker is not it."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1])
        await cluster.started()
        [taken] = (await cluster.request(1, by_id(TOPIC))).responses
        assert (taken.topic_id, taken.partition_responses[0].error_code) == (TOPIC, ErrorCode.NONE)
        response = await cluster.request(2, by_id(TOPIC))
        [refused] = response.responses[0].partition_responses
        assert (refused.error_code, refused.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
        assert [each.node_id for each in response.node_endpoints] == [1]

    run(scenario)


def test_nothing_is_written_to_the_next_topic_of_a_name() -> None:
    """A producer that has not heard yet that its topic was deleted and created anew goes on sending the old id."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        assert (await cluster.produce(1, "old")).error_code == ErrorCode.NONE
        cluster.controller.remove_topic()
        second = TopicId(Uuid(b"second topic id."))
        cluster.controller.create_topic([1], topic_id=second)
        await cluster.started(topic_id=second)
        [late] = (await cluster.request(1, by_id(TOPIC))).responses
        assert [each.error_code for each in late.partition_responses] == [ErrorCode.UNKNOWN_TOPIC_ID]
        assert (late.topic_id, late.partition_responses[0].base_offset) == (TOPIC, -1)
        assert cluster[1].partition(topic_id=second).log.log_end_offset == 0
        assert (await cluster.produce(1, "new")).base_offset == 0

    run(scenario)


# --- compression.type --------------------------------------------------------------------------------------------

CODES = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def compressed_batch(code: int, **fields: int) -> bytearray:
    """Returns a batch of three records with this codec."""
    records = [Record(key=b"k%d" % n, value=b"value " * 50, timestamp_ms=n + 1) for n in range(3)]
    packed = (lambda payload: compress(code, payload)) if code else None
    return encode_batch(records, attributes=code, compress=packed, **fields)


@pytest.mark.parametrize("wanted", CODES)
@pytest.mark.parametrize("sent", range(5))
def test_a_leader_compresses_with_the_topics_codec(wanted: str, sent: int) -> None:
    """The stored batch has the codec of compression.type, and is otherwise the one that was sent. A batch of that codec is
    stored byte for byte."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"compression.type": wanted})
        await cluster.started()
        original = compressed_batch(sent, producer_id=7, producer_epoch=1, base_sequence=0)
        assert (await cluster.produce(1, records=bytearray(original))).error_code == ErrorCode.NONE
        ((header, stored),) = split_batches(cluster.log_bytes(1))
        validate_integrity(header, stored)
        ((before, _),) = split_batches(original)
        assert header.compression == CODES[wanted]
        changing = {"batch_length": 0, "crc": 0, "attributes": 0, "partition_leader_epoch": 0}
        assert header._replace(**changing) == before._replace(**changing)
        found = list(iterate_records(stored, decompress=opened))
        assert found == list(iterate_records(original, decompress=opened))
        assert [record.timestamp_ms for record in found] == [1, 2, 3]
        if sent == CODES[wanted]:
            assert bytes(stored)[17:] == bytes(original)[17:]

    run(scenario)


def test_compression_may_be_changed_while_the_broker_runs() -> None:
    """For all topics by the broker's key, and for one topic by its own."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        await cluster.produce(1, "a")
        cluster.controller.configure_broker("", "compression.type", "zstd")
        await cluster.produce(1, "b")
        cluster.controller.configure("compression.type", "producer")
        await cluster.produce(1, "c")
        assert [header.compression for header, _ in split_batches(cluster.log_bytes(1))] == [0, 4, 0]

    run(scenario)


def test_a_batch_that_becomes_too_large_is_refused() -> None:
    """The producer's batch is within max.message.bytes, and without its compression it would not be."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"compression.type": "uncompressed", "max.message.bytes": "500"})
        await cluster.started()
        assert (await cluster.produce(1, records=compressed_batch(4))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert cluster.log_bytes(1) == b""

    run(scenario)


def test_a_batch_that_cannot_be_decompressed_is_refused() -> None:
    """Its header says gzip, its records are not. With compression.type=producer nobody would notice."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"compression.type": "lz4"})
        await cluster.started()
        records = encode_batch(RECORDS, attributes=1, compress=bytes)
        assert (await cluster.produce(1, records=records)).error_code == ErrorCode.INVALID_RECORD
        assert cluster.log_bytes(1) == b""

    run(scenario)
