"""Which logs a broker loads, creates, deletes and puts aside; checkpoints, retention and orderly shutdown."""

import errno
from collections.abc import Awaitable
from typing import Any

import pytest

from broker.hosting import replica_descriptions
from broker.hosting.directory_logs import DuplicateLog
from common.ids import Offset, TopicId, TopicIdPartition, Uuid, uuid_text
from common.log_dirs.log_directories import SpaceSeen
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.records.metadata_records import ConfigResourceType, PartitionRecord, TopicRecord
from common.records.record import Record, encode_batch
from common.storage.names import CLEAN_SHUTDOWN_FILE
from tests.unit.broker.cluster import TOPIC, Cluster, at_once, directory, path, run

OTHER = TopicId(Uuid(b"O" * 16))


def partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def top_folders(cluster: Cluster, letter: str, broker_id: int = 1) -> list[str]:
    return [name for name in cluster.world.disk(path(broker_id, letter)).folders() if "/" not in name]


# --- start and end -----------------------------------------------------------------------------------------------


def test_an_orderly_end_leaves_markers_and_the_next_start_trusts_them() -> None:
    """An orderly shutdown writes checkpoints, and a marker with the broker's epoch. The next start loads everything without
    recovery and removes the markers."""

    async def scenario(cluster: Cluster) -> None:
        broker = await cluster.start(1, "ab")
        cluster.controller.create_topic([1], [1], configs={"segment.bytes": "200"})
        for index in (0, 1):
            await cluster.started(index)
            for number in range(10):
                assert (await cluster.produce(1, f"v{number}", index=index)).error_code == ErrorCode.NONE
        # The periodic stores have taken note of everything. The end makes more durable than they have seen.
        await cluster.world.sleep(100)
        epoch = broker.epoch
        newest = cluster[1].partition().log.segment_base_offsets[-1]
        await cluster.stop(1)
        for letter in "ab":
            files = cluster.world.disk(path(1, letter)).files()
            assert files[CLEAN_SHUTDOWN_FILE] == f'{{"version":0,"brokerEpoch":{epoch}}}'.encode()
            assert files["recovery-point-offset-checkpoint"].decode().split("\n")[2].endswith(f" {newest}")
            assert files["replication-offset-checkpoint"].decode().split("\n")[2].endswith(" 10")
        await cluster.start(1, "ab")
        for letter in "ab":
            assert CLEAN_SHUTDOWN_FILE not in cluster.world.disk(path(1, letter)).files()
        cluster.controller.change(0, leader=1)
        assert cluster[1].partition().high_watermark == 10
        assert await cluster.read_all(1, offset=9) == ["v9"]
        assert cluster.world.events_named("log_recovered") == []

    run(scenario)


