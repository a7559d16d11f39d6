"""Idempotent producers on a simulated cluster: a retry stores nothing twice, whatever happened to the first attempt.

The first attempt is always appended somewhere; its answer may be lost. Between the attempts the leader changes, crashes,
truncates its log, or moves to another directory.
"""

import asyncio
from typing import Any

import pytest

from common.ids import Offset
from common.protocol.errors import ErrorCode
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.records.batch import TRANSACTIONAL_BIT
from common.records.record import Record, encode_batch
from tests.unit.broker.cluster import TOPIC, Cluster, directory, path, run
from tests.unit.broker.test_moves import alter, caught_up, finished, with_records

ID = 40


def sent(
    sequence: int,
    *texts: str,
    epoch: int = 0,
    producer_id: int = ID,
    attributes: int = 0,
    timestamp_ms: int = 1_700_000_000_000,
) -> bytearray:
    """Returns a batch of an idempotent producer."""
    return encode_batch(
        [Record(key=None, value=text.encode(), timestamp_ms=timestamp_ms) for text in texts],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=attributes,
    )


async def produce(cluster: Cluster, broker_id: int, records: bytearray, **options: Any) -> tuple[ErrorCode, int]:
    answer = await cluster.produce(broker_id, records=records, **options)
    return ErrorCode(answer.error_code), answer.base_offset


async def two_brokers(cluster: Cluster, **options: Any) -> None:
    """Starts two brokers with one partition, which broker 1 leads."""
    for broker_id in (1, 2):
        await cluster.start(broker_id)
    cluster.controller.create_topic([1, 2], **options)
    await cluster.started()


async def elect(cluster: Cluster, leader: int, *, isr: list[int]) -> None:
    cluster.controller.change(leader=leader, isr=isr)
    await cluster.until(cluster[leader].leads)


