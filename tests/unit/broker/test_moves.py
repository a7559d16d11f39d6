"""Replicas move between the directories of a simulated broker while clients write (KIP-113, KIP-858).

Each test writes the metadata itself, so it decides when the controller acknowledges an assignment.
"""

import asyncio
import errno
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from broker.hosting import move_totals, moves, replica_copy
from broker.hosting.moves import Moves
from broker.hosting.partition import Partition
from broker.hosting.replica_copy import ReplicaCopy
from common.environment.interface import LogDirError, SpaceStat
from common.ids import DirectoryId, Offset, TopicId, TopicIdPartition, Uuid
from common.metadata.delta import MetadataDelta
from common.protocol.errors import ErrorCode
from common.records.metadata_records import FeatureLevelRecord, RemoveTopicRecord
from common.storage.log import Log
from common.storage.log_syncs import ROLLED_AHEAD_MAX
from common.storage.names import CLEAN_SHUTDOWN_FILE, HIGH_WATERMARK_CHECKPOINT_FILE, LOG_START_OFFSET_CHECKPOINT_FILE
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedEvent
from tests.unit.broker.cluster import TOPIC, Cluster, at_once, directory, path, run

KEY = TopicIdPartition(TOPIC, 0)
OTHER_TOPIC = TopicId(Uuid(b"U" * 16))


def alter(cluster: Cluster, destination: str, *, topic: str = "t", index: int = 0) -> ErrorCode:
    return cluster[1].replicas.log_dir_alteration.alter(topic, index, destination)


def folders(cluster: Cluster, letter: str) -> list[str]:
    """Returns the partition folders in a directory of broker 1. The 32 hex digits are cut out of their names."""
    names = {name.split("/")[0] for name in cluster.world.disk(path(1, letter)).files() if "/" in name}
    return sorted(f"{name.split('.')[0]}{name[name.rindex('-') :]}" if "." in name else name for name in names)


def assigned(cluster: Cluster) -> DirectoryId | None:
    """Returns the directory that broker 1 asks the controller to assign, or None if it agrees with the metadata."""
    return cluster[1].replicas.wished_assignments().get(KEY)


def assign_directories(cluster: Cluster) -> None:
    """Raises the metadata.version to one in which the controller records directories."""
    cluster.controller.commit(FeatureLevelRecord(name="metadata.version", feature_level=21))


async def with_records(cluster: Cluster, *values: str, letters: str = "ab") -> None:
    """Starts broker 1 with a partition in directory a that has these records."""
    assign_directories(cluster)
    await cluster.start(1, letters)
    cluster.controller.create_topic([1])
    await cluster.started()
    cluster.controller.change(directories=[directory(1, "a")])
    assert cluster[1].partition().directory_id == directory(1, "a")
    for value in values:
        assert (await cluster.produce(1, value)).error_code == ErrorCode.NONE


async def caught_up(cluster: Cluster) -> None:
    """Waits until the broker asks the controller to assign the replica to directory b."""
    await cluster.until(lambda: assigned(cluster) == directory(1, "b"))


async def finished(cluster: Cluster) -> None:
    """Waits until the replica is served from directory b."""
    await cluster.until(lambda: cluster[1].partition().directory_id == directory(1, "b"))


def test_a_replica_moves_and_keeps_serving() -> None:
    """The swap waits until the metadata names the target. All records can be read, no matter whether they were produced
    before, during or after the move."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one", "two")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        assert (await cluster.produce(1, "three")).error_code == ErrorCode.NONE
        await cluster.world.sleep(5)
        assert cluster[1].partition().directory_id == directory(1, "a"), "nobody has acknowledged the assignment"
        assert folders(cluster, "b") == ["t-0-future"]
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert (await cluster.produce(1, "four")).error_code == ErrorCode.NONE
        assert await cluster.read_all(1) == ["one", "two", "three", "four"]
        assert folders(cluster, "b") == ["t-0"]
        assert assigned(cluster) is None
        assert cluster[1].replicas.moves.counts[directory(1, "b")].finished == 1
        await cluster.until(lambda: folders(cluster, "a") == ["t-0-delete"])
        await cluster.until(lambda: folders(cluster, "a") == [], within_seconds=100)

    run(scenario)


@pytest.mark.parametrize("is_removing", [False, True])
def test_the_old_log_is_kept_if_the_disk_of_the_new_one_fails_before_it_is_removed(is_removing: bool) -> None:
    """After the move the old log is marked for deletion. When its time has come, or when its files are listed, it is the
    only log that the replica has."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        await cluster.until(lambda: folders(cluster, "a") == ["t-0-delete"])
        source = cluster.world.disk(path(1, "a"))
        if is_removing:
            source.hang({"list"})
            await cluster.until(lambda: bool(source.stalled))
        cluster.world.disk(path(1, "b")).fail_with(errno.EIO)
        assert (await cluster.produce(1, "two")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        source.thaw()
        await cluster.world.event("log_deletion_withheld")
        await cluster.world.sleep(5)
        assert folders(cluster, "a") == ["t-0-delete"]
        assert len(cluster.world.events_named("log_deletion_withheld")) == 1
        # Once the replica is elsewhere, the folder is not needed any more. It must not take up space until the next start.
        cluster.controller.change(replicas=[2], isr=[2], leader=2, directories=[directory(2, "a")])
        await cluster.until(lambda: folders(cluster, "a") == [], within_seconds=100)

    run(scenario, log_segment_delete_delay_ms="500")


def test_an_assignment_of_an_earlier_incarnation_does_not_acknowledge() -> None:
    """The metadata already names the target before the copy has caught up. This happens after a crash between
    acknowledgement and swap. The broker must first report the old directory again."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        cluster.controller.change(directories=[directory(1, "b")])
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        assert assigned(cluster) == directory(1, "a")
        await cluster.world.sleep(5)
        assert cluster[1].partition().directory_id == directory(1, "a")
        cluster.controller.change(directories=[directory(1, "a")])
        # No records arrive, so only the metadata change can resume the move.
        await caught_up(cluster)
        assert (await cluster.produce(1, "two")).error_code == ErrorCode.NONE
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert await cluster.read_all(1) == ["one", "two"]

    run(scenario)


def test_the_first_of_several_reports_does_not_acknowledge() -> None:
    """A replica is sent to b, then to c, then to b again. The metadata shows what became of the first report when the
    second one is on its way: it will name c next. So the copy in b must wait for the answer to the third report."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one", letters="abc")
        reports = cluster[1].reports
        for letter in "bc":
            assert alter(cluster, path(1, letter)) is ErrorCode.NONE
            await cluster.until(lambda letter=letter: assigned(cluster) == directory(1, letter))
            reports.sent(KEY, directory(1, letter))
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        assert assigned(cluster) == directory(1, "a"), "the metadata agrees, but the controller was told something else"
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await cluster.world.sleep(5)
        assert cluster[1].partition().directory_id == directory(1, "a")
        assert assigned(cluster) == directory(1, "b"), "still to be reported"
        reports.sent(KEY, directory(1, "b"))
        assert reports.answered(KEY)
        cluster[1].replicas.reconcile(KEY)
        await finished(cluster)
        assert assigned(cluster) is None
        assert await cluster.read_all(1) == ["one"]

    run(scenario)


