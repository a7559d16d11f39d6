"""The log side of transactions on a simulated cluster: markers, read_committed, ListOffsets, failover, moves, compaction.

The test is the transaction coordinator: it sends WriteTxnMarkers itself.
"""

import asyncio
import errno
from typing import Any

import pytest

from broker.hosting.partition import Partition
from broker.requests.write_txn_markers import OnDone
from common.ids import TopicId, Uuid
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import READ_COMMITTED, AbortedTransaction
from common.protocol.messages.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from common.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from common.records.batch import TRANSACTIONAL_BIT
from common.records.end_transaction import EndTransactionMarker
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedEvent
from tests.unit.broker.cluster import Cluster, directory, path, run
from tests.unit.broker.test_describe_producers import describe
from tests.unit.broker.test_directory_failure import on_disk, two_disks
from tests.unit.broker.test_idempotent_produce import elect, sent, two_brokers
from tests.unit.broker.test_moves import alter, caught_up, finished, with_records

ID = 40
OFFSETS = TopicId(Uuid(b"O" * 16))


class RecordedMarkers:
    """In place of the group coordinator: records the markers, and answers with `result`."""

    def __init__(self) -> None:
        self.markers: list[tuple[str, EndTransactionMarker]] = []
        self.result = ErrorCode.NONE

    def write_marker(self, partition: Partition, marker: EndTransactionMarker, on_done: OnDone) -> None:
        self.markers.append((partition.name, marker))
        on_done(self.result)


def run_with_transactions(scenario: Any, **properties: Any) -> None:
    async def prepared(cluster: Cluster) -> None:
        cluster.marked_offsets = RecordedMarkers()
        await scenario(cluster)

    run(prepared, **properties)


async def send(
    cluster: Cluster,
    broker_id: int,
    sequence: int,
    *texts: str,
    producer_id: int = ID,
    epoch: int = 0,
    acks: int = -1,
    version: int = 11,
) -> ErrorCode:
    """Produces one transactional batch, from version 12 on as part of a transaction of version 2."""
    records = sent(sequence, *texts, producer_id=producer_id, epoch=epoch, attributes=TRANSACTIONAL_BIT)
    answer = await cluster.produce(broker_id, records=records, transactional_id="tx", acks=acks, version=version)
    return ErrorCode(answer.error_code)


def marker(
    *, is_commit: bool, producer_id: int = ID, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


async def end(cluster: Cluster, broker_id: int, *, is_commit: bool, **options: Any) -> ErrorCode:
    request = WriteTxnMarkersRequest(markers=[marker(is_commit=is_commit, **options)])
    response = await cluster.request(broker_id, request)
    [answer] = response.markers
    assert answer.producer_id == request.markers[0].producer_id
    [partition] = answer.topics[0].partitions
    return ErrorCode(partition.error_code)


async def latest(cluster: Cluster, broker_id: int, *, isolation_level: int, timestamp: int = LATEST) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=timestamp)])],
    )
    [answer] = (await cluster.request(broker_id, request)).topics[0].partitions
    assert answer.error_code == ErrorCode.NONE
    return int(answer.offset)


async def committed(cluster: Cluster, broker_id: int, offset: int = 0) -> list[str]:
    return await cluster.read_all(broker_id, offset, isolation_level=READ_COMMITTED)


