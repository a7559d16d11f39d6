"""Snapshots of the metadata log: writing, loading at startup, cutting the log, crashes half-way, damage."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from itertools import pairwise
from typing import Any

import pytest

from common.ids import LeaderEpoch, Offset
from common.metadata.record_reader import MetadataRecordReader
from common.metadata.state import MetadataState
from common.raft import snapshot_writer
from common.raft.core.offsets import OffsetAndEpoch, parse_snapshot_name, snapshot_path
from common.raft.core.record_batches import CommittedBatch
from common.raft.core.snapshot_content import parse_snapshot
from common.raft.errors import QuorumFailure
from common.raft.listener import LoadedSnapshot
from common.raft.metadata_log import MetadataLog
from common.records.batch import read_header
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    KnownRecord,
    NoOpRecord,
    TopicRecord,
)
from tests.simulation.disk_store import FileNode
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.raft.nodes import Config, QuorumNode, RecordingListener, leader, topic

KEEP_ONE = Config(metadata_max_retention_bytes=1)


def run(scenario: Callable[[SimulatedWorld], Coroutine[Any, Any, None]]) -> None:
    SimulatedWorld(seed=7).run(scenario)


def snapshots_of(node: QuorumNode) -> list[OffsetAndEpoch]:
    return [found for name in node.files() if (found := parse_snapshot_name(name)) is not None]


def segments_of(node: QuorumNode) -> list[str]:
    return [name for name in node.files() if name.endswith(".log")]


def node_of(node: QuorumNode, path: str) -> FileNode:
    entry = node.disk.find(path)
    assert isinstance(entry, FileNode)
    return entry


def damage(node: QuorumNode, path: str) -> None:
    content = node_of(node, path).content
    node_of(node, path).corrupt(len(content) - 20, 1)


def content_of(node: QuorumNode, path: str) -> bytes:
    return bytes(node_of(node, path).content)


def topics_in(node: QuorumNode, snapshot_id: OffsetAndEpoch) -> list[str]:
    records = parse_snapshot(content_of(node, snapshot_path(snapshot_id))).records(MetadataRecordReader())
    return [record.name for record in records if isinstance(record, TopicRecord)]


def test_snapshot_then_log_truncation_then_restart() -> None:
    """The old segment and the older snapshot are deleted. A restart rebuilds the state from the remaining files."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world, KEEP_ONE)
        await node.add("a", "b")
        first = await node.driver.write_snapshot()
        await node.add("c")
        second = await node.driver.write_snapshot()
        await node.add("d")
        assert (first, second) == (OffsetAndEpoch(Offset(3), LeaderEpoch(1)), OffsetAndEpoch(Offset(4), LeaderEpoch(1)))
        assert snapshots_of(node) == [second]
        assert node.driver.log_start_offset == 4
        assert segments_of(node) == [f"{4:020d}.log"]
        assert len(world.events_named("metadata_log_cut")) == 1

        await node.restart()
        await node.leads()
        assert node.listener.topics == ["a", "b", "c", "d"]
        assert node.listener.snapshots == [second]
        assert node.driver.log_start_offset == 4
        assert node.driver.leader_and_epoch.epoch == 2
        assert await node.add("e") == 6

    run(scenario)


def test_a_snapshot_holds_the_whole_state() -> None:
    """A snapshot holds the topics of the log before its end offset. A late listener gets it instead of that log."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a", "b")
        snapshot_id = await node.driver.write_snapshot()
        assert snapshot_id is not None
        await node.add("c")
        assert topics_in(node, snapshot_id) == ["a", "b"]
        late = RecordingListener()
        node.driver.register(late)
        await world.until(lambda: late.topics == ["a", "b", "c"])
        assert late.snapshots == [snapshot_id]
        assert node.listener.snapshots == []

    run(scenario)


def test_a_listener_may_take_its_time_to_load() -> None:
    """handle_load_snapshot may return an awaitable. Until it is done, batches are held back. Then they arrive in order."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        await node.driver.write_snapshot()
        may_finish = asyncio.Event()

        class Slow(RecordingListener):
            is_loading = False

            async def load(self, snapshot: LoadedSnapshot) -> None:
                self.is_loading = True
                await may_finish.wait()
                RecordingListener.handle_load_snapshot(self, snapshot)
                self.is_loading = False

            def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> Awaitable[None]:  # type: ignore[override]
                return self.load(snapshot)

            def handle_commit(self, batch: CommittedBatch) -> None:
                assert not self.is_loading
                super().handle_commit(batch)

        slow = Slow()
        node.driver.register(slow)
        await world.until(lambda: slow.is_loading)
        await node.add("b")
        await node.add("c")
        assert slow.topics == []
        may_finish.set()
        await world.until(lambda: slow.topics == ["a", "b", "c"])
        await node.add("d")
        assert slow.topics == ["a", "b", "c", "d"]

    run(scenario)