def test_cancelling_takes_the_assignment_back() -> None:
    """A move is cancelled by `any`, and also by the path of the current directory."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        for destination in ("any", path(1, "a")):
            assert alter(cluster, path(1, "b")) is ErrorCode.NONE
            await caught_up(cluster)
            cluster.controller.change(directories=[directory(1, "b")])
            # The event loop has not run since the change, so the swap has not begun.
            assert alter(cluster, destination) is ErrorCode.NONE
            assert assigned(cluster) == directory(1, "a")
            cluster.controller.change(directories=[directory(1, "a")])
            await cluster.until(lambda: set(folders(cluster, "b")) <= {"t-0-delete"})
            assert cluster[1].partition().directory_id == directory(1, "a")
        assert await cluster.read_all(1) == ["one"]

    run(scenario)


def test_moves_that_begin_together_need_room_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directory b has room for two of four replicas, and for another one once a move is cancelled. A move that begins is
    measured, and not all others again: for 1,000 moves that took most of a second of the event loop."""

    async def scenario(cluster: Cluster) -> None:
        assign_directories(cluster)
        await cluster.start(1, "ab")
        cluster.controller.create_topic(*[[1]] * 8)
        await cluster.started()
        in_a = [index for index in range(8) if cluster[1].partition(index).directory_id == directory(1, "a")]
        assert len(in_a) == 4
        for index in in_a:
            assert (await cluster.produce(1, "a record", index=index)).error_code == ErrorCode.NONE
        moves = cluster[1].replicas.moves
        usable_bytes = 2 * cluster[1].partition(in_a[0]).log.size_bytes + moves._settings.free_bytes_min
        monkeypatch.setattr(moves, "_space", lambda _: SpaceStat(usable_bytes, usable_bytes, 1))
        with patch.object(move_totals, "_bytes_to_go", wraps=move_totals._bytes_to_go) as measured:
            errors = [alter(cluster, path(1, "b"), index=index) for index in in_a]
            assert errors == [ErrorCode.NONE] * 2 + [ErrorCode.KAFKA_STORAGE_ERROR] * 2
            assert alter(cluster, path(1, "a"), index=in_a[1]) is ErrorCode.NONE
            errors = [alter(cluster, path(1, "b"), index=index) for index in in_a[2:]]
            assert errors == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        assert measured.call_count == 3

    run(scenario)


def test_a_move_can_be_sent_to_another_directory() -> None:
    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one", letters="abc")
        assert alter(cluster, path(1, "c")) is ErrorCode.NONE
        await cluster.until(lambda: assigned(cluster) == directory(1, "c"))
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE, "repeating it changes nothing"
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert await cluster.read_all(1) == ["one"]
        await cluster.until(lambda: set(folders(cluster, "c")) <= {"t-0-delete"})

    run(scenario)


async def expect_no_preference_of_the_next_topic(cluster: Cluster) -> None:
    """Replaces the topic. The log of the new one is in the directory with the fewest replicas."""
    cluster.controller.remove_topic()
    again = TopicId(Uuid(b"U" * 16))
    cluster.controller.create_topic([1], topic_id=again)
    await cluster.until(lambda: cluster[1].leads(topic_id=again))
    assert cluster[1].partition(topic_id=again).directory_id == directory(1, "a")