def test_an_orderly_end_with_a_dead_disk_marks_the_others_only() -> None:
    """The dead disk gets no marker, because its logs must be recovered when it comes back."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1], [1])
        for index in (0, 1):
            await cluster.started(index)
        cluster.world.disk(path(1, "a")).fail_with(5)
        await cluster.stop(1)
        assert CLEAN_SHUTDOWN_FILE not in cluster.world.disk(path(1, "a")).files()
        assert CLEAN_SHUTDOWN_FILE in cluster.world.disk(path(1, "b")).files()

    run(scenario)


def test_strays_are_put_aside_and_foreign_folders_left_alone() -> None:
    """A log of an unknown topic, one with another topic id, and one without partition.metadata are renamed to -stray,
    contents included. lost+found, future replicas and older strays stay as they are."""

    async def scenario(cluster: Cluster) -> None:
        disk = cluster.world.disk(path(1, "a"))
        disk.write("lost+found/inode", b"x")
        disk.write("unknown-0/partition.metadata", partition_metadata(OTHER))
        disk.write("unknown-0/00000000000000000000.log", b"data")
        disk.write("t-0/partition.metadata", partition_metadata(OTHER))
        disk.write("t-1/00000000000000000000.log", b"data")
        disk.write("t-2/partition.metadata", partition_metadata(TOPIC))
        future = f"t-0.{'0' * 32}-future"
        disk.write(f"{future}/partition.metadata", partition_metadata(TOPIC))
        disk.write("__cluster_metadata-0/quorum-state", b"{}")
        cluster.controller.create_topic([1], [2], [2])
        await cluster.start(1)
        await cluster.until(lambda: len(cluster.world.events_named("stray_log_put_aside")) == 4)
        folders = top_folders(cluster, "a")
        assert "lost+found" in folders and future in folders and "__cluster_metadata-0" in folders
        assert sorted(name.partition(".")[0] for name in folders if name.endswith("-stray")) == [
            "t-0",
            "t-1",
            "t-2",
            "unknown-0",
        ]
        [stray] = [name for name in folders if name.startswith("unknown")]
        assert disk.files()[f"{stray}/00000000000000000000.log"] == b"data"
        assert cluster.world.events_named("foreign_folder_ignored")[0].fields["folder"] == "lost+found"

    run(scenario)


def test_two_current_logs_of_one_partition_end_the_start() -> None:
    """If the replica is in the ISR and the metadata names neither directory, the broker cannot choose between the logs. The
    error names both directories."""

    async def scenario(cluster: Cluster) -> None:
        for letter in "ab":
            disk = cluster.world.disk(path(1, letter))
            disk.write("t-0/partition.metadata", partition_metadata(TOPIC))
            disk.write("t-0/00000000000000000000.log", b"")
        cluster.controller.create_topic([1])
        with pytest.raises(BaseExceptionGroup) as raised:
            await cluster.run_until_it_ends(1, "ab")
        [error] = raised.value.exceptions
        assert isinstance(error, DuplicateLog)
        assert path(1, "a") in str(error) and path(1, "b") in str(error)

    run(scenario)


@pytest.mark.parametrize(("assigned", "kept"), [("a", "a"), ("b", "b"), ("", "b")])
def test_of_two_current_logs_the_metadata_or_the_longer_one_decides(assigned: str, kept: str) -> None:
    """A disk was missing, the replica was created again on another disk, and now both disks are there. The log in the
    directory that the metadata names is kept. If the metadata names neither and the replica is not in the ISR, the longer
    log is kept. The other log is renamed, not deleted."""

    async def scenario(cluster: Cluster) -> None:
        for letter, content in (("a", b""), ("b", bytes(encode_batch([Record(key=None, value=b"x", timestamp_ms=0)])))):
            disk = cluster.world.disk(path(1, letter))
            disk.write("t-0/partition.metadata", partition_metadata(TOPIC))
            disk.write("t-0/00000000000000000000.log", content)
        cluster.controller.create_topic([2, 1])
        places = [UNASSIGNED, directory(1, assigned) if assigned else UNASSIGNED]
        cluster.controller.change(isr=[2], directories=places)
        await cluster.start(1, "ab")
        for letter in "ab":
            is_stray = any(name.endswith("-stray") for name in top_folders(cluster, letter))
            assert is_stray is (letter != kept)

    run(scenario)


def test_leftover_deletions_are_finished_after_the_delay() -> None:
    """A -delete folder found at the start is removed after file.delete.delay.ms."""

    async def scenario(cluster: Cluster) -> None:
        disk = cluster.world.disk(path(1, "a"))
        folder = f"t-0.{'ab' * 16}-delete"
        disk.write(f"{folder}/00000000000000000000.log", b"x")
        await cluster.start(1)
        await cluster.world.sleep(4)
        assert folder in top_folders(cluster, "a")
        await cluster.world.sleep(2)
        assert folder not in top_folders(cluster, "a")

    run(scenario, log_segment_delete_delay_ms="5000")


def test_a_deletion_goes_file_by_file_and_may_find_nothing() -> None:
    """Files are deleted one by one, because one disk operation that deletes all files of a large partition could exceed its
    deadline. A folder that was removed by hand is not a disk error."""

    async def scenario(cluster: Cluster) -> None:
        disk = cluster.world.disk(path(1, "a"))
        folders = [f"t-{number}.{'ab' * 16}-delete" for number in range(2)]
        for folder in folders:
            for base in range(3):
                disk.write(f"{folder}/{base:020d}.log", b"x")
        await cluster.start(1)
        log_dir = cluster[1].log_dirs[directory(1, "a")]
        removed: list[str] = []
        remove = log_dir.remove

        def noting(name: str) -> Awaitable[None]:
            removed.append(name)
            return remove(name)

        log_dir.remove = noting  # type: ignore[method-assign]
        for base in range(3):
            disk.delete(f"{folders[1]}/{base:020d}.log")
        disk.delete(folders[1])
        await cluster.world.sleep(6)
        assert top_folders(cluster, "a") == []
        assert removed == [*(f"{folders[0]}/{base:020d}.log" for base in range(3)), folders[0]]
        assert list(cluster[1].directories.offline) == []

    run(scenario, log_segment_delete_delay_ms="5000")


def test_a_deleted_topic_is_renamed_at_once_and_removed_later() -> None:
    """Requests for the topic get an error at once. The folder is soon renamed to -delete, and it is removed after
    file.delete.delay.ms. Meanwhile a new topic of the same name can use the old folder name."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"file.delete.delay.ms": "3000"})
        await cluster.started()
        await cluster.produce(1, "old")
        cluster.controller.remove_topic()
        assert (await cluster.produce(1, "x", version=12)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await cluster.fetch(1)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        cluster.controller.create_topic([1], topic_id=OTHER)
        await cluster.started(0, OTHER)
        assert (await cluster.produce(1, "new")).base_offset == 0
        assert sorted(name.rpartition("-")[2] for name in top_folders(cluster, "a")) == ["0", "delete"]
        await cluster.world.sleep(4)
        assert top_folders(cluster, "a") == ["t-0"]
        assert await cluster.read_all(1, topic_id=OTHER) == ["new"]

    run(scenario)


def test_the_sizes_of_many_replicas_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start the sizes of all replicas are new. Each call describes the next few of them, and one that grows
    meanwhile has to wait for its next turn."""
    monkeypatch.setattr(replica_descriptions, "RESIZED_PER_CALL_MAX", 2)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic(*([1] for _ in range(5)))
        for index in range(5):
            await cluster.started(index)
        replicas = cluster[1].replicas
        first = [key.partition for key in replicas.descriptions.take_resized()]
        await cluster.produce(1, "x", index=first[0])
        then = [[key.partition for key in replicas.descriptions.take_resized()] for _ in range(3)]
        assert sorted([*first, *then[0], *then[1]]) == [0, 0, 1, 2, 3, 4]
        assert then[1][-1] == first[0]
        assert then[2] == []

    run(scenario)


@pytest.mark.parametrize("is_read", [False, True])
def test_replicas_that_have_left_are_noted_for_the_metrics_only(is_read: bool) -> None:
    """Without a listener for Prometheus nothing looks at the sizes. Topics may come and go all the same, and nothing of them
    stays in memory."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        replicas = cluster[1].replicas
        if is_read:
            assert replicas.descriptions.take_resized() == {}
        cluster.controller.create_topic([1])
        await cluster.started()
        await cluster.produce(1, "x")
        cluster.controller.remove_topic()
        await cluster.world.sleep(1)
        assert replicas.descriptions.take_resized() == ({TopicIdPartition(TOPIC, 0): None} if is_read else {})

    run(scenario)


def test_a_recovery_point_behind_the_end_of_its_log_is_lowered_at_the_start() -> None:
    """A kill between a truncation and its checkpoint leaves the recovery point above the log's end. If it stayed there,
    records written below it later would be trusted after a power cut, although they were never synced."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        await cluster.produce(1, "a", "b", "c")
        cluster.crash(1)
        disk = cluster.world.disk(path(1, "a"))
        disk.write("recovery-point-offset-checkpoint", b"0\n1\nt 0 100\n")
        await cluster.start(1)
        await cluster.started()
        assert disk.durable_files()["recovery-point-offset-checkpoint"] == b"0\n1\nt 0 0\n"

    run(scenario)


def test_a_topic_created_anew_inherits_nothing_from_checkpoints() -> None:
    """The old topic of this name had a recovery point, a log start and a high watermark in the checkpoints. If they applied
    to the new topic after a crash, unsynced bytes would be trusted, and records below the log start would be dropped."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic(
            [1], configs={"segment.bytes": "200", "retention.bytes": "600", "retention.ms": "-1"}
        )
        await cluster.started()
        for number in range(20):
            await cluster.produce(1, f"old-{number}")
        await cluster.world.sleep(2.5)
        disk = cluster.world.disk(path(1, "a"))
        stored = [name for name in disk.files() if name.endswith("-offset-checkpoint")]
        assert len(stored) == 3
        assert all(b"\nt 0 " in disk.files()[name] for name in stored)
        cluster.controller.remove_topic()
        cluster.controller.create_topic([1], topic_id=OTHER)
        await cluster.started(0, OTHER)
        assert not any(b"\nt 0 " in disk.durable_files()[name] for name in stored)
        await cluster.produce(1, "new")
        cluster.crash(1)
        await cluster.start(1)
        await cluster.started(0, OTHER)
        assert cluster[1].partition(0, OTHER).log.log_start_offset == 0
        assert await cluster.read_all(1, topic_id=OTHER) == ["new"]

    run(
        scenario,
        log_retention_check_interval_ms="500",
        log_flush_offset_checkpoint_interval_ms="1000",
        log_flush_start_offset_checkpoint_interval_ms="1000",
        replica_high_watermark_checkpoint_interval_ms="1000",
    )


