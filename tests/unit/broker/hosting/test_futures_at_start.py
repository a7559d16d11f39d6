"""What a starting broker does with a move that a crash interrupted, depending on which disks are online and what they hold.

Broker 1 has disks a and b. A move from a to b was in progress, so the future log is on b."""

import asyncio
import errno
import random
from collections.abc import Sequence

import pytest

from broker.hosting.directory_logs import DirectoryContent
from broker.hosting.hosted import HostedDirectory
from broker.hosting.partition import Partition
from broker.hosting.replica_loading import ReplicaLoading, ReplicasNotLoaded
from common.environment.interface import LogDir, LogDirError
from common.ids import LeaderEpoch, Offset, TopicId, TopicIdPartition, Uuid, uuid_text
from common.metadata.directory_ids import LOST
from common.records.batch import split_batches
from common.records.metadata_records import FeatureLevelRecord
from common.records.record import Record, encode_batch
from common.storage.append_pipeline import AwaitedAppend
from common.storage.checkpoints import store_offset_checkpoint
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.names import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT_FILE
from common.storage.read_limits import ReadLimits
from tests.simulation.environment import SimulatedEnvironment
from tests.unit.broker.cluster import TOPIC, Cluster, directory, path, run, values

OTHER = TopicId(Uuid(b"O" * 16))
KEY = TopicIdPartition(TOPIC, 0)
HEX = "ab" * 16
FUTURE = f"t-0.{HEX}-future"
DELETED = f"t-0.{HEX}-delete"
DELETED_BY_ANOTHER_MOVE = f"t-0.{'cd' * 16}-delete"
SEGMENT = "00000000000000000000.log"
DELETE_DELAY_MS = "5000"
# The segments are small, so that the copy and its promotion involve several files.
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)


def partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def record_batches(records: int) -> bytes:
    """Returns one batch for each record. The value of a record is its offset."""
    return b"".join(
        encode_batch([Record(None, str(offset).encode(), 1000 + offset)], base_offset=offset, leader_epoch=0)
        for offset in range(records)
    )


def put_log(cluster: Cluster, letter: str, folder: str, records: int, topic_id: TopicId = TOPIC) -> None:
    disk = cluster.world.disk(path(1, letter))
    disk.write(f"{folder}/partition.metadata", partition_metadata(topic_id))
    disk.write(f"{folder}/{SEGMENT}", record_batches(records))


def folders(cluster: Cluster, letter: str) -> list[str]:
    return [name for name in cluster.world.disk(path(1, letter)).folders() if "/" not in name]


def events(cluster: Cluster) -> list[str]:
    """Returns the names of the events about future logs so far, in order."""
    return [each.name for each in cluster.world.events if each.name.startswith("future_replica_")]


def create_topic(cluster: Cluster, *, names: str, in_isr: bool) -> None:
    """Creates the topic. Broker 1 has a replica in directory `names`, and is the leader or is outside the ISR."""
    # From this metadata.version on, the swap waits until the metadata names the copy's directory.
    cluster.controller.commit(FeatureLevelRecord(name="metadata.version", feature_level=21))
    cluster.controller.create_topic([1, 2])
    places = [directory(1, names), directory(2, "a")]
    if in_isr:
        cluster.controller.change(directories=places)
    else:
        cluster.controller.change(isr=[2], leader=2, directories=places)


# --- every situation -----------------------------------------------------------------------------------------------

SOURCES = ("current", "deleted", "deleted by another move", "nothing", "gone")