def test_a_preference_decides_where_the_log_is_created() -> None:
    """The preference applies to one topic id. If the topic is created again, its log goes to the directory with the fewest
    replicas."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        await cluster.start(2, "a")
        assert alter(cluster, path(1, "b")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cluster.controller.create_topic([2])
        assert alter(cluster, path(1, "b")) is ErrorCode.REPLICA_NOT_AVAILABLE
        cluster.controller.change(replicas=[2, 1], directories=[directory(2, "a"), DirectoryId(Uuid(bytes(16)))])
        await cluster.until(cluster[1].follows)
        assert cluster[1].partition().directory_id == directory(1, "b")
        await expect_no_preference_of_the_next_topic(cluster)

    run(scenario)


def test_a_preference_may_come_before_the_topic() -> None:
    """As in Apache Kafka, the answer is UNKNOWN_TOPIC_OR_PARTITION, and the first log of that name is
    created in the directory. The topic that replaces it goes to the directory with the fewest replicas."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "abc")
        for letter, index in (("b", 0), ("c", 0), ("b", 1), ("c", 2)):
            assert alter(cluster, path(1, letter), index=index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(cluster, "any", index=2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cluster.controller.create_topic([1], [1], [1])
        for index, letter in ((0, "c"), (1, "b"), (2, "a")):
            await cluster.until(lambda index=index: cluster[1].leads(index))
            assert cluster[1].partition(index).directory_id == directory(1, letter)
        await expect_no_preference_of_the_next_topic(cluster)

    run(scenario)


def test_deleting_the_topic_ends_the_move() -> None:
    """The log and the copy are deleted, no matter how far the move has come. A new topic of the same name can be created in
    either directory."""

    async def scenario(cluster: Cluster) -> None:
        await begin_swap(cluster)
        cluster.controller.remove_topic()
        again = TopicId(Uuid(b"U" * 16))
        cluster.controller.create_topic([1], [1], topic_id=again)
        for index in (0, 1):
            await cluster.until(lambda index=index: cluster[1].leads(index, again))
            assert (await cluster.produce(1, "new", index=index)).error_code == ErrorCode.NONE
        for letter in "ab":
            await cluster.until(lambda letter=letter: len(folders(cluster, letter)) == 1, within_seconds=100)
        assert await cluster.read_all(1, topic_id=again) == ["new"]

    run(scenario)


def test_a_copy_that_fails_while_its_topic_is_being_deleted_is_not_made_again() -> None:
    """The image no longer has the topic, but the replica's turn has not come yet when the move looks at its copy, which has
    failed for lack of file descriptors."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        broker, partition = cluster[1], cluster[1].partition()
        assert partition.future is not None and partition.on_log_changed is not None
        partition.future.log._fail(LogDirError(path(1, "b"), "open", errno.EMFILE))
        partition.on_log_changed()
        delta = MetadataDelta()
        removal = RemoveTopicRecord(topic_id=TOPIC)
        broker.state.replay(removal, offset=Offset(len(cluster.controller.records)), delta=delta)
        await cluster.world.sleep(1)
        at_once(broker.replicas.apply(delta))
        await cluster.world.sleep(1)
        assert len(broker.replicas.moves) == 0
        assert folders(cluster, "b") == ["t-0-delete"]

    run(scenario)


def test_the_target_disk_dies() -> None:
    """The partition stays in its old directory, and the broker reports that directory again."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.world.disk(path(1, "b")).fail_with(errno.EIO)
        cluster.controller.change(directories=[directory(1, "b")])
        await cluster.until(lambda: assigned(cluster) == directory(1, "a"))
        cluster.controller.change(directories=[directory(1, "a")])
        await cluster.until(lambda: not cluster[1].partition().is_restructuring)
        assert (await cluster.produce(1, "two")).error_code == ErrorCode.NONE
        assert await cluster.read_all(1) == ["one", "two"]
        assert alter(cluster, path(1, "b")) is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_kill_after_the_target_failed_in_the_last_rename_loses_no_record(*, is_stopped: bool) -> None:
    """The copy has the partition's name when its directory fails, so the swap is undone, and the old log takes a record. The
    broker ends before the metadata names the old directory again, and starts with both."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        disk = cluster.world.disk(path(1, "b"))

        def fail(where: str, kind: str, name: str) -> None:
            if (where, kind) == (path(1, "b"), "rename") and name.endswith("-future"):
                disk.fail_next("fsync_dir", errno.EIO)

        cluster.world.operation_watchers.append(fail)
        cluster.controller.change(directories=[directory(1, "b")])
        await cluster.world.event("move_failed")
        await cluster.until(lambda: not cluster[1].partition().is_restructuring)
        assert cluster[1].partition().directory_id == directory(1, "a")
        assert (await cluster.produce(1, "two")).error_code == ErrorCode.NONE
        if is_stopped:
            await cluster.stop(1)
        else:
            cluster.crash(1)
        disk.heal()
        assert folders(cluster, "a") == folders(cluster, "b") == ["t-0"]
        await cluster.start(1, "ab", previous="ab")
        await cluster.started()
        assert await cluster.read_all(1) == ["one", "two"]
        assert assigned(cluster) == directory(1, "a")

    run(scenario)


def test_the_source_disk_dies_during_the_renames_and_its_replicas_are_closed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of replicas in the source, the last rename may end before the turn of this one. The move ended with the
    failure, and its copy is being closed. So the copy must not become the log of a replica that is served."""
    rename = Log.rename
    renamed, goes_on = asyncio.Event(), asyncio.Event()

    async def rename_and_wait(log: Log, name: str) -> None:
        await rename(log, name)
        if log.log_dir.path == path(1, "b"):
            renamed.set()
            await goes_on.wait()

    monkeypatch.setattr(Log, "rename", rename_and_wait)

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await renamed.wait()
        broker = cluster[1]
        broker.offline_delay_ns = NS_PER_S
        broker.failures.report(LogDirError(path(1, "a"), "probe", errno.EIO))
        await cluster.world.sleep(0.1)
        closing = broker.replicas.handle_directory_offline(directory(1, "a"))
        goes_on.set()
        await cluster.world.sleep(0.1)
        at_once(closing)
        assert broker.replicas.descriptions.gauges().offline_replica_count == 1
        assert (await cluster.produce(1, "two")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert assigned(cluster) == directory(1, "a")

    run(scenario)


def test_produces_wait_while_the_logs_are_swapped() -> None:
    """Requests that arrive in the middle of the swap are answered in order and without an error."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "0")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        partition = cluster[1].partition()
        cluster.controller.change(directories=[directory(1, "b")])
        await cluster.until(lambda: partition.is_swapping)
        sent = [asyncio.ensure_future(cluster.produce(1, str(number))) for number in range(1, 4)]
        answers = [await each for each in sent]
        assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 3
        assert partition.directory_id == directory(1, "b")
        assert sorted(await cluster.read_all(1)) == ["0", "1", "2", "3"]

    run(scenario)


def test_a_swap_does_not_wait_for_a_record_that_was_written_while_its_copy_waited_for_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the swap begins, one record is not copied yet, and another one, in the next segment, is on its way to the disk.
    That one is written before the target has the first one. No append follows that would wake the swap."""
    prepare = ReplicaCopy.prepare

    async def scenario(cluster: Cluster) -> None:
        async def prepare_and_produce(copy: ReplicaCopy) -> None:
            await prepare(copy)
            assert not sent, "the first attempt succeeds"
            assert (await cluster.produce(1, "two")).error_code == ErrorCode.NONE
            for disk in disks:
                disk.hang(["append"])
            sent.append(asyncio.ensure_future(cluster.produce(1, "x" * 80)))
            await cluster.until(lambda: len(copy.partition.log.segment_base_offsets) == 2)

        disks = [cluster.world.disk(path(1, letter)) for letter in "ab"]
        sent: list[asyncio.Future[Any]] = []
        monkeypatch.setattr(ReplicaCopy, "prepare", prepare_and_produce)
        await begin_swap(cluster)
        await cluster.world.sleep(0.01)
        for disk in disks:
            disk.thaw()
            await cluster.world.sleep(0.01)
        moved = await cluster.world.event("move_finished")
        assert moved.fields["pause_ms"] < 100
        assert (await sent[0]).error_code == ErrorCode.NONE

    run(scenario, log_segment_bytes="200")


async def begin_swap(cluster: Cluster) -> None:
    """Moves a replica with one record, and returns when its swap has begun."""
    await with_records(cluster, "one")
    assert alter(cluster, path(1, "b")) is ErrorCode.NONE
    await caught_up(cluster)
    cluster.controller.change(directories=[directory(1, "b")])
    partition = cluster[1].partition()
    await cluster.until(lambda: partition.is_swapping)


async def hold_the_swap(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Lets a move that has caught up go on to the flushes before its swap. Returns the event that ends them."""
    flush = ReplicaCopy.flush
    flushing, goes_on = asyncio.Event(), asyncio.Event()

    async def flush_and_wait(copy: ReplicaCopy) -> None:
        await flush(copy)
        flushing.set()
        await goes_on.wait()

    await cluster.world.sleep(1)
    monkeypatch.setattr(ReplicaCopy, "flush", flush_and_wait)
    cluster.controller.change(directories=[directory(1, "b")])
    await flushing.wait()
    return goes_on


async def create_in_b(cluster: Cluster, topic_id: TopicId) -> Partition:
    """Creates the topic u, and returns its partition in directory b, with a record."""
    cluster.controller.create_topic([1], [1], name="u", topic_id=topic_id)
    for index in range(2):
        await cluster.started(index, topic_id)
    partitions = [cluster[1].partition(index, topic_id) for index in range(2)]
    [partition] = [each for each in partitions if each.directory_id == directory(1, "b")]
    assert (await cluster.produce(1, "value", topic="u", index=partition.index)).error_code == ErrorCode.NONE
    return partition


async def raise_log_start(cluster: Cluster, partition: Partition) -> None:
    """Deletes the record of a partition in directory b, and stores the log starts as the upkeep does."""
    partition.raise_log_start(Offset(1))
    hosted = cluster[1].replicas._hosted
    in_b = hosted.online_directory(directory(1, "b"))
    assert in_b is not None
    await in_b.files.store_log_starts()


def checkpoint_in_b(cluster: Cluster, name: str) -> list[str]:
    return cluster.world.disk(path(1, "b")).files()[name].decode().splitlines()[2:]


def test_a_replica_that_comes_before_a_swap_keeps_its_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is created in the target directory while the swap waits for its flushes. What the swap stores afterwards must name
    it, too."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        goes_on = await hold_the_swap(cluster, monkeypatch)
        partition = await create_in_b(cluster, OTHER_TOPIC)
        await raise_log_start(cluster, partition)
        goes_on.set()
        await finished(cluster)
        assert f"u {partition.index} 1" in checkpoint_in_b(cluster, LOG_START_OFFSET_CHECKPOINT_FILE)

    run(scenario)


def test_a_replica_that_is_created_again_before_a_swap_gets_no_old_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic in the target directory is deleted while the swap waits for its flushes, and another one of the same name is
    created there. After a crash, the offsets of the former one would hide records of the new one."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        former = await create_in_b(cluster, OTHER_TOPIC)
        await raise_log_start(cluster, former)
        goes_on = await hold_the_swap(cluster, monkeypatch)
        cluster.controller.remove_topic(OTHER_TOPIC)
        partition = await create_in_b(cluster, TopicId(Uuid(b"V" * 16)))
        assert partition.name == former.name
        goes_on.set()
        await finished(cluster)
        assert f"u {partition.index} 1" not in checkpoint_in_b(cluster, LOG_START_OFFSET_CHECKPOINT_FILE)

    run(scenario)


def test_a_shutdown_in_the_middle_of_a_swap_stores_the_offsets_of_the_new_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The swap is completed, but nothing ends its move any more. What was stored ahead of the swap is too low by then: a
    record has been replicated since."""
    prepare, exchange = ReplicaCopy.prepare, ReplicaCopy.exchange
    swapping, goes_on = asyncio.Event(), asyncio.Event()

    async def scenario(cluster: Cluster) -> None:
        async def prepare_and_produce(copy: ReplicaCopy) -> None:
            await prepare(copy)
            assert (await cluster.produce(1, "two")).error_code == ErrorCode.NONE

        async def wait_and_exchange(copy: ReplicaCopy) -> str:
            swapping.set()
            await goes_on.wait()
            return await exchange(copy)

        monkeypatch.setattr(ReplicaCopy, "prepare", prepare_and_produce)
        monkeypatch.setattr(ReplicaCopy, "exchange", wait_and_exchange)
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await swapping.wait()
        moving = cluster[1].replicas.moves
        stopping = asyncio.ensure_future(cluster.stop(1))
        await cluster.until(lambda: moving._is_stopped)
        goes_on.set()
        await stopping
        assert folders(cluster, "b") == ["t-0"]
        assert checkpoint_in_b(cluster, HIGH_WATERMARK_CHECKPOINT_FILE) == ["t 0 2"]

    run(scenario)


def test_a_swap_that_is_short_of_file_descriptors_costs_clients_a_few_milliseconds() -> None:
    """The second rename fails twice, and is repeated soon each time."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.world.disk(path(1, "b")).fail_next("rename", errno.EMFILE, times=2)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        moved = await cluster.world.event("move_finished")
        assert 30 <= moved.fields["pause_ms"] < 100
        assert await cluster.read_all(1) == ["one"]

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_log_that_fails_just_before_its_swap_does_not_keep_it_from_ending(
    is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are short for a moment, while the current log finishes a roll. The swap ends, the log is loaded again, and then
    it moves. Or the broker is stopped meanwhile, in order."""
    prepare = ReplicaCopy.prepare

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        disk, partition = cluster.world.disk(path(1, "a")), cluster[1].partition()

        async def prepare_and_produce(copy: ReplicaCopy) -> None:
            await prepare(copy)
            if partition.log.log_end_offset == 1:
                disk.slow_down(20)
                for _ in range(3):
                    assert (await cluster.produce(1, "x" * 80)).error_code == ErrorCode.NONE
                disk.fail_next("replace_file", errno.EMFILE)

        monkeypatch.setattr(ReplicaCopy, "prepare", prepare_and_produce)
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await cluster.until(lambda: partition.is_swapping)
        await cluster.until(lambda: partition.log.failure is not None)
        if is_stopped:
            await cluster.stop(1)
            assert CLEAN_SHUTDOWN_FILE in cluster.world.disk(path(1, "b")).files()
        else:
            await finished(cluster)
            assert (await cluster.produce(1, "last")).error_code == ErrorCode.NONE

    run(scenario, log_segment_bytes="200")


def test_the_old_log_is_removed_even_if_it_could_not_be_closed() -> None:
    """The process is short of file descriptors when the old log writes its indexes. The folder must not stay until the next
    start: it may be as large as the log."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)

        def run_short(event: SimulatedEvent) -> None:
            if event.name == "move_finished":
                cluster.world.disk(path(1, "a")).fail_next("replace_file", errno.EMFILE)

        cluster.world.event_watchers.append(run_short)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        await cluster.world.event("log_dir_warning")
        assert folders(cluster, "a") == ["t-0-delete"]
        await cluster.until(lambda: folders(cluster, "a") == [], within_seconds=100)

    run(scenario)


def test_a_follower_that_truncates_cuts_its_copy_too() -> None:
    """The copy has a record that the new leader does not have. After the truncation, log and copy agree again."""

    async def scenario(cluster: Cluster) -> None:
        assign_directories(cluster)
        for broker_id, letters in ((1, "ab"), (2, "a")):
            await cluster.start(broker_id, letters)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        cluster.controller.change(directories=[directory(1, "a"), directory(2, "a")])
        assert (await cluster.produce(1, "both")).error_code == ErrorCode.NONE
        cluster.world.network.cut("broker-1", "broker-2")
        lost = asyncio.ensure_future(cluster.produce(1, "only here", timeout_ms=1000))
        await cluster.until(lambda: cluster[1].partition().log.written_offset == 2)
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        future = cluster[1].partition().future
        assert future is not None and future.log.log_end_offset == 2
        cluster.controller.change(leader=2, isr=[2])
        await lost
        cluster.world.network.mend("broker-1", "broker-2")
        await cluster.until(lambda: cluster[1].partition().log.log_end_offset == 1)
        assert (await cluster.produce(2, "new", acks=1)).error_code == ErrorCode.NONE
        await cluster.until(lambda: future.log.log_end_offset == 2 and cluster[1].partition().log.log_end_offset == 2)
        cluster.controller.change(directories=[directory(1, "b"), directory(2, "a")])
        await finished(cluster)
        assert cluster.log_bytes(1, "b") == cluster.log_bytes(2, "a")

    run(scenario)


def test_a_log_that_starts_within_a_batch_moves() -> None:
    """DeleteRecords names any offset. The copy begins with the whole batch, whose first records stay hidden."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster)
        assert (await cluster.produce(1, "deleted", "kept")).error_code == ErrorCode.NONE
        assert (await cluster.produce(1, "last")).error_code == ErrorCode.NONE
        cluster[1].partition().raise_log_start(Offset(1))
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert cluster[1].partition().log.log_start_offset == 1
        assert await cluster.read_all(1, 2) == ["last"]

    run(scenario)


def test_a_follower_that_starts_again_within_a_batch_moves() -> None:
    """The follower is new, and its log is still empty when the copy is created. The first batch that it gets begins below
    the start of both."""

    async def scenario(cluster: Cluster) -> None:
        assign_directories(cluster)
        for broker_id, letters in ((1, "ab"), (2, "a")):
            await cluster.start(broker_id, letters)
        cluster.controller.create_topic([2])
        await cluster.started()
        assert (await cluster.produce(2, "deleted", "kept")).error_code == ErrorCode.NONE
        cluster[2].partition().raise_log_start(Offset(1))

        def cut(event: SimulatedEvent) -> None:
            if event.name == "replica_restarted":
                cluster.world.event_watchers.remove(cut)
                cluster.world.network.cut("broker-1", "broker-2")

        cluster.world.event_watchers.append(cut)
        directories = [directory(2, "a"), directory(1, "a")]
        cluster.controller.change(replicas=[2, 1], adding_replicas=[1], directories=directories)
        await cluster.until(lambda: cluster[1].follows() and cluster[1].partition().log.log_start_offset == 1)
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        future = cluster[1].partition().future
        assert future is not None and future.log.log_end_offset == cluster[1].partition().log.log_end_offset == 1
        cluster.world.network.mend("broker-1", "broker-2")
        await cluster.until(lambda: cluster[1].partition().log.log_end_offset == 2)
        cluster.controller.change(directories=[directory(2, "a"), directory(1, "b")])
        await finished(cluster)
        assert cluster[1].partition().log.log_start_offset == 1
        assert cluster.log_bytes(1, "b") == cluster.log_bytes(2, "a")

    run(scenario)


@pytest.mark.parametrize("ends", ["in order", "killed"])
def test_a_log_that_ends_in_a_gap_moves(ends: str) -> None:
    """A broker of Apache Kafka may have compacted the last batches away before the empty newest segment. The copy has to end
    where the log does, also after the next start: a leader goes on from that offset, and must not use an offset twice."""

    async def restart(cluster: Cluster) -> None:
        if ends == "killed":
            cluster.crash(1)
        else:
            await cluster.stop(1)
        await cluster.start(1, "ab", previous="ab")
        await cluster.until(cluster[1].leads)

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        await cluster.stop(1)
        cluster.world.disk(path(1, "a")).write("t-0/00000000000000000006.log", b"")
        await cluster.start(1, "ab", previous="ab")
        await cluster.started()
        assert cluster[1].partition().log.log_end_offset == 6
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert cluster[1].partition().log.log_end_offset == 6
        await restart(cluster)
        assert cluster[1].partition().log.log_end_offset == 6
        assert (await cluster.produce(1, "two")).base_offset == 6
        await restart(cluster)
        # A consumer reads on across the gap, which is between two segments.
        assert await cluster.read_all(1) == ["one"]
        assert await cluster.read_all(1, 1) == ["two"]

    run(scenario)


def test_a_log_whose_first_batch_is_damaged_does_not_move() -> None:
    """The copy cannot begin. The move ends, as it does when a later batch is damaged, and the broker goes on."""

    async def scenario(cluster: Cluster) -> None:
        assign_directories(cluster)
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1], configs={"segment.bytes": "200"})
        await cluster.started()
        cluster.controller.change(directories=[directory(1, "a")])
        for number in range(10):
            await cluster.produce(1, f"value-{number}")
        await cluster[1].partition().log.flush()
        magic = 16
        cluster.world.disk(path(1, "a")).corrupt("t-0/00000000000000000000.log", magic)
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await cluster.world.event("move_failed")
        await cluster.until(lambda: len(cluster[1].replicas.moves) == 0)
        assert folders(cluster, "b") == []
        assert (await cluster.produce(1, "goes on")).error_code == ErrorCode.NONE

    run(scenario)


def test_retention_deletes_the_same_segments_of_the_copy() -> None:
    """While the move waits for the controller, retention.bytes deletes segments of the log. The same segments of the copy
    are deleted."""

    async def scenario(cluster: Cluster) -> None:
        assign_directories(cluster)
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1], configs={"segment.bytes": str(1 << 20), "retention.bytes": str(1 << 20)})
        await cluster.started()
        cluster.controller.change(directories=[directory(1, "a")])
        big = "x" * 400_000
        for _ in range(3):
            assert (await cluster.produce(1, big)).error_code == ErrorCode.NONE
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        current, future = cluster[1].partition().log, cluster[1].partition().future
        assert future is not None and future.log.log_start_offset == 0
        for _ in range(4):
            assert (await cluster.produce(1, big)).error_code == ErrorCode.NONE
        await cluster.until(lambda: current.log_start_offset > 0, within_seconds=30)
        assert (await cluster.produce(1, "last")).error_code == ErrorCode.NONE
        await cluster.until(lambda: future.log.log_start_offset == current.log_start_offset)
        await cluster.until(lambda: future.log.size_bytes == current.size_bytes)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert cluster[1].partition().log.log_start_offset == current.log_start_offset > 0

    run(scenario, log_retention_check_interval_ms="1000")