def test_a_snapshot_builds_on_the_one_before() -> None:
    """A new snapshot includes the topics of the previous one, because the log before the previous one is deleted."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world, KEEP_ONE)
        names: list[str] = []
        newest = None
        for number in range(6):
            names.append(f"t{number}")
            await node.add(names[-1])
            newest = await node.driver.write_snapshot()
        assert newest is not None
        assert topics_in(node, newest) == names
        assert snapshots_of(node) == [newest]

    run(scenario)


def test_nothing_new_no_snapshot() -> None:
    """Without new records write_snapshot() writes nothing, because the snapshot would equal the newest one."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        assert await node.driver.write_snapshot() is not None
        assert await node.driver.write_snapshot() is None

    run(scenario)


def test_only_what_is_committed_is_in_a_snapshot() -> None:
    """A snapshot does not include records that are not committed yet."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        end = node.driver.high_watermark
        offset = node.schedule("b")
        snapshot_id = await node.driver.write_snapshot()
        assert snapshot_id is not None
        assert snapshot_id.offset == end
        await node.committed(offset)
        assert topics_in(node, snapshot_id) == ["a"]

    run(scenario)


def test_bytes_of_records_trigger_a_snapshot() -> None:
    """A snapshot is written automatically about every two kilobytes of committed records."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world, Config(metadata_log_max_record_bytes_between_snapshots=2_000))
        for number in range(100):
            await node.add(f"t{number}")
            await world.sleep(0.1)
        offsets = [snapshot_id.offset for snapshot_id in snapshots_of(node)]
        # A batch with one topic is about a hundred bytes long.
        assert 3 <= len(offsets) <= 7
        assert all(10 <= after - before <= 30 for before, after in pairwise(offsets))

    run(scenario)


def test_time_triggers_a_snapshot() -> None:
    """New records are written to a snapshot after the interval. Without new records no snapshot is written."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world, Config(metadata_log_max_snapshot_interval_ms=60_000))
        await node.add("a")
        await world.sleep(30)
        await node.add("b")
        await world.sleep(5)
        assert snapshots_of(node) == []
        await world.sleep(30)
        await node.add("c")
        await world.until(lambda: len(snapshots_of(node)) == 1)
        await world.sleep(300)
        assert len(snapshots_of(node)) == 1

    run(scenario)


def test_retention_by_time_keeps_the_newest() -> None:
    """Snapshots that are too old are deleted when the next one is written, although the size limit is not reached."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world, Config(metadata_max_retention_ms=60_000))
        for number in range(3):
            await node.add(f"t{number}")
            await node.driver.write_snapshot()
        assert len(snapshots_of(node)) == 3
        await world.sleep(61)
        await node.add("last")
        newest = await node.driver.write_snapshot()
        assert snapshots_of(node) == [newest]
        assert newest is not None
        assert node.driver.log_start_offset == newest.offset

    run(scenario)


