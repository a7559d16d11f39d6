"""Brokers compact the logs of topics with cleanup.policy=compact while clients and followers use them."""

import asyncio
import errno
from dataclasses import replace
from typing import Any

import pytest

from broker.hosting.cleaner import Cleaner
from common.environment.interface import LogDirError
from common.protocol.errors import ErrorCode
from common.protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from common.records.batch import assemble_batch, read_header, split_batches
from common.records.record import Record, append_varint, encode_batch, iterate_records
from common.storage.compaction.log_compaction import LogCompaction
from common.storage.names import CLEANER_CHECKPOINT_FILE
from common.time_units import NS_PER_S
from tests.offset_checkpoints import parse_offset_checkpoint
from tests.unit.broker.cluster import Cluster, directory, path, run
from tests.unit.broker.test_moves import KEY, alter, assign_directories, finished

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "400", "min.cleanable.dirty.ratio": "0.1"}
SOON = "500"
NOW_MS = 1_700_000_000_000


async def put(cluster: Cluster, broker_id: int, *pairs: tuple[str, str], timestamp_ms: int = 1, index: int = 0) -> None:
    records = encode_batch([Record(key.encode(), value.encode(), timestamp_ms) for key, value in pairs])
    assert (await cluster.produce(broker_id, records=records, index=index)).error_code == ErrorCode.NONE


async def fill(cluster: Cluster, broker_id: int = 1, count: int = 30, keys: int = 3) -> None:
    for number in range(count):
        await put(cluster, broker_id, (f"k{number % keys}", f"v{number}"))


async def read(cluster: Cluster, broker_id: int = 1) -> dict[int, tuple[str, str]]:
    """Reads the whole partition as a consumer does and returns the key and the value at each offset."""
    found: dict[int, tuple[str, str]] = {}
    offset: int = cluster[broker_id].partition().log.log_start_offset
    while data := (await cluster.fetch(broker_id, offset)).records:
        assert isinstance(data, memoryview)
        for header, view in split_batches(data):
            for record in iterate_records(view):
                assert record.key is not None and record.value is not None
                found[record.offset] = (bytes(record.key).decode(), bytes(record.value).decode())
            offset = header.next_offset
    return found


def checkpoint(cluster: Cluster, letter: str = "a") -> dict[tuple[str, int], int]:
    content = cluster.world.disk(path(1, letter)).files().get(CLEANER_CHECKPOINT_FILE)
    return {} if content is None else parse_offset_checkpoint(content)


async def compacted(cluster: Cluster, broker_id: int = 1, *, beyond: int = 0) -> None:
    """Waits until everything but the newest segment is clean."""
    await cluster.until(
        lambda: (
            beyond < cluster[broker_id].partition().first_dirty_offset
            and cluster[broker_id].partition().first_dirty_offset
            == cluster[broker_id].partition().log.segment_base_offsets[-1]
        )
    )


def test_a_compacted_partition_is_read_and_loaded_again() -> None:
    """The first dirty offset is in the directory's checkpoint, so the next start goes on from there."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs=COMPACT)
        await cluster.started()
        await fill(cluster)
        await compacted(cluster)
        dirty_from = cluster[1].partition().first_dirty_offset
        found = await read(cluster)
        assert [offset for offset in found if offset < dirty_from] == list(range(dirty_from - 3, dirty_from))
        await cluster.until(lambda: checkpoint(cluster) == {("t", 0): dirty_from})
        await cluster.stop(1)
        await cluster.start(1)
        await cluster.started()
        assert cluster[1].partition().first_dirty_offset == dirty_from
        assert await read(cluster) == found
        await fill(cluster, keys=1)
        await compacted(cluster, beyond=dirty_from)
        assert ("k0", "v29") in (await read(cluster)).values()

    run(scenario, log_cleaner_backoff_ms=SOON)


def test_a_topic_that_is_only_deleted_from_is_never_compacted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs=COMPACT | {"cleanup.policy": "delete"})
        await cluster.started()
        await fill(cluster)
        await cluster.world.sleep(5)
        assert len(await read(cluster)) == 30
        cluster.controller.configure("cleanup.policy", "compact")
        await compacted(cluster)
        assert len(await read(cluster)) < 30

    run(scenario, log_cleaner_backoff_ms=SOON)


def test_a_new_follower_replicates_a_log_with_holes() -> None:
    """The follower gets the batches as they are, and the records at the offsets that the leader has."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.start(2)
        cluster.controller.create_topic([1], configs=COMPACT)
        await cluster.started()
        await fill(cluster)
        await compacted(cluster)
        cluster.controller.change(replicas=[1, 2], isr=[1], leader=1)
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        found = await read(cluster)
        await put(cluster, 1, ("more", "one"))
        cluster.controller.change(leader=2, isr=[2])
        await cluster.until(cluster[2].leads)
        assert await read(cluster, 2) == found | {30: ("more", "one")}
        await put(cluster, 2, ("more", "two"))

    run(scenario, log_cleaner_backoff_ms=SOON)