def test_the_log_start_does_not_move_back_with_a_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention began to look at the log before the swap, and deletes segments once the copy has the log start."""
    exchange = ReplicaCopy.exchange

    async def delete_and_exchange(copy: ReplicaCopy) -> str:
        await copy.partition.delete_expired()
        return await exchange(copy)

    monkeypatch.setattr(ReplicaCopy, "exchange", delete_and_exchange)

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one", "two", "three")
        former = cluster[1].partition().log
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.controller.configure("retention.bytes", "0")
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert cluster[1].partition().log.log_start_offset == former.log_start_offset > 0

    run(scenario, log_retention_check_interval_ms="100000000")


def test_a_log_that_is_truncated_just_before_the_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truncation comes while the swap is being prepared. The swap waits until the copy is truncated too."""
    flush = ReplicaCopy.flush
    cuts: list[asyncio.Event] = []

    async def flush_and_wait(copy: ReplicaCopy) -> None:
        await flush(copy)
        for cut in cuts:
            await cut.wait()

    monkeypatch.setattr(ReplicaCopy, "flush", flush_and_wait)

    async def scenario(cluster: Cluster) -> None:
        assign_directories(cluster)
        for broker_id, letters in ((1, "ab"), (2, "a")):
            await cluster.start(broker_id, letters)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        cluster.controller.change(directories=[directory(1, "a"), directory(2, "a")])
        assert (await cluster.produce(1, "both")).error_code == ErrorCode.NONE
        cluster.world.network.cut("broker-1", "broker-2")
        lost = asyncio.ensure_future(cluster.produce(1, "only here", timeout_ms=1000))
        partition = cluster[1].partition()
        await cluster.until(lambda: partition.log.written_offset == 2)
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        await cluster.world.sleep(5)
        cuts.append(asyncio.Event())
        cluster.controller.change(leader=2, isr=[2], directories=[directory(1, "b"), directory(2, "a")])
        await lost
        await cluster.world.sleep(1)
        assert partition.future is not None and not partition.is_swapping
        cluster.world.network.mend("broker-1", "broker-2")
        await cluster.until(lambda: partition.log.log_end_offset == 1 and not partition.is_restructuring)
        cuts[0].set()
        assert (await cluster.produce(2, "new", acks=1)).error_code == ErrorCode.NONE
        await finished(cluster)
        await cluster.until(lambda: partition.log.written_offset == 2)
        assert cluster.log_bytes(1, "b") == cluster.log_bytes(2, "a")

    run(scenario)