def test_a_replica_that_moves_away_is_deleted() -> None:
    """A produce that waits for the ISR gets NOT_LEADER_OR_FOLLOWER, and so does any later produce. With
    UNKNOWN_TOPIC_OR_PARTITION the client would not look for the new leader. Broker 2 keeps its replica and becomes the
    leader."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.start(2)
        cluster.controller.create_topic([1, 2], configs={"file.delete.delay.ms": "3000"})
        await cluster.started()
        await cluster.produce(1, "kept")
        cluster.world.network.cut("broker-2", "broker-1")
        waiting = cluster.world.loop.create_task(cluster.produce(1, "not replicated"))
        await cluster.world.sleep(1)
        assert not waiting.done()
        cluster.controller.change(replicas=[2], directories=[UNASSIGNED], isr=[2], leader=2)
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await cluster.produce(1, "x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster[1].replicas.hosted_directories() == {}
        disk = cluster.world.disk(path(1, "a"))
        await cluster.until(lambda: not any(name.startswith("t-0/") for name in disk.files()))
        await cluster.until(lambda: not any("-delete" in name for name in disk.files()))
        cluster.world.network.mend()
        assert (await cluster.produce(2, "after")).error_code == ErrorCode.NONE

    run(scenario)


def test_a_topic_deleted_before_its_log_is_created() -> None:
    """By the time the creation runs, the metadata no longer places the log here, so nothing is created."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        cluster.controller.remove_topic()
        await cluster.world.sleep(1)
        assert top_folders(cluster, "a") == []
        assert cluster[1].replicas.hosted_directories() == {}
        assert cluster.world.events_named("log_created") == []

    run(scenario)