def test_a_reader_with_read_committed_waits_for_the_marker() -> None:
    """Others read at once. The last stable offset is in every answer, the aborted transactions only in those that ask."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        await cluster.produce(1, "before")
        assert await send(cluster, 1, 0, "a", "b") is ErrorCode.NONE
        await cluster.produce(1, "after")
        assert await cluster.read_all(1) == ["before", "a", "b", "after"]
        assert await committed(cluster, 1) == ["before"]
        data = await cluster.fetch(1)
        assert (data.high_watermark, data.last_stable_offset, data.aborted_transactions) == (4, 1, None)
        assert await latest(cluster, 1, isolation_level=0) == 4
        assert await latest(cluster, 1, isolation_level=READ_COMMITTED) == 1
        assert await latest(cluster, 1, isolation_level=READ_COMMITTED, timestamp=1) == 0
        assert await end(cluster, 1, is_commit=False, coordinator_epoch=3) is ErrorCode.NONE
        data = await cluster.fetch(1, isolation_level=READ_COMMITTED)
        assert (data.high_watermark, data.last_stable_offset) == (5, 5)
        assert data.aborted_transactions == [AbortedTransaction(producer_id=ID, first_offset=1)]
        assert await latest(cluster, 1, isolation_level=READ_COMMITTED) == 5
        data = await cluster.fetch(1, 3, isolation_level=READ_COMMITTED)
        assert data.aborted_transactions == [AbortedTransaction(producer_id=ID, first_offset=1)]
        assert (await cluster.fetch(1, 5, isolation_level=READ_COMMITTED)).aborted_transactions == []
        [producer] = (await describe(cluster, 1, 0))[0].active_producers
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (3, -1)
        assert await send(cluster, 1, 2, "c") is ErrorCode.NONE
        [producer] = (await describe(cluster, 1, 0))[0].active_producers
        assert producer.current_txn_start_offset == 5

    run_with_transactions(scenario)


def test_the_marker_wakes_a_waiting_reader() -> None:
    """Bytes beyond the last stable offset do not, and a reader without read_committed does not wait for it."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await send(cluster, 1, 0, "a") is ErrorCode.NONE
        careful = asyncio.ensure_future(cluster.fetch(1, isolation_level=READ_COMMITTED, max_wait_ms=20_000))
        other = asyncio.ensure_future(cluster.fetch(1, 1, max_wait_ms=20_000))
        await cluster.world.sleep(1)
        assert not careful.done()
        assert not other.done()
        assert (await cluster.produce(1, "b")).error_code == ErrorCode.NONE
        await cluster.world.sleep(1)
        assert other.done()
        assert not careful.done()
        before_ns = cluster.world.now_ns()
        assert await end(cluster, 1, is_commit=True) is ErrorCode.NONE
        data = await careful
        assert cluster.world.now_ns() - before_ns < 10**9
        assert (data.last_stable_offset, data.aborted_transactions) == (3, [])
        assert len(data.records or b"") > 0

    run_with_transactions(scenario)


def test_a_marker_waits_for_the_isr() -> None:
    """The follower is dead. The marker is answered when the ISR shrinks, and until then nobody with read_committed sees
    its effect."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await send(cluster, 1, 0, "a") is ErrorCode.NONE
        cluster.crash(2)
        ending = asyncio.ensure_future(end(cluster, 1, is_commit=True))
        await cluster.world.sleep(1)
        assert not ending.done()
        assert cluster[1].partition().log.log_end_offset == 2
        assert await committed(cluster, 1) == []
        assert await ending is ErrorCode.NONE
        assert cluster.controller.partition().isr == (1,)
        assert (await cluster.fetch(1)).last_stable_offset == 2

    run_with_transactions(scenario)


def test_a_marker_that_is_not_replicated_in_time_times_out() -> None:
    """The follower is dead, and no controller lets the ISR shrink. The coordinator sends the marker again."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await send(cluster, 1, 0, "a") is ErrorCode.NONE
        cluster.controller.is_reachable = False
        cluster.crash(2)
        assert await end(cluster, 1, is_commit=True) is ErrorCode.REQUEST_TIMED_OUT
        cluster.controller.is_reachable = True
        assert await end(cluster, 1, is_commit=True) is ErrorCode.NONE
        assert cluster[1].partition().last_stable_offset == 3

    run_with_transactions(scenario)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"epoch": 1, "coordinator_epoch": 5}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"epoch": 2, "coordinator_epoch": 4}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        ({"epoch": 2, "coordinator_epoch": 5}, ErrorCode.NONE),
        ({"epoch": 3, "coordinator_epoch": 6}, ErrorCode.NONE),
    ],
)
def test_a_marker_with_an_old_epoch_is_refused(options: dict[str, int], expected: ErrorCode) -> None:
    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await send(cluster, 1, 0, "a", epoch=2) is ErrorCode.NONE
        assert await end(cluster, 1, is_commit=True, epoch=2, coordinator_epoch=5) is ErrorCode.NONE
        assert await send(cluster, 1, 1, "b", epoch=2) is ErrorCode.NONE
        assert await end(cluster, 1, is_commit=True, **options) is expected
        stable = 4 if expected is ErrorCode.NONE else 2
        assert cluster[1].partition().last_stable_offset == stable

    run_with_transactions(scenario)