@pytest.mark.parametrize("names", ["a", "b"])
@pytest.mark.parametrize("in_isr", [True, False])
@pytest.mark.parametrize("source", SOURCES)
def test_a_future_log_at_the_start(source: str, in_isr: bool, names: str) -> None:
    """The outcome depends on what disk a holds and on the ISR. It does not depend on which directory the metadata names."""

    async def scenario(cluster: Cluster) -> None:
        on_a = {"current": "t-0", "deleted": DELETED, "deleted by another move": DELETED_BY_ANOTHER_MOVE, "gone": "t-0"}
        if source in on_a:
            put_log(cluster, "a", on_a[source], 5)
        if source == "gone":
            cluster.world.disk(path(1, "a")).fail_with(errno.EIO)
        put_log(cluster, "b", FUTURE, 3)
        create_topic(cluster, names=names, in_isr=in_isr)
        await cluster.start(1, "ab")
        is_promoted = source == "deleted" or (source in ("deleted by another move", "nothing") and not in_isr)
        await cluster.world.sleep(6)
        hosted = cluster[1].replicas.hosted_directories().get(KEY)
        if source == "current":
            assert events(cluster) == ["future_replica_resumed"]
            assert hosted == directory(1, "a")
            partition = cluster[1].partition()
            assert partition.future is not None
            assert (partition.future.directory_id, partition.future.log.name) == (directory(1, "b"), FUTURE)
            # The copy resumed after its three records and caught up.
            assert (partition.log.log_end_offset, partition.future.log.log_end_offset) == (5, 5)
            assert (folders(cluster, "a"), folders(cluster, "b")) == (["t-0"], [FUTURE])
        elif is_promoted:
            assert events(cluster) == ["future_replica_promoted"]
            assert hosted == directory(1, "b")
            assert cluster[1].partition().future is None
            assert cluster[1].partition().log.name == "t-0"
            # The -delete folder is gone, since file.delete.delay.ms has passed.
            assert (folders(cluster, "a"), folders(cluster, "b")) == ([], ["t-0"])
        else:
            assert events(cluster) == ["future_replica_left_alone"]
            assert hosted is None
            assert folders(cluster, "a") == ([on_a[source]] if source in on_a else [])
            assert folders(cluster, "b") == [FUTURE]
            withheld = [each.fields["folder"] for each in cluster.world.events_named("log_deletion_withheld")]
            assert withheld == ([DELETED_BY_ANOTHER_MOVE] if source == "deleted by another move" else [])
            is_known_offline = source == "gone" and names == "a"
            assert cluster[1].replicas.wished_assignments() == ({} if is_known_offline else {KEY: LOST})

    run(scenario, log_segment_delete_delay_ms=DELETE_DELAY_MS)