def test_a_topic_deleted_while_its_log_is_being_created() -> None:
    """When the creation ends, the metadata no longer places the log here, so the new log is deleted."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        await create_on_a_hanging_disk(cluster)
        cluster.controller.remove_topic()
        cluster.world.disk(path(1, "a")).thaw()
        await cluster.world.sleep(1)
        assert [name.rpartition("-")[2] for name in top_folders(cluster, "a")] == ["delete"]
        assert cluster[1].replicas.hosted_directories() == {}

    run(scenario)


def test_a_new_topic_of_the_name_keeps_its_log_when_the_old_one_is_created_late() -> None:
    """While a slow disk creates the old topic's log, the topic is deleted and another of the same name is created. From then
    on the folder belongs to the new topic, so it must not be deleted for the old one (seed 110615)."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        await create_on_a_hanging_disk(cluster)
        cluster.controller.remove_topic()
        cluster.controller.create_topic([1], topic_id=OTHER)
        cluster.world.disk(path(1, "a")).thaw()
        await cluster.started(0, OTHER)
        await cluster.produce(1, "new")
        await cluster.world.sleep(1)
        assert sorted(name.rpartition("-")[2] for name in top_folders(cluster, "a")) == ["0", "delete"]
        cluster.crash(1)
        await cluster.start(1)
        await cluster.started(0, OTHER)
        assert await cluster.read_all(1, topic_id=OTHER) == ["new"]

    run(scenario)


async def create_on_a_hanging_disk(cluster: Cluster) -> None:
    """Starts the creation of a log on broker 1, and makes its disk hang during the creation."""
    disk = cluster.world.disk(path(1, "a"))
    cluster.controller.create_topic([1])
    await cluster.until(lambda: "t-0" in disk.folders())
    disk.hang()


# --- absent logs -------------------------------------------------------------------------------------------------