def test_a_fenced_producer_is_refused() -> None:
    """The coordinator has aborted its transaction with the next epoch."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await send(cluster, 1, 0, "a") is ErrorCode.NONE
        assert await end(cluster, 1, is_commit=False, epoch=1) is ErrorCode.NONE
        assert await send(cluster, 1, 1, "b") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await send(cluster, 1, 1, "b", epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(cluster, 1, 0, "b", epoch=1) is ErrorCode.NONE

    run_with_transactions(scenario)


@pytest.mark.parametrize(
    ("attributes", "producer_id", "transactional_id", "expected"),
    [
        (TRANSACTIONAL_BIT, ID, None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (TRANSACTIONAL_BIT, -1, "tx", ErrorCode.INVALID_RECORD),
        (TRANSACTIONAL_BIT | 0x20, ID, "tx", ErrorCode.INVALID_RECORD),
        # The producer's transaction is open.
        (0, ID, "tx", ErrorCode.INVALID_TXN_STATE),
        (0, ID + 1, "tx", ErrorCode.NONE),
        (TRANSACTIONAL_BIT, ID, "tx", ErrorCode.NONE),
    ],
)
def test_what_a_producer_may_send(
    attributes: int, producer_id: int, transactional_id: str | None, expected: ErrorCode
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await send(cluster, 1, 0, "a") is ErrorCode.NONE
        records = sent(1, "b", producer_id=producer_id, attributes=attributes, epoch=0 if producer_id >= 0 else -1)
        answer = await cluster.produce(1, records=records, transactional_id=transactional_id)
        assert answer.error_code == expected
        assert cluster[1].partition().log.log_end_offset == (2 if expected is ErrorCode.NONE else 1)

    run_with_transactions(scenario)


def test_every_partition_of_a_request_has_its_own_result() -> None:
    """One is led elsewhere, one does not exist, and those of `__consumer_offsets` are the group coordinator's."""

    async def scenario(cluster: Cluster) -> None:
        groups = cluster.marked_offsets
        assert isinstance(groups, RecordedMarkers)
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], [2, 1])
        cluster.controller.create_topic([1, 2], [2, 1], name="__consumer_offsets", topic_id=OFFSETS)
        await cluster.started()
        await cluster.started(topic_id=OFFSETS)
        both = [
            WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1, 7]),
            WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[0, 1]),
            WritableTxnMarkerTopic(name="unknown", partition_indexes=[0]),
        ]
        markers = [
            WritableTxnMarker(
                producer_id=number, producer_epoch=2, transaction_result=True, topics=both, coordinator_epoch=9
            )
            for number in (5, 6)
        ]
        response = await cluster.request(1, WriteTxnMarkersRequest(markers=markers))
        wrong = ErrorCode.NOT_LEADER_OR_FOLLOWER
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for number, answer in zip((5, 6), response.markers, strict=True):
            assert answer.producer_id == number
            assert [
                (topic.name, [(each.partition_index, each.error_code) for each in topic.partitions])
                for topic in answer.topics
            ] == [
                ("t", [(0, ErrorCode.NONE), (1, wrong), (7, unknown)]),
                ("__consumer_offsets", [(0, ErrorCode.NONE), (1, wrong)]),
                ("unknown", [(0, unknown)]),
            ]
        expected = [EndTransactionMarker(number, 2, 9, is_commit=True) for number in (5, 6)]
        assert groups.markers == [("__consumer_offsets-0", each) for each in expected]
        assert cluster[1].partition().log.log_end_offset == 2
        assert cluster[1].partition(topic_id=OFFSETS).log.log_end_offset == 0
        groups.result = wrong
        response = await cluster.request(1, WriteTxnMarkersRequest(markers=markers[:1]))
        assert response.markers[0].topics[1].partitions[0].error_code == wrong

    run_with_transactions(scenario)