def test_no_log_of_a_directory_that_has_failed_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its turn comes to be closed, a replica there is like any other. If the cleaner chose its log again and again,
    the event loop would do nothing else any more."""
    compact, tries = Cleaner._compact, 0

    async def count(*args: Any) -> bool:
        nonlocal tries
        tries += 1
        assert tries < 100, "the cleaner goes in circles"
        return await compact(*args)

    async def scenario(cluster: Cluster) -> None:
        broker = await cluster.start(1, "ab")
        cluster.controller.create_topic([1], configs=COMPACT)
        await cluster.started()
        await fill(cluster)
        partition = broker.partition()
        broker.offline_delay_ns = 60 * NS_PER_S
        broker.failures.report(LogDirError(path(1, "a"), "probe", errno.EIO))
        await cluster.until(lambda: broker.replicas.cleaner.counts.last_run_ns is not None)
        await cluster.world.sleep(1)
        assert (partition.gone, partition.first_dirty_offset) == (ErrorCode.NONE, 0)

    monkeypatch.setattr(Cleaner, "_compact", count)
    run(scenario, log_cleaner_backoff_ms="5000")


def test_a_directory_without_room_does_not_keep_the_logs_of_others_dirty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log is the dirtiest one at every look, because it cannot be compacted."""

    async def scenario(cluster: Cluster) -> None:
        broker = await cluster.start(1, "ab")
        cluster.controller.create_topic([1], [1], configs=COMPACT)
        await cluster.started(0)
        await cluster.started(1)
        [other] = [each for each in (broker.partition(0), broker.partition(1)) if each.directory_id == directory(1, "b")]
        for _ in range(3):
            dirty_from = other.first_dirty_offset
            for number in range(30):
                await put(cluster, 1, (f"k{number % 3}", "v"), index=1 - other.index)
                await put(cluster, 1, (f"k{number % 3}", "v"), index=other.index)
            await cluster.until(lambda dirty_from=dirty_from: other.first_dirty_offset > dirty_from)
        assert broker.partition(1 - other.index).first_dirty_offset == 0
        assert len(cluster.world.events_named("log_compaction_ended")) == 1, "it is not logged again at every look"

    monkeypatch.setattr(Cleaner, "_has_room", lambda _self, where, _size: where.directory_id == directory(1, "b"))
    run(scenario, log_cleaner_backoff_ms="5000")


def test_each_replica_is_compacted_on_its_own() -> None:
    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], configs=COMPACT)
        await cluster.started()
        await fill(cluster)
        await compacted(cluster, 1)
        await compacted(cluster, 2)
        leader, follower = (cluster[broker_id].partition().log for broker_id in (1, 2))
        assert leader.log_end_offset == follower.log_end_offset == 30
        assert leader.size_bytes < 1500
        assert follower.size_bytes < 1500

    run(scenario, log_cleaner_backoff_ms=SOON)