def test_an_isr_member_with_a_replaced_disk_is_reported_lost() -> None:
    """The disk was replaced by an empty one, so the log is missing although the replica is in the ISR. The broker creates no
    log and reports LOST. Once the replica is out of the ISR, it is created and replicated again."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.start(2)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        await cluster.produce(1, "a")
        cluster.controller.change(directories=[directory(1, "a"), directory(2, "a")])
        cluster.crash(2)
        cluster.world.disk(path(2, "a")).wipe()
        cluster.world.disk(path(2, "b"))
        await cluster.start(2, "b")
        assert cluster[2].replicas.wished_assignments() == {TopicIdPartition(TOPIC, 0): LOST}
        assert top_folders(cluster, "b", 2) == []
        cluster.controller.change(directories=[directory(1, "a"), LOST], isr=[1])
        await cluster.until(lambda: cluster[2].follows() and cluster[2].partition().log.written_offset == 1)
        assert cluster[2].replicas.wished_assignments() == {TopicIdPartition(TOPIC, 0): directory(2, "b")}
        # The replica has all records. But while the metadata says LOST, the replica counts as offline and may not join the
        # ISR.
        await cluster.world.sleep(1)
        assert cluster.controller.requests == []
        cluster.controller.change(directories=[directory(1, "a"), directory(2, "b")])
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        assert cluster.log_bytes(2, "b") == cluster.log_bytes(1)

    run(scenario)


def test_an_unassigned_isr_member_is_created_if_no_directory_can_hold_it() -> None:
    """The topic was created while the broker was down, or the broker died before it created the log. If every directory of
    the previous registration is online, the replica cannot have had a log. If a directory is missing, the log may be
    there."""

    async def scenario(cluster: Cluster) -> None:
        cluster.controller.register(1, "ab")
        cluster.controller.create_topic([1])
        for previous, expected in (
            ("abc", {TopicIdPartition(TOPIC, 0): LOST}),
            ("ab", {TopicIdPartition(TOPIC, 0): directory(1, "a")}),
        ):
            broker = await cluster.start(1, "ab", previous=previous)
            broker.replicas.reconcile(TopicIdPartition(TOPIC, 0))
            await cluster.until(lambda: not cluster[1].replicas.is_being_created(TopicIdPartition(TOPIC, 0)))
            assert broker.replicas.wished_assignments() == expected
            cluster.crash(1)

    run(scenario)


@pytest.mark.parametrize(
    ("file", "content", "is_created"),
    [
        ("", b"", True),
        ("replication-offset-checkpoint", b"0\n1\nother 0 7\n", True),
        (f"t-0.{'ab' * 16}-delete/partition.metadata", partition_metadata(OTHER), True),
        ("replication-offset-checkpoint", b"0\n1\nt 0 0\n", False),
        ("recovery-point-offset-checkpoint", b"0\n1\nt 0 0\n", False),
        (f"t-0.{'ab' * 16}-stray/partition.metadata", partition_metadata(TOPIC), False),
        ("t-0/00000000000000000000.log", b"whose topic id is gone", False),
        (f"t-0.{'ab' * 16}-future/partition.metadata", partition_metadata(TOPIC), False),
        (f"t-0.{'ab' * 16}-delete/partition.metadata", partition_metadata(TOPIC), False),
    ],
)
def test_an_isr_member_whose_only_directory_has_no_trace_of_a_log_is_created(
    file: str, content: bytes, is_created: bool
) -> None:
    """The broker has a single directory, so the controller has assigned the replica to it. If the broker died before it
    created the log, nothing there names the replica. If something does, the log is lost."""

    async def scenario(cluster: Cluster) -> None:
        cluster.controller.register(1, "a")
        cluster.controller.create_topic([1])
        cluster.controller.change(directories=[directory(1, "a")])
        if file:
            cluster.world.disk(path(1, "a")).write(file, content)
        broker = await cluster.start(1, "a", previous="a")
        broker.replicas.reconcile(TopicIdPartition(TOPIC, 0))
        await cluster.until(lambda: not cluster[1].replicas.is_being_created(TopicIdPartition(TOPIC, 0)))
        hosted, wished = broker.replicas.hosted_directories(), broker.replicas.wished_assignments()
        if is_created:
            assert (hosted, wished) == ({TopicIdPartition(TOPIC, 0): directory(1, "a")}, {})
        else:
            assert (hosted, wished) == ({}, {TopicIdPartition(TOPIC, 0): LOST})

    run(scenario)


def test_a_partition_newer_than_the_incarnation_is_created_and_assigned() -> None:
    """Each replica is created in the directory with the fewest logs. The broker reports that directory until the metadata
    names it."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "abc")
        cluster.controller.create_topic([1], [1], [1], [1])
        for index in range(4):
            await cluster.started(index)
        wishes = cluster[1].replicas.wished_assignments()
        assert [wishes[TopicIdPartition(TOPIC, index)] for index in range(4)] == [directory(1, letter) for letter in "abca"]
        cluster.controller.change(0, directories=[directory(1, "a")])
        assert TopicIdPartition(TOPIC, 0) not in cluster[1].replicas.wished_assignments()
        # If the metadata later names another directory, the broker corrects it.
        cluster.controller.change(0, directories=[directory(1, "b")])
        assert cluster[1].replicas.wished_assignments()[TopicIdPartition(TOPIC, 0)] == directory(1, "a")

    run(scenario)