def test_markers_do_not_wait_for_a_suspected_disk() -> None:
    """The coordinator sends one request after the other to a broker. So transactions on the healthy disk would end only when
    the other one answers again or is given up."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        [hung], [healthy] = on_disk(cluster, "a"), on_disk(cluster, "b")

        async def results(*indexes: int) -> dict[int, int]:
            topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[*indexes])]
            written = WritableTxnMarker(producer_id=ID, producer_epoch=0, transaction_result=True, topics=topics)
            [answer] = (await cluster.request(1, WriteTxnMarkersRequest(markers=[written]))).markers
            return {each.partition_index: each.error_code for each in answer.topics[0].partitions}

        cluster.world.disk(path(1, "a")).hang()
        began_ns = cluster.world.now_ns()
        assert await results(hung, healthy) == {hung: ErrorCode.REQUEST_TIMED_OUT, healthy: ErrorCode.NONE}
        assert cluster.world.now_ns() - began_ns < 2 * NS_PER_S
        began_ns = cluster.world.now_ns()
        assert await results(hung, healthy) == {hung: ErrorCode.KAFKA_STORAGE_ERROR, healthy: ErrorCode.NONE}
        assert cluster.world.now_ns() - began_ns < NS_PER_S // 10
        cluster.world.disk(path(1, "a")).thaw()
        await cluster.until(lambda: bool(cluster.world.events_named("log_dir_trusted")))
        assert await results(hung, healthy) == {hung: ErrorCode.NONE, healthy: ErrorCode.NONE}

    run_with_transactions(scenario, diskraft_log_dir_operation_timeout_ms="10000")


def test_markers_do_not_wait_for_a_follower_whose_disk_hangs() -> None:
    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await send(cluster, 1, 0, "a") is ErrorCode.NONE
        cluster.world.disk(path(2, "a")).hang()
        began_ns = cluster.world.now_ns()
        assert await end(cluster, 1, is_commit=True) is ErrorCode.REQUEST_TIMED_OUT
        assert cluster.world.now_ns() - began_ns < 2 * NS_PER_S
        began_ns = cluster.world.now_ns()
        assert await end(cluster, 1, is_commit=True) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.world.now_ns() - began_ns < NS_PER_S // 10
        cluster.world.disk(path(2, "a")).thaw()
        await cluster.until(lambda: bool(cluster.world.events_named("log_dir_trusted")))
        await cluster.until(lambda: not cluster[1].partition().replica.is_held_up, within_seconds=1)
        assert await end(cluster, 1, is_commit=True) is ErrorCode.NONE
        assert (await committed(cluster, 1))[0] == "a"

    run_with_transactions(scenario, diskraft_log_dir_operation_timeout_ms="10000")


def test_a_request_without_markers_is_answered_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert (await cluster.request(1, WriteTxnMarkersRequest())).markers == []

    run_with_transactions(scenario)


def test_a_marker_needs_enough_replicas() -> None:
    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        cluster.controller.configure("min.insync.replicas", "2")
        cluster.controller.change(isr=[1])
        assert await end(cluster, 1, is_commit=True) is ErrorCode.NOT_ENOUGH_REPLICAS

    run_with_transactions(scenario)


def test_a_new_leader_knows_the_open_and_the_aborted_transactions() -> None:
    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await send(cluster, 1, 0, "aborted") is ErrorCode.NONE
        assert await end(cluster, 1, is_commit=False) is ErrorCode.NONE
        assert await send(cluster, 1, 1, "open") is ErrorCode.NONE
        await cluster.until(lambda: cluster[2].partition().high_watermark == 3)
        assert cluster[2].partition().last_stable_offset == 2
        await elect(cluster, 2, isr=[1, 2])
        data = await cluster.fetch(2, isolation_level=READ_COMMITTED)
        assert data.aborted_transactions == [AbortedTransaction(producer_id=ID, first_offset=0)]
        assert data.last_stable_offset == 2
        assert await end(cluster, 1, is_commit=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await end(cluster, 2, is_commit=True) is ErrorCode.NONE
        assert (await cluster.fetch(2, isolation_level=READ_COMMITTED)).last_stable_offset == 4

    run_with_transactions(scenario)


def test_a_truncated_marker_opens_its_transaction_again() -> None:
    """The marker reached only the old leader. The new one ends the transaction otherwise, which is what counts."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await send(cluster, 1, 0, "a") is ErrorCode.NONE
        await cluster.until(lambda: cluster[2].partition().log.log_end_offset == 1)
        cluster.crash(2)
        ending = asyncio.ensure_future(end(cluster, 1, is_commit=True))
        await cluster.until(lambda: cluster[1].partition().log.written_offset == 2)
        cluster.crash(1)
        await asyncio.wait([ending])
        assert ending.exception() is not None
        await cluster.start(2)
        await elect(cluster, 2, isr=[2])
        assert cluster[2].partition().last_stable_offset == 0
        assert await end(cluster, 2, is_commit=False) is ErrorCode.NONE
        await cluster.start(1)
        await cluster.until(lambda: cluster[1].partition().high_watermark == 2)
        await elect(cluster, 1, isr=[1, 2])
        data = await cluster.fetch(1, isolation_level=READ_COMMITTED)
        assert (data.last_stable_offset, len(data.aborted_transactions or ())) == (2, 1)

    run_with_transactions(scenario)