def test_nothing_beyond_the_high_watermark_is_compacted() -> None:
    """Those records may still be truncated, and then the older ones of their keys are the latest again."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], configs=COMPACT)
        await cluster.started()
        await put(cluster, 1, ("k0", "committed"))
        cluster.crash(2)
        for number in range(20):
            records = encode_batch([Record(b"k0", f"v{number}".encode(), 1)])
            assert (await cluster.produce(1, records=records, acks=1)).error_code == ErrorCode.NONE
        await cluster.world.sleep(3)
        partition = cluster[1].partition()
        assert partition.high_watermark <= 1
        assert partition.first_dirty_offset == 0
        assert len(partition.log.segment_base_offsets) > 2
        cluster.controller.fence(2)
        cluster.controller.change(isr=[1])
        await compacted(cluster)
        assert 0 not in await read(cluster)

    run(scenario, log_cleaner_backoff_ms=SOON)


def test_offsets_in_a_hole_are_served() -> None:
    """A fetch from inside a hole returns what follows. The ends of the log stay where they were."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs=COMPACT)
        await cluster.started()
        await fill(cluster)
        await compacted(cluster)
        first = min(await read(cluster))
        assert first > 1
        fetched = await cluster.fetch(1, 1)
        assert (fetched.error_code, fetched.log_start_offset) == (ErrorCode.NONE, 0)
        offsets = [
            (
                await cluster.request(
                    1,
                    ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=at)])]),
                )
            )
            .topics[0]
            .partitions[0]
            .offset
            for at in (EARLIEST, LATEST, 1)
        ]
        assert offsets == [0, 30, first]

    run(scenario, log_cleaner_backoff_ms=SOON)


@pytest.mark.parametrize("lag_ms", ["600000", "0"])
def test_young_records_are_left_alone(lag_ms: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs=COMPACT | {"min.compaction.lag.ms": lag_ms})
        await cluster.started()
        now_ms = cluster[1].env.wall_ms()
        for number in range(30):
            await put(cluster, 1, ("k", f"v{number}"), timestamp_ms=now_ms)
        await cluster.world.sleep(5)
        assert (len(await read(cluster)) == 30) == (lag_ms != "0")

    run(scenario, log_cleaner_backoff_ms=SOON)