def test_a_partition_that_a_snapshot_brings_is_newer_all_the_same() -> None:
    """All records of a snapshot have the same offset, so offsets cannot show that a partition is newer than the broker's
    registration. But the broker was registered before it got the snapshot, so a partition that was not in its image until
    then is newer. Its replica is created and not reported LOST."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1])
        await cluster.started()
        broker = cluster[1]
        fresh = MetadataState()
        other = TopicRecord(name="other", topic_id=OTHER)
        partition = PartitionRecord(
            partition_id=0,
            topic_id=OTHER,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[UNASSIGNED],
        )
        for record in (*cluster.controller.records, other, partition):
            fresh.replay(record, offset=Offset(1_000))
        before = broker.state.replace_with(fresh)
        at_once(broker.replicas.apply(broker.state.delta_since(before)))
        await cluster.world.until(lambda: broker.leads(0, OTHER))
        assert (
            broker.replicas.wished_assignments()[TopicIdPartition(OTHER, 0)]
            == broker.replicas.hosted_directories()[TopicIdPartition(OTHER, 0)]
        )

    run(scenario)


def test_a_replica_that_has_no_place_waits_and_is_lost_meanwhile() -> None:
    """Below the minimum of free space no log is created, and a replica in the ISR is reported LOST. When there is enough
    space again, the log is created."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        space = await cluster[1].log_dirs[directory(1, "a")].statvfs()
        full = type(space)(total_bytes=space.total_bytes, usable_bytes=1000, free_inodes=space.free_inodes)
        cluster[1].directories.step(SpaceSeen(directory(1, "a"), full))
        cluster.controller.create_topic([1])
        assert cluster[1].replicas.wished_assignments() == {TopicIdPartition(TOPIC, 0): LOST}
        assert cluster[1].replicas.is_unplaceable(TopicIdPartition(TOPIC, 0))
        assert cluster[1].replicas.descriptions.gauges().unplaceable_replica_count == 1
        await cluster.world.sleep(3)
        (event,) = cluster.world.events_named("replica_not_placeable")
        assert "67108864 bytes (diskraft.log.dir.free.bytes.floor)" in str(event)
        cluster[1].directories.step(SpaceSeen(directory(1, "a"), space))
        await cluster.until(cluster[1].leads)
        assert cluster[1].replicas.wished_assignments() == {TopicIdPartition(TOPIC, 0): directory(1, "a")}
        assert not cluster[1].replicas.is_unplaceable(TopicIdPartition(TOPIC, 0))

    run(scenario)


def test_an_unreadable_disk_at_start_leads_nothing() -> None:
    """One of two disks fails while its logs are loaded, and goes offline. Its replicas are not created on the other disk,
    whose partitions are served."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1], [1])
        for index in (0, 1):
            await cluster.started(index)
            await cluster.produce(1, "x", index=index)
        hosted = cluster[1].replicas.hosted_directories()
        for index in (0, 1):
            cluster.controller.change(index, directories=[hosted[TopicIdPartition(TOPIC, index)]])
        cluster.crash(1)
        cluster.world.disk(path(1, "a")).fail_with(5, {"open", "read", "read_file"})
        await cluster.start(1, "ab")
        await cluster.world.sleep(3)
        [dead] = [index for index in (0, 1) if hosted[TopicIdPartition(TOPIC, index)] == directory(1, "a")]
        assert cluster[1].replicas.hosted_directories() == {TopicIdPartition(TOPIC, 1 - dead): directory(1, "b")}
        assert cluster[1].replicas.find(TopicIdPartition(TOPIC, dead)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster[1].replicas.wished_assignments() == {}
        assert await cluster.read_all(1, index=1 - dead) == ["x"]

    run(scenario)


def test_a_folder_in_the_way_is_put_aside() -> None:
    """A folder with the name of a new log appeared after the broker's start. The folder has no partition.metadata, so it is
    renamed to -stray."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.world.disk(path(1, "a")).write("t-0/00000000000000000000.log", b"what is this")
        cluster.controller.create_topic([1])
        await cluster.started()
        assert sorted(name.rpartition("-")[2] for name in top_folders(cluster, "a")) == ["0", "stray"]
        assert (await cluster.produce(1, "a")).base_offset == 0

    run(scenario)


# --- upkeep ------------------------------------------------------------------------------------------------------


def test_high_watermarks_are_checkpointed_and_only_when_they_changed() -> None:
    """After replica.high.watermark.checkpoint.interval.ms the checkpoint has the high watermark. While that does not change,
    the file is not written again."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        await cluster.produce(1, "a", "b")
        await cluster.world.sleep(1.5)
        disk = cluster.world.disk(path(1, "a"))
        assert disk.files()["replication-offset-checkpoint"] == b"0\n1\nt 0 2\n"
        disk.delete("replication-offset-checkpoint")
        await cluster.world.sleep(3)
        assert "replication-offset-checkpoint" not in disk.files()
        await cluster.produce(1, "c")
        await cluster.world.sleep(1.5)
        assert disk.files()["replication-offset-checkpoint"] == b"0\n1\nt 0 3\n"

    run(scenario, replica_high_watermark_checkpoint_interval_ms="1000")


def test_recovery_points_follow_the_rolled_segments() -> None:
    """A rolled segment is synced in the background. Then the checkpoint has the segment's end as the recovery point."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"segment.bytes": "200"})
        await cluster.started()
        for number in range(10):
            await cluster.produce(1, f"value-{number}")
        await cluster.world.sleep(1.5)
        log = cluster[1].partition().log
        assert len(log.segment_base_offsets) > 2
        assert log.recovery_point == log.segment_base_offsets[-1]
        content = cluster.world.disk(path(1, "a")).files()["recovery-point-offset-checkpoint"]
        assert content == f"0\n1\nt 0 {log.recovery_point}\n".encode()

    run(scenario, log_flush_offset_checkpoint_interval_ms="1000")