def test_writing_a_large_snapshot_lets_commits_through() -> None:
    """Appends commit as fast as before, because the snapshot is written in slices with pauses between them."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        for start in range(0, 10_000, 1_000):
            await node.add(*[f"{number:05d}" for number in range(start, start + 1_000)])
        writing = node.task_group.create_task(node.driver.write_snapshot())
        commits = 0
        while not writing.done():
            before_ns = world.now_ns()
            await node.add(f"during-{commits}")
            assert world.now_ns() - before_ns < 100_000_000
            commits += 1
        assert commits > 10

    run(scenario)


# --- transactions ----------------------------------------------------------------------------------------------------


def record(message: KnownRecord) -> ApiMessageAndVersion:
    return ApiMessageAndVersion(message, 0)


async def append(node: QuorumNode, *records: ApiMessageAndVersion) -> None:
    epoch = node.driver.leader_and_epoch.epoch
    await node.committed(node.driver.schedule_append(records, epoch=epoch))


def test_a_snapshot_never_ends_within_a_transaction() -> None:
    """A snapshot ends before an open transaction. A later one has all of a completed transaction, none of an aborted one."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("before")
        boundary = node.driver.high_watermark
        await append(node, record(BeginTransactionRecord(name="large")), topic("half"))
        snapshot_id = await node.driver.write_snapshot()
        assert snapshot_id is not None
        assert snapshot_id.offset == boundary
        assert topics_in(node, snapshot_id) == ["before"]
        assert await node.driver.write_snapshot() is None
        await append(node, topic("other half"), record(EndTransactionRecord()))
        await append(node, record(BeginTransactionRecord()), topic("never"), record(AbortTransactionRecord()))
        snapshot_id = await node.driver.write_snapshot()
        assert snapshot_id is not None
        assert snapshot_id.offset == node.driver.high_watermark
        assert topics_in(node, snapshot_id) == ["before", "half", "other half"]

    run(scenario)


def test_a_snapshot_that_cannot_be_written_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer fails in the middle, and not because of the disk. It removes the file that it began, and closes it."""

    def fail(_state: MetadataState) -> Iterator[ApiMessageAndVersion]:
        yield topic("a")
        raise QuorumFailure("the state cannot be said in records")

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        before = node.files()
        monkeypatch.setattr(snapshot_writer, "generate_snapshot_records", fail)
        with pytest.raises(QuorumFailure):
            await node.driver.write_snapshot()
        assert node.files() == before

    run(scenario)


def test_a_snapshot_is_written_and_downloaded_at_the_same_time() -> None:
    """Both attempts have a file of their own. The second one replaces the snapshot that the first one has published, and it
    is listed once."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        snapshot_id = await node.driver.write_snapshot()
        assert snapshot_id is not None
        whole = content_of(node, snapshot_path(snapshot_id))
        log = await MetadataLog.load(node.env, node.log_dir, Config())
        first, second = await log.begin_snapshot(snapshot_id), await log.begin_snapshot(snapshot_id)
        await first.append([whole[:10]])
        await second.append([whole])
        await first.append([whole[10:]])
        for file in (first, second):
            assert await log.publish_snapshot(file)
            assert content_of(node, snapshot_path(snapshot_id)) == whole
        assert [each.snapshot_id for each in log.snapshots] == [snapshot_id]

    run(scenario)


def test_no_snapshot_where_none_can_end() -> None:
    """No snapshot is written if an open transaction begins within the first batch, because snapshots end between batches."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await append(node, topic("before"), record(BeginTransactionRecord()), topic("half"))
        await append(node, record(NoOpRecord()))
        assert await node.driver.write_snapshot() is None
        assert snapshots_of(node) == []

    run(scenario)


# --- crashes and damage ----------------------------------------------------------------------------------------------


def test_leftovers_of_a_crash_are_removed() -> None:
    """Half-written and half-deleted snapshots are ignored and removed."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        node.crash()
        folder = node.disk.folder("__cluster_metadata-0")
        for name in (f"{9:020d}-{1:010d}.checkpoint.part", f"{8:020d}-{1:010d}.checkpoint.deleted"):
            folder.entries[name] = FileNode(bytearray(b"half"), 0)
        await node.start()
        await node.leads()
        assert node.listener.topics == ["a"]
        assert [name for name in node.files() if "checkpoint." in name] == []

    run(scenario)