@pytest.mark.parametrize("failing", ["a", "b"])
def test_a_disk_fails_after_its_logs_are_loaded_and_before_the_move_goes_on(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the target, the replica is no longer moving: nothing else would ever end that, and keep it from compaction. With
    the source, the copy is closed cleanly when the broker ends, since the target gets a clean-shutdown marker."""
    load = ReplicaLoading.load
    copies: list[Log] = []

    async def load_and_fail(loading: ReplicaLoading) -> list[tuple[HostedDirectory, DirectoryContent]]:
        found = await load(loading)
        copies.extend(each.future.log for _, content in found for each in content.logs if each.future is not None)
        [failed] = [each.log_dir for each, _ in found if each.log_dir.path == path(1, failing)]
        assert failed.on_error is not None
        failed.on_error(LogDirError(failed.path, "append", errno.EIO))
        return found

    async def scenario(cluster: Cluster) -> None:
        monkeypatch.setattr(ReplicaLoading, "load", load_and_fail)
        put_log(cluster, "a", "t-0", 5)
        put_log(cluster, "b", FUTURE, 3)
        create_topic(cluster, names="a", in_isr=True)
        await cluster.start(1, "ab")
        await cluster.world.sleep(1)
        if failing == "b":
            assert cluster[1].partition().future is None
        await cluster.stop(1)
        assert copies[0].is_closed is (failing == "a")
        assert (CLEAN_SHUTDOWN_FILE in cluster.world.disk(path(1, "b")).files()) is (failing == "a")

    run(scenario)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_resumed_move_finds_what_its_interrupted_swap_has_left(is_known: bool) -> None:
    """A crash between the renames of a swap has left a -delete folder. Then the replica got a new log beside it, while the
    disk with the copy was away. The move goes on and ends, although that folder still has its name. Known or not, the folder
    is kept until its time."""

    async def scenario(cluster: Cluster) -> None:
        put_log(cluster, "a", DELETED, 3)
        if not is_known:
            cluster.world.disk(path(1, "a")).write(f"{DELETED}/partition.metadata", b"no topic id")
        put_log(cluster, "a", "t-0", 5)
        put_log(cluster, "b", FUTURE, 3)
        create_topic(cluster, names="a", in_isr=True)
        await cluster.start(1, "ab")
        await cluster.until(lambda: cluster[1].replicas.wished_assignments().get(KEY) == directory(1, "b"))
        cluster.controller.change(directories=[directory(1, "b"), directory(2, "a")])
        await cluster.until(lambda: cluster[1].replicas.hosted_directories().get(KEY) == directory(1, "b"))
        assert cluster[1].partition().log.log_end_offset == 5
        assert folders(cluster, "b") == ["t-0"]
        assert DELETED in folders(cluster, "a")
        await cluster.until(lambda: folders(cluster, "a") == [], within_seconds=200)
        assert not cluster[1].directories.any_offline

    run(scenario, log_segment_delete_delay_ms=DELETE_DELAY_MS)


@pytest.mark.parametrize("in_isr", [True, False])
def test_future_logs_of_no_use(in_isr: bool) -> None:
    """Three future logs become strays: one has another topic's id, one belongs to a partition that has no replica here, and
    one has data but no topic id. A fourth one is empty because its creation was interrupted, so it is removed."""

    async def scenario(cluster: Cluster) -> None:
        put_log(cluster, "a", "t-0", 5)
        put_log(cluster, "b", FUTURE, 5, OTHER)
        put_log(cluster, "b", f"t-7.{HEX}-future", 5)
        disk = cluster.world.disk(path(1, "b"))
        disk.write(f"t-0.{'01' * 16}-future/{SEGMENT}", record_batches(1))
        disk.write(f"t-0.{'02' * 16}-future/{SEGMENT}", b"")
        create_topic(cluster, names="a", in_isr=in_isr)
        await cluster.start(1, "ab")
        assert events(cluster) == []
        assert cluster[1].partition().future is None
        assert sorted(name.partition(".")[0] + name[-6:] for name in folders(cluster, "b")) == [
            "t-0-stray",
            "t-0-stray",
            "t-7-stray",
        ]

    run(scenario)


@pytest.mark.parametrize(
    ("futures", "kept"),
    [
        ([("b", "01", 3), ("c", "02", 4)], ("c", "02")),
        ([("b", "01", 4), ("c", "02", 3)], ("b", "01")),
        ([("b", "01", 3), ("b", "02", 4)], ("b", "02")),
        ([("a", "01", 5), ("b", "02", 3)], ("b", "02")),
        ([("a", "01", 5)], None),
    ],
)
def test_several_future_logs_beside_a_current_one(
    futures: Sequence[tuple[str, str, int]], kept: tuple[str, str] | None
) -> None:
    """The longest future log outside the current log's directory is resumed. The others become strays."""

    async def scenario(cluster: Cluster) -> None:
        put_log(cluster, "a", "t-0", 5)
        for letter, unique, records in futures:
            put_log(cluster, letter, f"t-0.{unique * 16}-future", records)
        create_topic(cluster, names="a", in_isr=True)
        await cluster.start(1, "abc")
        future = cluster[1].partition().future
        if kept is None:
            assert future is None
        else:
            assert future is not None
            assert (future.directory_id, future.log.name) == (directory(1, kept[0]), f"t-0.{kept[1] * 16}-future")
        left = [name for letter in "abc" for name in folders(cluster, letter)]
        assert sum(name.endswith("-future") for name in left) == (kept is not None)
        assert sum(name.endswith("-stray") for name in left) == len(futures) - (kept is not None)

    run(scenario)


# --- promotion -----------------------------------------------------------------------------------------------------


def test_a_promoted_log_gets_the_checkpoints_of_the_old_one() -> None:
    """The entries for disk a belong to the old log. The entries for disk b come from an earlier log of the same name. Their
    recovery point is too high: recovery would trust records above the end of the promoted log without checking them."""

    async def scenario(cluster: Cluster) -> None:
        put_log(cluster, "a", DELETED, 5)
        put_log(cluster, "b", FUTURE, 5)
        for letter, recovery_point, log_start, high_watermark in (("a", 5, 2, 4), ("b", 100, 1, 50)):
            disk = cluster.world.disk(path(1, letter))
            for kind, offset in (
                ("recovery-point-offset", recovery_point),
                ("log-start-offset", log_start),
                ("replication-offset", high_watermark),
            ):
                disk.write(f"{kind}-checkpoint", f"0\n2\nt 0 {offset}\nt 1 7\n".encode())
        create_topic(cluster, names="b", in_isr=False)
        await cluster.start(1, "ab")
        partition = cluster[1].partition()
        assert partition.log.log_start_offset == 2
        assert partition.high_watermark == 4
        assert partition.log.recovery_point == 5
        stored = cluster.world.disk(path(1, "b")).durable_files()
        # The segment that takes appends is validated from its start.
        assert b"\nt 0 0\n" in stored["recovery-point-offset-checkpoint"]
        assert b"\nt 0 2\n" in stored["log-start-offset-checkpoint"]
        assert b"\nt 0 4\n" in stored["replication-offset-checkpoint"]

    run(scenario)


def test_the_old_log_does_not_come_back_after_a_promotion() -> None:
    """The crash came before the name of the -delete folder was durable. The start makes it durable: otherwise a power cut
    later would leave two current logs."""

    async def scenario(cluster: Cluster) -> None:
        put_log(cluster, "a", "t-0", 5)
        source = cluster.world.disk(path(1, "a")).store
        source.rename("t-0", DELETED)
        put_log(cluster, "b", FUTURE, 5)
        create_topic(cluster, names="b", in_isr=True)
        await cluster.start(1, "ab")
        await cluster.world.event("future_replica_promoted")
        assert {name for name, _ in source.walk(durable=True) if name in ("t-0", DELETED)} == {DELETED}

    run(scenario)


def test_a_disk_that_fails_at_the_promotion_goes_offline() -> None:
    """The replica is reported as offline. The -delete folder is kept until the disk is back."""

    async def scenario(cluster: Cluster) -> None:
        put_log(cluster, "a", DELETED, 5)
        put_log(cluster, "b", FUTURE, 5)
        create_topic(cluster, names="b", in_isr=True)
        cluster.world.disk(path(1, "b")).fail_next("rename", errno.EIO)
        await cluster.start(1, "ab")
        assert list(cluster[1].directories.online) == [directory(1, "a")]
        assert cluster[1].replicas.hosted_directories() == {}
        await cluster.world.sleep(6)
        assert (folders(cluster, "a"), folders(cluster, "b")) == ([DELETED], [FUTURE])
        cluster.crash(1)
        await cluster.start(1, "ab")
        await cluster.started()
        assert cluster[1].replicas.hosted_directories() == {KEY: directory(1, "b")}

    run(scenario, log_segment_delete_delay_ms=DELETE_DELAY_MS)


def test_a_promotion_that_the_process_cannot_perform_ends_the_start() -> None:
    async def scenario(cluster: Cluster) -> None:
        put_log(cluster, "a", DELETED, 5)
        put_log(cluster, "b", FUTURE, 5)
        create_topic(cluster, names="b", in_isr=True)
        cluster.world.disk(path(1, "b")).fail_next("rename", errno.ENOMEM)
        with pytest.raises(BaseExceptionGroup) as raised:
            await cluster.run_until_it_ends(1, "ab")
        [error] = raised.value.exceptions
        assert isinstance(error, ReplicasNotLoaded)
        assert path(1, "b") in str(error)

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_a_promotion_survives_power_cuts(seed: int) -> None:
    """Three times in a row, the power fails at a random moment of the start that promotes the log. The next start finds
    every record."""

    async def scenario(cluster: Cluster) -> None:
        rng = random.Random(seed)
        put_log(cluster, "a", DELETED, 5)
        put_log(cluster, "b", FUTURE, 5)
        create_topic(cluster, names="b", in_isr=True)
        for _ in range(3):
            starting = asyncio.ensure_future(cluster.start(1, "ab"))
            await cluster.world.sleep(rng.random() * 0.014)
            cluster.world.power_cut("broker-1")
            starting.cancel()
            cluster.brokers.clear()
        await cluster.start(1, "ab")
        await assert_one_complete_log(cluster, 5)

    run(scenario, seed=seed, log_segment_delete_delay_ms=DELETE_DELAY_MS)


# --- the end of a move ---------------------------------------------------------------------------------------------


async def swap(env: SimulatedEnvironment, begun: asyncio.Event) -> None:
    """Performs the operations that a finished move performs on the disks. Sets `begun` when the copy is complete but not yet
    synced."""
    a, b = [env.log_dir(path(1, letter), operation_timeout_ns=10**10) for letter in "ab"]
    await a.attach()
    await b.attach()
    current = await filled_log(a, 20)
    future = await Log.create(b, FUTURE, CONFIG, TOPIC)
    while data := await current.read_bytes(future.log_end_offset, ReadLimits(max_bytes=200)):
        await append(future, data)
    begun.set()
    await future.take_over(current)
    await store_offset_checkpoint(b, RECOVERY_POINT_CHECKPOINT_FILE, {("t", 0): future.recovery_point})
    await current.rename(DELETED)
    await future.rename("t-0")


async def filled_log(log_dir: LogDir, records: int) -> Log:
    log = await Log.create(log_dir, "t-0", CONFIG, TOPIC)
    await append(log, record_batches(records))
    log.begin_epoch(LeaderEpoch(1))
    await log.flush()
    return log


async def append(log: Log, data: bytes) -> None:
    ended = AwaitedAppend()
    view = memoryview(bytearray(data))
    log.append_as_follower(split_batches(view), view, on_written=ended.written, on_failed=ended.failed)
    await ended.ended


async def assert_one_complete_log(cluster: Cluster, records: int) -> None:
    """Checks that broker 1 leads, has every record and accepts one more. Also checks that once the old log is deleted, the
    replica has no other log besides a future log in use."""
    await cluster.until(cluster[1].leads)
    assert (await cluster.produce(1, "more", acks=1)).error_code == 0
    read: list[str] = []
    partition = cluster[1].partition()
    assert partition.log.log_end_offset == records + 1
    while data := await partition.log.read_bytes(Offset(len(read)), ReadLimits(max_bytes=1000)):
        read += values(data)
    assert read == [*(str(offset) for offset in range(records)), "more"]
    await cluster.world.sleep(6)
    left = [name for letter in "ab" for name in folders(cluster, letter)]
    future = [] if partition.future is None else [partition.future.log.name]
    assert sorted(left) == sorted(["t-0", *future])


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["", "a", "b"])
@pytest.mark.parametrize("end", ["kill", "power cut"])
@pytest.mark.parametrize("seed", range(20))
def test_a_crash_at_any_moment_of_the_swap(seed: int, end: str, gone: str) -> None:
    """After the crash, a disk may be missing during one run of the broker. Once both disks are there, exactly one log is
    current and has every record, without manual intervention."""

    async def scenario(cluster: Cluster) -> None:
        begun = asyncio.Event()
        for letter in "ab":
            cluster.world.disk(path(1, letter))
        cluster.world.start("broker-1", lambda env: swap(env, begun))
        await begun.wait()
        await cluster.world.sleep(random.Random(seed).random() * 0.010)
        (cluster.world.crash if end == "kill" else cluster.world.power_cut)("broker-1")
        create_topic(cluster, names="b", in_isr=True)
        if gone:
            disk = cluster.world.disk(path(1, gone))
            disk.fail_with(errno.EIO)
            await cluster.start(1, "ab")
            await cluster.world.sleep(6)
            found = cluster[1].replicas.find(TopicIdPartition(TOPIC, 0))
            assert not isinstance(found, Partition) or found.log.log_end_offset == 20
            await cluster.stop(1)
            disk.heal()
        await cluster.start(1, "ab")
        await assert_one_complete_log(cluster, 20)

    run(scenario, seed=seed, log_segment_delete_delay_ms=DELETE_DELAY_MS)