def test_a_clean_log_is_compacted_again_when_its_records_are_old() -> None:
    """max.compaction.lag.ms counts where the dirty ratio is too low."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        configs = COMPACT | {"min.cleanable.dirty.ratio": "1"}
        cluster.controller.create_topic([1], configs=configs)
        await cluster.started()
        await fill(cluster)
        await cluster.world.sleep(5)
        assert len(await read(cluster)) == 30
        cluster.controller.configure("max.compaction.lag.ms", "1000")
        await compacted(cluster)

    run(scenario, log_cleaner_backoff_ms=SOON)


def test_both_policies_together() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        configs = COMPACT | {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}
        cluster.controller.create_topic([1], configs=configs)
        await cluster.started()
        await fill(cluster)
        await compacted(cluster)
        assert cluster[1].partition().log.log_start_offset == 0
        cluster.controller.configure("retention.ms", "60000")
        await put(cluster, 1, ("k0", "now"), timestamp_ms=cluster[1].env.wall_ms())
        await cluster.until(lambda: cluster[1].partition().log.log_start_offset > 0)
        found = await read(cluster)
        assert found[30] == ("k0", "now")
        assert min(found) >= cluster[1].partition().log.log_start_offset

    run(scenario, log_retention_check_interval_ms="1000", log_cleaner_backoff_ms=SOON)


def test_a_compacted_log_moves_with_its_checkpoint() -> None:
    """While the replica moves, neither log is compacted."""

    async def scenario(cluster: Cluster) -> None:
        assign_directories(cluster)
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1], configs=COMPACT)
        await cluster.started()
        cluster.controller.change(directories=[directory(1, "a")])
        await fill(cluster)
        await compacted(cluster)
        dirty_from = cluster[1].partition().first_dirty_offset
        found = await read(cluster)
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await cluster.until(lambda: cluster[1].replicas.wished_assignments().get(KEY) == directory(1, "b"))
        await fill(cluster, keys=1)
        await cluster.world.sleep(5)
        assert cluster[1].partition().first_dirty_offset == dirty_from
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        # The first batches are gone. A consumer may still be at an offset below those that are left.
        assert cluster[1].partition().log.log_start_offset == 0
        assert {offset: pair for offset, pair in (await read(cluster)).items() if offset < 30} == found
        await compacted(cluster, beyond=dirty_from)
        await cluster.until(lambda: ("t", 0) in checkpoint(cluster, "b"))

    run(scenario, log_cleaner_backoff_ms=SOON)


def test_a_move_that_goes_on_after_a_compaction_brings_nothing_back() -> None:
    """The target fails when a part of the log is copied. When it is back, the log has been compacted: what the copy has of
    it may be gone there, and with its tombstone gone as well, a deleted key would be back for good."""

    async def scenario(cluster: Cluster) -> None:
        assign_directories(cluster)
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1], configs=COMPACT | {"cleanup.policy": "delete"})
        await cluster.started()
        cluster.controller.change(directories=[directory(1, "a")])
        await fill(cluster)
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await cluster.until(lambda: (future := cluster[1].partition().future) and future.log.written_offset > 5)
        cluster.world.disk(path(1, "b")).fail_with(errno.EIO)
        await cluster.until(lambda: cluster[1].partition().future is None)
        cluster.controller.configure("cleanup.policy", "compact")
        await compacted(cluster)
        await cluster.until(lambda: ("t", 0) in checkpoint(cluster))
        found = await read(cluster)
        assert min(found) > 5
        await cluster.stop(1)
        cluster.world.disk(path(1, "b")).heal()
        cluster.controller.configure_broker("1", "replica.alter.log.dirs.io.max.bytes.per.second", "1000000")
        await cluster.start(1, "ab")
        await cluster.until(lambda: cluster[1].replicas.wished_assignments().get(KEY) == directory(1, "b"))
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert await read(cluster) == found

    run(scenario, log_cleaner_backoff_ms=SOON, replica_alter_log_dirs_io_max_bytes_per_second="100")


def test_a_move_that_goes_on_after_compactions_that_ended_early_brings_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, but the source has room for the first compacted segment only. So no compaction reaches the end, and the
    first dirty offset stays 0. A key that was deleted after its record was copied is removed from that segment, with its
    tombstone."""

    compact = LogCompaction.run

    async def scenario(cluster: Cluster) -> None:
        questions: list[int] = []

        async def count(*args: Any) -> Any:
            questions.append(0)
            return await compact(*args)

        def has_room(_self: Cleaner, _directory: object, _size: int) -> bool:
            questions[-1] += 1
            # It asks once before it reads the log.
            return questions[-1] <= 2

        monkeypatch.setattr(LogCompaction, "run", count)
        monkeypatch.setattr(Cleaner, "_has_room", has_room)
        assign_directories(cluster)
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1], configs=COMPACT | {"cleanup.policy": "delete", "delete.retention.ms": "0"})
        await cluster.started()
        cluster.controller.change(directories=[directory(1, "a")])
        await put(cluster, 1, ("deleted", "value"))
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await cluster.until(lambda: (future := cluster[1].partition().future) and future.log.written_offset > 0)
        cluster.world.disk(path(1, "b")).fail_with(errno.EIO)
        await cluster.until(lambda: cluster[1].partition().future is None)
        tombstone = encode_batch([Record(b"deleted", None, 1)])
        assert (await cluster.produce(1, records=tombstone)).error_code == ErrorCode.NONE
        await fill(cluster, count=100)
        cluster.controller.configure("cleanup.policy", "compact")
        await cluster.until(lambda: len(questions) > 2)
        assert cluster[1].partition().first_dirty_offset == 0
        found = await read(cluster)
        assert min(found) > 1, "the tombstone has gone"
        await cluster.stop(1)
        cluster.world.disk(path(1, "b")).heal()
        await cluster.start(1, "ab")
        await cluster.until(lambda: cluster[1].replicas.wished_assignments().get(KEY) == directory(1, "b"))
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert await read(cluster) == found

    run(scenario, log_cleaner_backoff_ms=SOON)


async def compact_what_one_broker_has(cluster: Cluster) -> None:
    """Broker 1 compacts records that broker 2 lacks, so an unclean election of broker 2 will cut them away."""
    for broker_id in (1, 2):
        await cluster.start(broker_id)
    cluster.controller.create_topic([1, 2], configs=COMPACT)
    await cluster.started()
    await put(cluster, 1, ("k0", "both"))
    cluster.crash(2)
    cluster.controller.fence(2)
    cluster.controller.change(isr=[1])
    await fill(cluster)
    await compacted(cluster)
    await cluster.until(lambda: ("t", 0) in checkpoint(cluster))