def test_a_move_takes_the_transactions_along() -> None:
    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert await send(cluster, 1, 0, "aborted") is ErrorCode.NONE
        assert await end(cluster, 1, is_commit=False) is ErrorCode.NONE
        assert await send(cluster, 1, 1, "open") is ErrorCode.NONE
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        data = await cluster.fetch(1, isolation_level=READ_COMMITTED)
        assert data.last_stable_offset == 3
        assert data.aborted_transactions == [AbortedTransaction(producer_id=ID, first_offset=1)]
        assert await end(cluster, 1, is_commit=True) is ErrorCode.NONE
        assert (await cluster.fetch(1, isolation_level=READ_COMMITTED)).last_stable_offset == 5

    run_with_transactions(scenario)


async def with_an_aborted_record_in_a_copy(cluster: Cluster) -> None:
    """Aborts a transaction in a log, and begins to move it. Returns when the copy has caught up."""
    await with_records(cluster, "one")
    assert await send(cluster, 1, 0, "aborted") is ErrorCode.NONE
    assert await end(cluster, 1, is_commit=False) is ErrorCode.NONE
    assert alter(cluster, path(1, "b")) is ErrorCode.NONE
    await caught_up(cluster)


def test_a_kill_right_after_the_first_roll_of_a_moved_log_shows_no_aborted_record() -> None:
    """The move has synced the log to its end, and the next record begins a new segment. The broker is killed before the old
    segment has its index of aborted transactions. The next start must not trust that segment."""

    async def scenario(cluster: Cluster) -> None:
        await with_an_aborted_record_in_a_copy(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        log = cluster[1].partition().log
        cluster.controller.configure("segment.bytes", str(log.size_bytes))
        disk = cluster.world.disk(path(1, "b"))
        disk.hang({"fsync"})
        assert (await cluster.produce(1, "two")).error_code == ErrorCode.NONE
        assert log.segment_base_offsets == [0, 3]
        cluster.crash(1)
        disk.thaw()
        await cluster.start(1, "ab")
        await cluster.started()
        data = await cluster.fetch(1, isolation_level=READ_COMMITTED)
        assert data.aborted_transactions == [AbortedTransaction(producer_id=ID, first_offset=1)]

    run_with_transactions(scenario)


def test_a_copy_that_could_not_be_closed_is_not_trusted() -> None:
    """The disk of the current log fails during a move, and the process is short of file descriptors when it closes the copy.
    After an orderly end, the next start must not take the copy's index of aborted transactions for whole."""

    async def scenario(cluster: Cluster) -> None:
        await with_an_aborted_record_in_a_copy(cluster)
        a, b = (cluster.world.disk(path(1, letter)) for letter in "ab")

        def run_short(event: SimulatedEvent) -> None:
            if event.name == "move_interrupted":
                b.fail_next("replace_file", errno.EMFILE)

        cluster.world.event_watchers.append(run_short)
        a.fail_with(errno.EIO)
        await cluster.world.event("move_interrupted")
        await cluster.stop(1)
        a.heal()
        await cluster.start(1, "ab")
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        data = await cluster.fetch(1, isolation_level=READ_COMMITTED)
        assert data.aborted_transactions == [AbortedTransaction(producer_id=ID, first_offset=1)]

    run_with_transactions(scenario)