def test_a_large_copy_is_synced_while_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is synced in parts. A single sync at the end would block all appends to the target directory."""
    monkeypatch.setattr(replica_copy, "WRITE_BACK_BYTES", 200)
    monkeypatch.setattr(moves, "CHUNK_BYTES_MAX", 100)
    monkeypatch.setattr(moves, "CHUNK_BYTES_BUSY", 100)
    monkeypatch.setattr(moves, "CHUNK_BYTES_MIN", 100)
    synced: list[int] = []

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, *(f"record {number}" * 5 for number in range(20)))
        write_back = Log.write_back

        def noted(log: Log, **options: Any) -> asyncio.Future[None]:
            if log.log_dir.path == path(1, "b"):
                synced.append(log.size_bytes)
            return write_back(log, **options)

        monkeypatch.setattr(Log, "write_back", noted)
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        size = cluster[1].partition().log.size_bytes
        steps = [after - before for before, after in pairwise([0, *synced, size])]
        assert len(steps) > 5
        assert max(steps) <= 200 + size // 20

    run(scenario)


def test_a_copy_does_not_run_ahead_of_its_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each segment of the copy has to be synced, and other logs in the directory wait behind these syncs. While none ends,
    the copy stands still; afterwards it goes on."""
    for name in ("CHUNK_BYTES_MAX", "CHUNK_BYTES_BUSY", "CHUNK_BYTES_MIN"):
        monkeypatch.setattr(moves, name, 100)

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster)
        cluster.controller.configure("segment.bytes", "200")
        for number in range(40):
            assert (await cluster.produce(1, f"record {number}" * 5)).error_code == ErrorCode.NONE
        partition = cluster[1].partition()
        assert len(partition.log.segment_base_offsets) > 30
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await cluster.until(lambda: partition.future is not None)
        copy = partition.future
        assert copy is not None
        cluster.world.disk(path(1, "b")).hang({"fsync"})
        await cluster.until(lambda: copy.log.outruns_syncs)
        await cluster.world.sleep(1)
        assert len(copy.log.segment_base_offsets) <= ROLLED_AHEAD_MAX + 3
        cluster.world.disk(path(1, "b")).thaw()
        await caught_up(cluster)
        assert copy.log.log_end_offset == 40

    run(scenario)


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_copy_gives_way_to_the_records_of_clients(monkeypatch: pytest.MonkeyPatch, *, is_busy: bool) -> None:
    """While records flow, a chunk is small, and a move rests after it for twice as long as it took."""
    monkeypatch.setattr(moves, "CHUNK_BYTES_MAX", 500)
    monkeypatch.setattr(moves, "CHUNK_BYTES_BUSY", 100)
    monkeypatch.setattr(moves, "CHUNK_BYTES_MIN", 100)
    paced: list[tuple[int, int, int]] = []
    pace = Moves._pace

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, *(f"record {number}" * 5 for number in range(20)))
        await cluster.world.sleep(1)

        async def noted(mover: Moves, move: Any, size: int) -> None:
            if is_busy:
                cluster[1].replicas.traffic.produced("u", messages=1, size=1)
            began_ns = cluster.world.now_ns()
            await pace(mover, move, size)
            paced.append((began_ns, cluster.world.now_ns(), size))

        monkeypatch.setattr(Moves, "_pace", noted)
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        assert len(paced) > 3
        # At the first chunk, the traffic has not been looked at before.
        for (_, allowed_ns, _), (began_ns, ended_ns, size) in pairwise(paced[1:]):
            assert ended_ns - began_ns == (2 * (began_ns - allowed_ns) if is_busy else 0)
            assert size <= (200 if is_busy else 600)
        assert is_busy or max(size for _, _, size in paced) > 200
        assert not is_busy or any(ended_ns > began_ns for began_ns, ended_ns, _ in paced)

    run(scenario)