def test_a_truncation_lowers_the_first_dirty_offset() -> None:
    """An unclean election can cut a log below what was clean."""

    async def scenario(cluster: Cluster) -> None:
        await compact_what_one_broker_has(cluster)
        await cluster.start(2)
        cluster.controller.change(leader=2, isr=[2])
        await cluster.until(lambda: cluster[1].partition().log.log_end_offset == 1)
        await cluster.until(lambda: not cluster[1].partition().is_restructuring)
        assert cluster[1].partition().first_dirty_offset <= 1
        assert checkpoint(cluster).get(("t", 0), 0) <= 1

    run(scenario, log_cleaner_backoff_ms=SOON)


async def kill_within_a_truncation(cluster: Cluster) -> None:
    """Elects broker 2, which lacks what broker 1 has. Kills broker 1 when it has cut its log, and has not synced that."""
    await cluster.start(2)
    is_killed, is_cut = asyncio.Event(), asyncio.Event()

    def kill(where: str, kind: str, _name: str) -> None:
        if (where, kind) == (path(1, "a"), "truncate"):
            is_cut.set()
        elif (where, kind) == (path(1, "a"), "fsync") and is_cut.is_set() and not is_killed.is_set():
            cluster.crash(1)
            is_killed.set()

    cluster.world.operation_watchers.append(kill)
    cluster.controller.change(leader=2, isr=[2])
    await is_killed.wait()


def test_a_kill_within_a_truncation_leaves_nothing_clean_that_is_not() -> None:
    """The broker is killed after an unclean election has cut its log, and before the checkpoint is lowered. If the records
    that follow counted as clean, older values of their keys would stay, and come back once their tombstones are gone."""

    async def scenario(cluster: Cluster) -> None:
        await compact_what_one_broker_has(cluster)
        clean = checkpoint(cluster)["t", 0]
        await kill_within_a_truncation(cluster)
        assert checkpoint(cluster) == {("t", 0): clean}
        await fill(cluster, 2, count=clean)
        for number in range(20):
            await put(cluster, 2, (f"other-{number}", "x"))
        await cluster.start(1)
        await cluster.until(lambda: cluster.controller.partition().isr == (2, 1))
        await compacted(cluster, beyond=clean)
        cluster.controller.change(leader=1)
        await cluster.until(cluster[1].leads)
        assert sorted(key for key, _ in (await read(cluster)).values() if key.startswith("k")) == ["k0", "k1", "k2"]

    run(scenario, log_cleaner_backoff_ms=SOON)


def test_two_kills_after_a_truncation_leave_nothing_clean_that_is_not() -> None:
    """The first kill comes before the checkpoint is lowered. The second one comes when the log has long been longer than
    what the checkpoint says."""

    async def scenario(cluster: Cluster) -> None:
        await compact_what_one_broker_has(cluster)
        clean = checkpoint(cluster)["t", 0]
        cluster.controller.configure("min.cleanable.dirty.ratio", "1.0")
        await kill_within_a_truncation(cluster)
        await fill(cluster, 2, count=2 * clean)
        await cluster.start(1)
        await cluster.until(lambda: cluster.controller.partition().isr == (2, 1))
        assert cluster[1].partition().log.log_end_offset > clean
        cluster.crash(1)
        await cluster.start(1)
        await cluster.until(cluster[1].follows)
        assert cluster[1].partition().first_dirty_offset <= 1

    run(scenario, log_cleaner_backoff_ms=SOON)


def with_deltas(*timestamp_deltas: int) -> bytearray:
    """Returns a batch with these timestamp deltas, which says of itself that its latest timestamp is that of the first
    record."""
    honest = encode_batch([Record(b"k", b"v", NOW_MS) for _ in timestamp_deltas])
    records = bytearray()
    for number, delta in enumerate(timestamp_deltas):
        record = bytearray(b"\0")
        for value in (delta, number, 2):
            append_varint(record, value)
        record += b"k%d" % number
        append_varint(record, 1)
        record += b"v"
        append_varint(record, 0)
        append_varint(records, len(record))
        records += record
    return assemble_batch(read_header(honest), records)