def test_a_retry_has_the_offset_of_the_first_attempt() -> None:
    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        await cluster.produce(1, "from another client")
        for acks in (-1, 1, -1):
            assert await produce(cluster, 1, sent(0, "a", "b"), acks=acks) == (ErrorCode.NONE, 1)
        assert await produce(cluster, 1, sent(2, "c")) == (ErrorCode.NONE, 3)
        assert await produce(cluster, 1, sent(0, "a", "b")) == (ErrorCode.NONE, 1)
        assert await cluster.read_all(1) == ["from another client", "a", "b", "c"]

    run(scenario)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (lambda: sent(2, "gap", epoch=5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (lambda: sent(0, "a", "b", epoch=5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (lambda: sent(3, "x", epoch=6), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (lambda: sent(1, "x", epoch=4), ErrorCode.INVALID_PRODUCER_EPOCH),
        (lambda: sent(1, "x", epoch=-1), ErrorCode.INVALID_PRODUCER_EPOCH),
        (lambda: sent(-1, "x", epoch=5), ErrorCode.INVALID_RECORD),
        (lambda: sent(-(2**31), "x", epoch=5), ErrorCode.INVALID_RECORD),
        (lambda: sent(1, "x", epoch=5, attributes=TRANSACTIONAL_BIT), ErrorCode.INVALID_RECORD),
    ],
)
def test_a_batch_out_of_order_is_refused_and_nothing_is_stored(records: Any, expected: ErrorCode) -> None:
    """The producer can go on afterwards, with its next sequence number or a higher epoch."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        assert await produce(cluster, 1, sent(0, "a", epoch=5)) == (ErrorCode.NONE, 0)
        answer = await cluster.produce(1, records=records())
        assert (answer.error_code, answer.base_offset) == (expected, -1)
        assert answer.error_message
        assert cluster[1].partition().log.log_end_offset == 1
        assert await produce(cluster, 1, sent(1, "b", epoch=5)) == (ErrorCode.NONE, 1)
        assert await produce(cluster, 1, sent(0, "c", epoch=6)) == (ErrorCode.NONE, 2)
        assert await cluster.read_all(1) == ["a", "b", "c"]

    run(scenario)


def test_after_a_refused_batch_the_next_ones_are_refused_alike() -> None:
    """They were sent before the client knew. OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka begin a new epoch, and store
    again what the log has. The batch "b" is in the log already, but its retry is refused all the same."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster, configs={"min.insync.replicas": "2"})
        assert await produce(cluster, 1, sent(0, "a")) == (ErrorCode.NONE, 0)
        assert await produce(cluster, 1, sent(1, "b")) == (ErrorCode.NONE, 1)
        cluster.controller.change(isr=[1])
        await cluster.until(lambda: not cluster[1].partition().has_enough_in_sync())
        for records in (sent(1, "b"), sent(2, "c")):
            assert await produce(cluster, 1, records) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        await cluster.until(cluster[1].partition().has_enough_in_sync)
        assert await produce(cluster, 1, sent(3, "d")) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        for offset, records in enumerate([sent(1, "b"), sent(2, "c"), sent(3, "d")], start=1):
            assert await produce(cluster, 1, records) == (ErrorCode.NONE, offset)
        assert await produce(cluster, 1, sent(5, "gap")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await cluster.read_all(1) == ["a", "b", "c", "d"]

    run(scenario)


def test_a_new_leader_refuses_alike_what_was_sent_before_it_knew() -> None:
    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await produce(cluster, 1, sent(0, "a")) == (ErrorCode.NONE, 0)
        assert await produce(cluster, 2, sent(1, "b")) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        await elect(cluster, 2, isr=[1, 2])
        assert await produce(cluster, 2, sent(2, "c")) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await produce(cluster, 2, sent(1, "b")) == (ErrorCode.NONE, 1)
        assert await produce(cluster, 2, sent(2, "c")) == (ErrorCode.NONE, 2)

    run(scenario)


def test_a_transactional_request_is_refused_with_an_explanation() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        data = PartitionProduceData(index=0, records=sent(0, "a"))
        request = ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", topic_id=TOPIC, partition_data=[data])],
        )
        [answer] = (await cluster.request(1, request)).responses[0].partition_responses
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.error_message == "transactional producers are not served"

    run(scenario)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """As in Kafka since KIP-360: its earlier batches may have been deleted, or it may have been silent for a day."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        assert await produce(cluster, 1, sent(1234, "a")) == (ErrorCode.NONE, 0)
        assert await produce(cluster, 1, sent(0, "b")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(cluster, 1, sent(1235, "b")) == (ErrorCode.NONE, 1)

    run(scenario)


def test_the_wait_of_a_retry_is_that_of_the_first_attempt() -> None:
    """The follower is gone, so the first attempt is not replicated. An answer to the retry would be a false promise: if the
    leader dies too, the record is lost. When the follower is back, both attempts are acknowledged."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        cluster.controller.is_reachable = False
        cluster.crash(2)
        first = asyncio.ensure_future(produce(cluster, 1, sent(0, "a"), timeout_ms=60_000))
        await cluster.until(lambda: cluster[1].partition().log.written_offset == 1)
        assert await produce(cluster, 1, sent(0, "a"), timeout_ms=500) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert await produce(cluster, 1, sent(0, "a"), acks=1) == (ErrorCode.NONE, 0)
        retry = asyncio.ensure_future(produce(cluster, 1, sent(0, "a"), timeout_ms=60_000))
        await cluster.world.sleep(2)
        assert not first.done()
        assert not retry.done()
        cluster.controller.is_reachable = True
        await cluster.start(2)
        assert await first == await retry == (ErrorCode.NONE, 0)
        assert await cluster.read_all(1) == ["a"]

    run(scenario)


def test_a_new_leader_knows_what_it_has_replicated() -> None:
    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        for sequence, text in enumerate("abc"):
            assert await produce(cluster, 1, sent(sequence, text)) == (ErrorCode.NONE, sequence)
        cluster.crash(1)
        await elect(cluster, 2, isr=[2])
        assert await produce(cluster, 2, sent(1, "b")) == (ErrorCode.NONE, 1)
        assert await produce(cluster, 2, sent(4, "e")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(cluster, 2, sent(3, "d")) == (ErrorCode.NONE, 3)
        assert await cluster.read_all(2) == ["a", "b", "c", "d"]

    run(scenario)


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_restarted_leader_knows_its_producers(is_orderly: bool) -> None:
    """With small segments, so that a snapshot is part of what it reads."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"segment.bytes": "200"})
        await cluster.started()
        for sequence in range(7):
            assert await produce(cluster, 1, sent(sequence, str(sequence))) == (ErrorCode.NONE, sequence)
        if is_orderly:
            await cluster.stop(1)
        else:
            cluster.crash(1)
        await cluster.start(1)
        await elect(cluster, 1, isr=[1])
        assert await produce(cluster, 1, sent(6, "6")) == (ErrorCode.NONE, 6)
        assert await produce(cluster, 1, sent(8, "8")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(cluster, 1, sent(7, "7")) == (ErrorCode.NONE, 7)
        assert await cluster.read_all(1, 6) == ["6", "7"]

    run(scenario)


def test_a_deposed_leader_forgets_the_batches_that_it_truncates() -> None:
    """The first attempt reaches only the old leader, which then dies. The new leader stores the retry, and another batch
    before it. The old leader truncates its own copy, follows, and leads again: it must know the batches of the new leader
    and nothing of its own."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await produce(cluster, 1, sent(0, "a")) == (ErrorCode.NONE, 0)
        cluster.crash(2)
        assert await produce(cluster, 1, sent(1, "b"), acks=1) == (ErrorCode.NONE, 1)
        assert await produce(cluster, 1, sent(2, "lost"), acks=1) == (ErrorCode.NONE, 2)
        cluster.crash(1)
        await cluster.start(2)
        await elect(cluster, 2, isr=[2])
        assert (await cluster.produce(2, "from another client")).base_offset == 1
        assert await produce(cluster, 2, sent(1, "b")) == (ErrorCode.NONE, 2)
        await cluster.start(1)
        await cluster.until(lambda: cluster.controller.partition().isr == (2, 1) and cluster[1].follows())
        await cluster.until(lambda: cluster[1].partition().log.written_offset == 3)
        await elect(cluster, 1, isr=[1, 2])
        assert await produce(cluster, 1, sent(3, "d")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(cluster, 1, sent(1, "b")) == (ErrorCode.NONE, 2)
        assert await produce(cluster, 1, sent(2, "c")) == (ErrorCode.NONE, 3)
        assert await cluster.read_all(1) == ["a", "from another client", "b", "c"]

    run(scenario)


def test_a_running_follower_forgets_the_batches_that_it_truncates() -> None:
    """Like the test before, but the deposed leader never restarts, so it goes back in memory."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await produce(cluster, 1, sent(0, "a")) == (ErrorCode.NONE, 0)
        cluster.crash(2)
        assert await produce(cluster, 1, sent(1, "lost"), acks=1) == (ErrorCode.NONE, 1)
        await cluster.start(2)
        cluster.controller.change(leader=2, isr=[2])
        await cluster.until(lambda: cluster[2].leads() and cluster[1].follows())
        end = cluster[2].partition().log.log_end_offset
        if end == 2:
            pytest.fail("the record was replicated before the election, so nothing is truncated")
        assert await produce(cluster, 2, sent(1, "b", "c")) == (ErrorCode.NONE, 1)
        await cluster.until(lambda: cluster[1].partition().log.written_offset == 3)
        cluster.controller.change(isr=[2, 1])
        await elect(cluster, 1, isr=[1, 2])
        assert await produce(cluster, 1, sent(1, "b", "c")) == (ErrorCode.NONE, 1)
        assert await produce(cluster, 1, sent(2, "lost")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(cluster, 1, sent(3, "d")) == (ErrorCode.NONE, 3)

    run(scenario)


def test_a_moved_replica_knows_its_producers() -> None:
    """The copy notes what it copies. A producer whose batches were deleted before the move goes along too."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster)
        assert await produce(cluster, 1, sent(0, "deleted", producer_id=ID + 1)) == (ErrorCode.NONE, 0)
        await cluster[1].partition().log.roll()
        assert await produce(cluster, 1, sent(0, "a")) == (ErrorCode.NONE, 1)
        await cluster[1].partition().log.delete_segments_before(Offset(1))
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert await produce(cluster, 1, sent(0, "a")) == (ErrorCode.NONE, 1)
        assert await produce(cluster, 1, sent(0, "deleted", producer_id=ID + 1)) == (ErrorCode.NONE, 0)
        assert await produce(cluster, 1, sent(1, "b")) == (ErrorCode.NONE, 2)
        assert await cluster.read_all(1, 1) == ["a", "b"]

    run(scenario)


def test_a_silent_producer_expires() -> None:
    """An old and a recent batch: only the producer of the recent one is still known after the next check."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        now_ms = cluster[1].env.wall_ms()
        assert await produce(cluster, 1, sent(0, "old", timestamp_ms=now_ms - 60_000)) == (ErrorCode.NONE, 0)
        recent = sent(0, "recent", producer_id=ID + 1, timestamp_ms=now_ms)
        assert await produce(cluster, 1, recent) == (ErrorCode.NONE, 1)
        state = cluster[1].partition().log.producers.state
        assert list(state.entries) == [ID, ID + 1]
        await cluster.until(lambda: ID not in state.entries)
        assert list(state.entries) == [ID + 1]
        assert await produce(cluster, 1, sent(9, "again")) == (ErrorCode.NONE, 2)

    run(scenario, producer_id_expiration_ms="60000", producer_id_expiration_check_interval_ms="500")


def test_the_time_until_a_producer_expires_changes_while_the_broker_runs() -> None:
    """The next check uses the new value, without a restart."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        old = sent(0, "old", timestamp_ms=cluster[1].env.wall_ms() - 60_000)
        assert await produce(cluster, 1, old) == (ErrorCode.NONE, 0)
        state = cluster[1].partition().log.producers.state
        await asyncio.sleep(2)
        assert list(state.entries) == [ID]
        cluster.controller.configure_broker("", "producer.id.expiration.ms", "60000")
        await cluster.until(lambda: not state.entries)

    run(scenario, producer_id_expiration_ms="3600000", producer_id_expiration_check_interval_ms="500")