@pytest.mark.parametrize(
    "configs",
    [
        {"segment.bytes": "200", "retention.bytes": "600", "retention.ms": "-1"},
        {"segment.bytes": "200", "retention.ms": "1000"},
    ],
)
def test_retention_on_leader_and_follower(configs: dict[str, str]) -> None:
    """The leader deletes old segments by size or by time and checkpoints the log start. The follower adopts the leader's log
    start."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], configs=configs)
        await cluster.started()
        for number in range(20):
            await cluster.produce(1, f"value-{number:03}")
        await cluster.until(lambda: cluster[1].partition().log.log_start_offset > 0)
        await cluster.world.sleep(3)
        leader, follower = cluster[1].partition().log, cluster[2].partition().log
        assert leader.log_start_offset == follower.log_start_offset
        assert leader.size_bytes <= 1000
        assert (await cluster.fetch(1, offset=0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        data = await cluster.fetch(1, offset=leader.log_start_offset)
        assert (data.error_code, data.log_start_offset) == (ErrorCode.NONE, leader.log_start_offset)
        content = cluster.world.disk(path(1, "a")).files()["log-start-offset-checkpoint"]
        assert content == f"0\n1\nt 0 {leader.log_start_offset}\n".encode()

    run(scenario, log_retention_check_interval_ms="500", log_flush_start_offset_checkpoint_interval_ms="500")


@pytest.mark.parametrize(
    ("configs", "server", "is_synced"),
    [
        ({}, {"log_flush_scheduler_interval_ms": "1000"}, True),
        ({"flush.ms": "1000"}, {"log_flush_scheduler_interval_ms": "500"}, True),
        ({"flush.ms": "60000"}, {"log_flush_scheduler_interval_ms": "500"}, False),
        ({}, {"log_flush_scheduler_interval_ms": "500", "log_flush_interval_ms": "60000"}, False),
        # By default no broker looks for logs to sync.
        ({"flush.ms": "1000"}, {}, False),
    ],
)
def test_logs_are_synced_from_time_to_time(configs: dict[str, str], server: dict[str, Any], is_synced: bool) -> None:
    """Leader and follower sync their logs in the background after a record is acknowledged, and again for the next one."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], configs=configs)
        await cluster.started()
        for value in ("first", "second"):
            await cluster.produce(1, value, acks=-1)
            assert cluster[1].partition().log.recovery_point < cluster[1].partition().log.log_end_offset
            await cluster.world.sleep(2.5)
            for broker_id in (1, 2):
                content = cluster.world.disk(path(broker_id, "a")).durable_files()["t-0/00000000000000000000.log"]
                assert (value.encode() in content) == is_synced

    run(scenario, **server)


def test_a_deleted_segment_stays_for_file_delete_delay_ms() -> None:
    """Retention renames the files of old segments at once. They leave the disk when the delay of the topic has passed."""

    async def scenario(cluster: Cluster) -> None:
        def waiting() -> list[str]:
            return [name for name in cluster.world.disk(path(1, "a")).files() if name.endswith(".log.deleted")]

        await cluster.start(1)
        configs = {"segment.bytes": "200", "retention.bytes": "600", "file.delete.delay.ms": "5000"}
        cluster.controller.create_topic([1], configs=configs)
        await cluster.started()
        for number in range(20):
            await cluster.produce(1, f"value-{number:03}")
        await cluster.until(lambda: cluster[1].partition().log.log_start_offset > 0)
        await cluster.world.sleep(2)
        deleted = waiting()
        assert deleted[0] == "t-0/00000000000000000000.log.deleted"
        await cluster.world.sleep(2)
        assert waiting() == deleted
        await cluster.world.sleep(3)
        assert waiting() == []

    run(scenario, log_retention_check_interval_ms="500")