def test_timestamps_beyond_64_bits_end_no_broker() -> None:
    """A client can send any delta. Its sum with the batch's timestamp wraps around, as in Kafka."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs=COMPACT)
        await cluster.started()
        assert (await cluster.produce(1, records=with_deltas(0, 2**63 - 1))).error_code == ErrorCode.NONE
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=NOW_MS)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
        answer = (await cluster.request(1, request)).topics[0].partitions[0]
        assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, 0, NOW_MS)
        await fill(cluster, keys=1)
        await compacted(cluster)
        assert {offset: key for offset, (key, _) in (await read(cluster)).items() if offset < 2} == {1: "k1"}

    run(scenario, log_cleaner_backoff_ms=SOON)


@pytest.mark.parametrize(("first_dirty", "beyond"), [(9, 0), (0, 1)])
def test_a_log_that_was_truncated_since_it_was_chosen_is_not_compacted(first_dirty: int, beyond: int) -> None:
    """The looks at all logs take a while, and so does a checkpoint on a busy disk. What was clean or stable before may be
    neither after a truncation."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs=COMPACT)
        await cluster.started()
        await fill(cluster)
        partition, cleaner = cluster[1].partition(), cluster[1].replicas.cleaner
        await partition.log.roll()
        await partition.log.flush()
        chosen = await cleaner._cleanable(partition, partition.log)
        assert chosen is not None and chosen.end_offset == partition.last_stable_offset == 30
        outdated = replace(chosen, first_dirty_offset=first_dirty, end_offset=30 + beyond)
        assert not await cleaner._compact(partition, outdated)
        assert len(await read(cluster)) == 30 and partition.first_dirty_offset == 0
        assert await cleaner._compact(partition, chosen)
        assert len(await read(cluster)) == 3 and partition.first_dirty_offset == 30

    run(scenario, log_cleaner_enable="false")


def test_a_damaged_log_is_left_alone_and_others_are_compacted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], [1], configs=COMPACT)
        await cluster.started()
        await cluster.started(1)
        for number in range(30):
            records = encode_batch([Record(b"k", f"v{number}".encode(), 1)])
            for index in (0, 1):
                assert (await cluster.produce(1, records=bytearray(records), index=index)).error_code == ErrorCode.NONE
        cluster.world.disk(path(1, "a")).corrupt("t-0/00000000000000000000.log", 80)
        await cluster.until(lambda: cluster[1].partition(1).first_dirty_offset > 0)
        await cluster.world.sleep(3)
        assert cluster[1].partition(0).first_dirty_offset == 0
        assert len(cluster.world.events_named("segment_damaged")) == 1
        assert cluster[1].replicas.cleaner.uncleanable == {directory(1, "a"): 1}
        cluster.controller.remove_topic()
        assert cluster[1].replicas.cleaner.uncleanable == {}

    run(scenario, log_cleaner_backoff_ms="2000")


def test_the_cleaner_counts_what_it_does() -> None:
    """After a compaction the counts have what its event says, and the log is no longer dirty at the next look."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs=COMPACT)
        await cluster.started()
        counts = cluster[1].replicas.cleaner.counts
        assert counts.last_run_ns is None
        await fill(cluster)
        fields = (await cluster.world.event("log_compacted")).fields
        assert counts.recopy_percent == 100 * fields["bytes_written"] // fields["bytes_read"] > 0
        assert [round(each / 1e6) for each in counts.last_durations_ns] == [fields["duration_ms"]]
        await compacted(cluster)
        run_ns = counts.last_run_ns
        await cluster.until(lambda: counts.last_run_ns != run_ns)
        assert counts.max_dirty_percent == 0

    run(scenario, log_cleaner_backoff_ms=SOON)


def test_compaction_keeps_to_its_rate() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs=COMPACT)
        await cluster.started()
        await fill(cluster)
        event = await cluster.world.event("log_compacted")
        moved = event.fields["bytes_read"] + event.fields["bytes_written"]
        assert event.fields["duration_ms"] >= moved - 500

    run(scenario, log_cleaner_backoff_ms="3000", log_cleaner_io_max_bytes_per_second="1000")