def test_a_crash_while_writing_leaves_the_log_in_charge() -> None:
    """After a crash before the snapshot gets its final name, the next start reads the log."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        node.disk.hang({"rename"})
        node.task_group.create_task(node.driver.write_snapshot())
        await world.until(lambda: node.disk.stalled)
        node.crash()
        node.disk.thaw()
        await node.start()
        await node.leads()
        assert node.listener.topics == ["a"]

    run(scenario)


def test_a_log_that_ends_before_its_snapshot_starts_over_behind_it() -> None:
    """A power cut loses the log below the snapshot's end offset. The log restarts at that offset, and no record is lost."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        snapshot_id = await node.driver.write_snapshot()
        assert snapshot_id is not None
        node.crash()
        for name in segments_of(node):
            node_of(node, f"__cluster_metadata-0/{name}").rewrite(b"")
        await node.start()
        await node.leads()
        assert node.listener.topics == ["a"]
        assert node.driver.log_start_offset == snapshot_id.offset
        assert node.driver.leader_and_epoch.epoch == 2
        await node.add("b")
        await node.restart()
        await node.leads()
        assert node.listener.topics == ["a", "b"]

    run(scenario)


def test_a_damaged_newest_snapshot_is_passed_over() -> None:
    """If the newest snapshot is damaged, the older snapshot and the log after it are loaded instead."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        older = await node.driver.write_snapshot()
        await node.add("b")
        newer = await node.driver.write_snapshot()
        assert newer is not None
        node.crash()
        damage(node, snapshot_path(newer))
        await node.start()
        await node.leads()
        assert node.listener.topics == ["a", "b"]
        assert node.listener.snapshots == [older]
        assert len(world.events_named("metadata_snapshot_damaged")) == 1

    run(scenario)


def test_a_whole_log_needs_no_snapshot() -> None:
    """A log that still has its first record is not cut at a restart, so a damaged snapshot loses nothing."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        newest = await node.driver.write_snapshot()
        assert newest is not None
        await node.add("b")
        await node.restart()
        await node.leads()
        assert node.driver.log_start_offset == 0
        node.crash()
        damage(node, snapshot_path(newest))
        await node.start()
        await node.leads()
        assert node.listener.topics == ["a", "b"]
        assert node.listener.snapshots == []

    run(scenario)


def test_a_log_without_its_beginning_is_fatal() -> None:
    """The only snapshot is damaged and the log before it is deleted. Starting would lose all metadata, so the node fails."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world, KEEP_ONE)
        for name in ("a", "b"):
            await node.add(name)
            newest = await node.driver.write_snapshot()
        assert newest is not None
        await node.add("c")
        node.crash()
        damage(node, snapshot_path(newest))
        await node.start()
        assert isinstance(node.failure, QuorumFailure)
        assert "no whole snapshot" in str(node.failure)

    run(scenario)


def test_a_damaged_part_of_the_log_gets_into_no_snapshot() -> None:
    """The writer reads the log back from the disk. The reason why it cannot go on names the log."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        path = f"__cluster_metadata-0/{segments_of(node)[0]}"
        # The length of the second batch.
        node_of(node, path).corrupt(read_header(content_of(node, path)).size + 8, 4)
        with pytest.raises(QuorumFailure, match=r"^/disks/one/__cluster_metadata-0 is damaged at offset 0: "):
            await node.driver.write_snapshot()
        assert snapshots_of(node) == []

    run(scenario)


def test_a_cut_that_was_half_done_is_finished() -> None:
    """The node crashed after deleting the segments but before deleting the older snapshot. The next start deletes it."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        older = await node.driver.write_snapshot()
        await node.add("b")
        newer = await node.driver.write_snapshot()
        assert older is not None
        assert newer is not None
        await node.add("c")
        node.crash()
        for name in node.files():
            if name.startswith((f"{0:020d}.", f"{older.offset:020d}.")):
                node.disk.delete(f"__cluster_metadata-0/{name}")
        await node.start()
        await node.leads()
        assert node.listener.topics == ["a", "b", "c"]
        assert snapshots_of(node) == [newer]

    run(scenario)


@pytest.mark.parametrize("hung", ["remove", "rename"])
def test_a_crash_during_the_cut_loses_nothing(hung: str) -> None:
    """A crash while the start of the log is deleted, during a remove or a rename, loses no committed record."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world, KEEP_ONE)
        await node.add("a")
        await node.driver.write_snapshot()
        await node.add("b")
        node.task_group.create_task(node.driver.write_snapshot())
        await world.until(lambda: len(snapshots_of(node)) == 2)
        node.disk.hang({hung})
        await node.add("c")
        await world.sleep(1)
        node.crash()
        node.disk.thaw()
        await node.start()
        await node.leads()
        assert node.listener.topics == ["a", "b", "c"]

    run(scenario)