# --- clean shutdown ------------------------------------------------------------------------------------------------


def test_an_orderly_end_vouches_for_the_future_log_too() -> None:
    """A clean shutdown covers the future log too, so the next start loads both logs without reading all their records."""

    async def scenario(cluster: Cluster) -> None:
        put_log(cluster, "a", "t-0", 5)
        put_log(cluster, "b", FUTURE, 3)
        create_topic(cluster, names="a", in_isr=True)
        await cluster.start(1, "ab")
        future = cluster[1].partition().future
        assert future is not None
        assert future.log.recovery.validated_segments == 1
        await append(future.log, record_batches(5)[len(record_batches(3)) :])
        await cluster.stop(1)
        cluster.world.power_cut("broker-1")
        for letter in "ab":
            assert CLEAN_SHUTDOWN_FILE in cluster.world.disk(path(1, letter)).files()
        await cluster.start(1, "ab")
        future = cluster[1].partition().future
        assert future is not None
        assert (future.log.recovery.validated_segments, future.log.log_end_offset) == (0, 5)
        assert future.log.recovery_point == 5

    run(scenario)


def test_a_future_log_that_cannot_be_closed_leaves_no_marker() -> None:
    async def scenario(cluster: Cluster) -> None:
        put_log(cluster, "a", "t-0", 5)
        put_log(cluster, "b", FUTURE, 3)
        create_topic(cluster, names="a", in_isr=True)
        await cluster.start(1, "ab")
        future = cluster[1].partition().future
        assert future is not None
        await append(future.log, record_batches(5)[len(record_batches(3)) :])
        cluster.world.disk(path(1, "b")).fail_next("fsync", errno.ENOMEM)
        await cluster.stop(1)
        assert CLEAN_SHUTDOWN_FILE in cluster.world.disk(path(1, "a")).files()
        assert CLEAN_SHUTDOWN_FILE not in cluster.world.disk(path(1, "b")).files()

    run(scenario)


def test_a_future_log_that_is_left_alone_is_recovered_before_a_marker_vouches_for_it() -> None:
    """The future log's last batch is torn. The first start leaves the log alone and ends with a clean shutdown. The second
    start trusts the clean-shutdown marker, so it would serve the torn batch if the first start had not cut it off."""

    async def scenario(cluster: Cluster) -> None:
        put_log(cluster, "b", FUTURE, 3)
        disk = cluster.world.disk(path(1, "b"))
        disk.write(f"{FUTURE}/{SEGMENT}", record_batches(3)[:-5])
        create_topic(cluster, names="b", in_isr=True)
        await cluster.start(1, "ab")
        assert events(cluster) == ["future_replica_left_alone"]
        await cluster.stop(1)
        assert CLEAN_SHUTDOWN_FILE in disk.files()
        assert disk.files()[f"{FUTURE}/{SEGMENT}"] == record_batches(2)
        # This file shows that the log was closed: only closing a log writes the index files of its last segment.
        assert f"{FUTURE}/00000000000000000000.index" in disk.files()
        put_log(cluster, "a", DELETED, 3)
        await cluster.start(1, "ab")
        assert cluster[1].partition().log.log_end_offset == 2

    run(scenario)