def test_a_damaged_segment_does_not_end_the_broker() -> None:
    """If a segment's time index is missing and its batches are unreadable, retention cannot determine the segment's age. It
    logs that, and the broker keeps running."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"segment.bytes": "200", "retention.ms": "1000000"})
        await cluster.started()
        for number in range(10):
            await cluster.produce(1, f"value-{number}")
        await cluster.stop(1)
        disk = cluster.world.disk(path(1, "a"))
        first = "t-0/00000000000000000000"
        disk.write(f"{first}.log", bytes(len(disk.files()[f"{first}.log"])))
        disk.delete(f"{first}.timeindex")
        await cluster.start(1)
        await cluster.until(lambda: cluster.world.events_named("segment_damaged"))
        assert cluster[1].partition().log.log_start_offset == 0
        await cluster.produce(1, "after")

    run(scenario, log_retention_check_interval_ms="500")


def test_a_replica_that_leaves_and_comes_back_is_not_changed_by_its_former_self() -> None:
    """A change of the topic's configuration is applied in slices. In between, a replica goes to another broker, comes back
    with a new log and leads again. Its old object still is in the list of those to change, and must not pass for the new
    one."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1], [1])
        for index in (0, 1):
            await cluster.started(index)
        replicas = cluster[1].replicas
        before = cluster[1].partition(1)
        delta = MetadataDelta()
        delta.changed_configs[(ConfigResourceType.TOPIC, "t")] = {}
        applying = replicas.apply(delta)
        next(applying)
        cluster.controller.change(1, replicas=[2], directories=[UNASSIGNED], isr=[2], leader=2)
        await cluster.until(lambda: cluster[2].leads(1))
        cluster.controller.change(1, replicas=[2, 1], directories=[UNASSIGNED] * 2)
        await cluster.until(lambda: cluster.controller.partition(1).isr == (2, 1))
        cluster.controller.change(1, leader=1)
        assert (replicas.descriptions.gauges().partition_count, replicas.descriptions.gauges().leader_count) == (2, 2)
        at_once(applying)
        assert before.gone is not ErrorCode.NONE
        assert cluster[1].partition(1) is not before
        assert (replicas.descriptions.gauges().partition_count, replicas.descriptions.gauges().leader_count) == (2, 2)

    run(scenario)


def test_topic_configuration_changes_reach_hosted_partitions() -> None:
    """New values of min.insync.replicas and max.message.bytes take effect with the next request."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        cluster.controller.configure("max.message.bytes", "100")
        assert (await cluster.produce(1, "x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        cluster.controller.configure("max.message.bytes", None)
        assert (await cluster.produce(1, "x" * 200)).error_code == ErrorCode.NONE
        cluster.controller.change(isr=[1])
        cluster.controller.fence(2)
        cluster.controller.configure("min.insync.replicas", "2")
        assert (await cluster.produce(1, "x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    run(scenario)


@pytest.mark.parametrize("is_loaded_again", [False, True])
def test_a_topic_configuration_that_changes_while_the_log_is_being_opened_counts(is_loaded_again: bool) -> None:
    """The disk hangs while the log is being opened, and the configuration changes meanwhile. The opened log must have the
    new configuration."""

    async def scenario(cluster: Cluster) -> None:
        disk = cluster.world.disk(path(1, "a"))
        await cluster.start(1)
        if is_loaded_again:
            cluster.controller.create_topic([1])
            await cluster.started()
            disk.fail_next("append", errno.ENOMEM)
            assert (await cluster.produce(1, "short of memory")).error_code != ErrorCode.NONE
            await cluster.until(lambda: cluster[1].partition().log.is_closed)
            disk.hang()
        else:
            await create_on_a_hanging_disk(cluster)
        cluster.controller.configure("segment.bytes", "123456")
        await cluster.world.sleep(1)
        disk.thaw()
        if is_loaded_again:
            await cluster.world.event("log_reloaded")
        await cluster.started()
        partition = cluster[1].partition()
        assert (partition.config.segment_bytes, partition.log.config.segment_bytes) == (123456, 123456)

    run(scenario)


def test_a_replica_that_is_moved_to_other_brokers_is_deleted_here() -> None:
    """The metadata removes the broker from the replicas, so its log is deleted."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        cluster.controller.change(replicas=[1], isr=[1], directories=[UNASSIGNED])
        await cluster.world.sleep(1)
        assert cluster[2].replicas.hosted_directories() == {}
        assert [name.rpartition("-")[2] for name in top_folders(cluster, "a", 2)] == ["delete"]
        assert cluster[2].replicas.find(TopicIdPartition(TOPIC, 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await cluster.produce(1, "x")).error_code == ErrorCode.NONE

    run(scenario)