@pytest.mark.parametrize("movers", [1, 2])
def test_moves_wait_for_a_free_mover(movers: int) -> None:
    """num.replica.alter.log.dirs.threads is the number of copies at a time. The first move stands still, because nothing can
    be read from its source. With one mover, the move from another directory waits for it; with two, it does not."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "abc")
        cluster.controller.create_topic([1], [1], [1])
        for index in range(3):
            await cluster.started(index)
            assert (await cluster.produce(1, "one", index=index)).error_code == ErrorCode.NONE
        places = {cluster[1].partition(index).directory_id: index for index in range(3)}
        cluster.world.disk(path(1, "a")).hang({"read"})
        for letter in "ab":
            assert alter(cluster, path(1, "c"), index=places[directory(1, letter)]) is ErrorCode.NONE
        await cluster.world.sleep(1)
        counts = cluster[1].replicas.moves.counts[directory(1, "c")]
        assert (counts.finished, counts.bytes_copied > 0) == (movers - 1, movers == 2)
        cluster.world.disk(path(1, "a")).thaw()
        await cluster.until(lambda: counts.finished == 2)

    run(scenario, num_replica_alter_log_dirs_threads=str(movers))


def test_the_rate_limits_all_moves_together() -> None:
    """Two replicas move at the same time, and each waits for bytes that the other one has used up."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1], [1], [1], [1])
        for index in range(4):
            await cluster.started(index)
            assert (await cluster.produce(1, "x" * 1000, index=index)).error_code == ErrorCode.NONE
        moving = [index for index in range(4) if cluster[1].partition(index).directory_id == directory(1, "a")]
        assert len(moving) == 2
        began = cluster.world.now_ns()
        for index in moving:
            assert alter(cluster, path(1, "b"), index=index) is ErrorCode.NONE
        counts = cluster[1].replicas.moves.counts[directory(1, "b")]
        await cluster.until(lambda: counts.bytes_copied > 2000, within_seconds=60)
        # The rate is 1,000 bytes per second, and each copy has about 1,000 bytes. The limit let the second copy begin only a
        # second after the first, although a mover was free.
        assert cluster.world.now_ns() - began > 900_000_000
        assert counts.throttled_ns > 900_000_000

    run(
        scenario,
        num_replica_alter_log_dirs_threads="2",
        replica_alter_log_dirs_io_max_bytes_per_second="1000",
    )


def test_a_move_is_cancelled_while_its_swap_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The swap finds no copy any more when the syncs are done. It ends quietly, and the replica stays where it is."""
    flush = ReplicaCopy.flush
    syncs: list[asyncio.Event] = []

    async def flush_and_wait(copy: ReplicaCopy) -> None:
        await flush(copy)
        for sync in syncs:
            await sync.wait()

    monkeypatch.setattr(ReplicaCopy, "flush", flush_and_wait)

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, "one")
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        await caught_up(cluster)
        await cluster.world.sleep(5)
        syncs.append(asyncio.Event())
        cluster.controller.change(directories=[directory(1, "b")])
        await cluster.world.sleep(1)
        assert alter(cluster, "any") is ErrorCode.NONE
        syncs[0].set()
        cluster.controller.change(directories=[directory(1, "a")])
        await cluster.until(lambda: set(folders(cluster, "b")) <= {"t-0-delete"})
        assert len(cluster[1].replicas.moves) == 0
        assert cluster[1].partition().directory_id == directory(1, "a")
        assert (await cluster.produce(1, "two")).error_code == ErrorCode.NONE
        assert await cluster.read_all(1) == ["one", "two"]

    run(scenario)


def test_upkeep_of_the_former_directory_does_not_wait_for_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica moves while another log of the former directory is synced. Then the disk of the new one hangs."""
    flush_if_due = Partition.flush_if_due
    is_moved = asyncio.Event()
    visits: list[int] = []

    async def flush_after_move(partition: Partition) -> None:
        visits.append(partition.index)
        if partition.index == 0:
            await is_moved.wait()
        await flush_if_due(partition)

    async def scenario(cluster: Cluster) -> None:
        assign_directories(cluster)
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1], [1], [1])
        for index, letter in enumerate("aba"):
            await cluster.started(index)
            cluster.controller.change(index, directories=[directory(1, letter)])
            assert cluster[1].partition(index).directory_id == directory(1, letter)
        monkeypatch.setattr(Partition, "flush_if_due", flush_after_move)
        await cluster.until(lambda: visits.count(0))
        assert alter(cluster, path(1, "b"), index=2) is ErrorCode.NONE
        await cluster.until(lambda: TopicIdPartition(TOPIC, 2) in cluster[1].replicas.wished_assignments())
        cluster.controller.change(2, directories=[directory(1, "b")])
        await cluster.until(lambda: cluster[1].partition(2).directory_id == directory(1, "b"))
        assert (await cluster.produce(1, "one", index=2)).error_code == ErrorCode.NONE
        cluster.world.disk(path(1, "b")).hang({"fsync"})
        is_moved.set()
        await cluster.until(lambda: visits.count(0) == 3)

    run(scenario, log_flush_scheduler_interval_ms="1000")
