"""A process runs out of file descriptors or memory while its disks are healthy: nothing is lost or stays broken.

Each segment holds a descriptor, so a broker with many partitions is likely to hit EMFILE before any other limit. Any
operation that opens a file may fail with EMFILE, and any that allocates memory may fail with ENOMEM.
"""

import errno
import traceback
from typing import Any

import pytest

from broker.controller_link.controller_channel import ControllerUnavailable
from common.ids import Offset, TopicId, TopicIdPartition, Uuid
from common.protocol.errors import ErrorCode
from common.storage.log import Log
from common.storage.names import CLEAN_SHUTDOWN_FILE
from tests.simulation.disk import SimulatedDisk
from tests.unit.broker.cluster import TOPIC, Cluster, path, run

OTHER = TopicId(Uuid(b"O" * 16))


def stored_offset(disk: SimulatedDisk, file: str) -> int:
    """Returns the offset of t-0 in the checkpoint file, 0 if it has no entry."""
    lines = disk.files().get(file, b"").decode().splitlines()[2:]
    return max([int(line.split()[2]) for line in lines if line.startswith("t 0 ")], default=0)


async def start_with_a_topic(cluster: Cluster, *broker_ids: int, **configs: str) -> None:
    """Starts the brokers and creates a topic with one partition on all of them, led by the first. Keys of `configs` have '_'
    for '.'."""
    for broker_id in broker_ids:
        await cluster.start(broker_id)
    cluster.controller.create_topic(broker_ids, configs={key.replace("_", "."): value for key, value in configs.items()})
    await cluster.started()


async def write(cluster: Cluster, broker_id: int, values: list[str]) -> None:
    """Produces the values one by one, and checks that each is acknowledged."""
    for value in values:
        assert (await cluster.produce(broker_id, value)).error_code == ErrorCode.NONE


# --- checkpoint files --------------------------------------------------------------------------------------------


def test_a_new_topic_of_the_name_does_not_inherit_a_log_start_when_its_creation_is_tried_again() -> None:
    """The creation of the new topic's log fails at first. If the old topic's log start stayed in the checkpoint file, the
    next start after a kill would drop the new topic's records."""

    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, segment_bytes="200", retention_bytes="200")
        await write(cluster, 1, [f"old-{number}" for number in range(30)])
        disk = cluster.world.disk(path(1, "a"))
        await cluster.until(lambda: stored_offset(disk, "log-start-offset-checkpoint") > 10)
        cluster.controller.remove_topic()
        await cluster.world.sleep(1)
        disk.fail_next("replace_file", errno.EMFILE)
        disk.fail_next("fsync_folders", errno.EMFILE)
        cluster.controller.create_topic([1], topic_id=OTHER)
        await cluster.started(0, OTHER)
        await write(cluster, 1, [f"new-{number}" for number in range(5)])
        cluster.crash(1)
        await cluster.start(1)
        await cluster.started(0, OTHER)
        assert await cluster.read_all(1, topic_id=OTHER) == [f"new-{number}" for number in range(5)]

    run(scenario, log_retention_check_interval_ms="1000", log_flush_start_offset_checkpoint_interval_ms="20000")


@pytest.mark.parametrize("times", [0, 1, 2])
def test_the_recovery_point_is_stored_before_a_cut_that_is_tried_again(times: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, 2, segment_bytes="200")
        await cluster.produce(1, "common")
        cluster.crash(1)
        cluster.controller.change(leader=2, isr=[2])
        await cluster.until(cluster[2].leads)
        await write(cluster, 2, [f"gone-{number}" for number in range(20)])
        disk = cluster.world.disk(path(2, "a"))
        await cluster.until(lambda: stored_offset(disk, "recovery-point-offset-checkpoint") > 10)
        await cluster.start(1)
        disk.fail_next("replace_file", errno.EMFILE, times=times)
        cluster.controller.change(leader=1, isr=[1])  # An unclean election.
        await cluster.until(lambda: cluster[2].follows() and cluster[2].partition().log.log_end_offset == 1)
        assert stored_offset(disk, "recovery-point-offset-checkpoint") <= cluster[2].partition().log.recovery_point

    run(
        scenario,
        log_flush_offset_checkpoint_interval_ms="1000",
        replica_high_watermark_checkpoint_interval_ms="1000000",
    )


async def start_with_a_raised_log_start(cluster: Cluster) -> SimulatedDisk:
    """Cuts broker 2, the leader, off from broker 1, which has the first record only, until retention has removed more than
    that. Returns the disk of broker 2, with its log start in the checkpoint."""
    await start_with_a_topic(cluster, 1, 2, segment_bytes="200", retention_bytes="400", retention_ms="-1")
    await cluster.produce(1, "first")
    cluster.world.network.cut("broker-1", "broker-2")
    cluster.controller.change(isr=[2], leader=2)
    for number in range(20):
        await cluster.produce(2, f"value-{number:03}")
    disk = cluster.world.disk(path(2, "a"))
    await cluster.until(lambda: stored_offset(disk, "log-start-offset-checkpoint") > 10, within_seconds=120)
    return disk


@pytest.mark.slow
def test_a_cut_below_the_log_start_lowers_its_checkpoint() -> None:
    """A follower truncates its log below the log start offset in the checkpoint. If the checkpoint kept that offset, the
    next start after a kill would empty the log, although the replica is in the ISR again."""

    async def scenario(cluster: Cluster) -> None:
        await start_with_a_raised_log_start(cluster)
        cluster.controller.change(isr=[1], leader=1)  # An unclean election.
        cluster.world.network.mend()
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        await write(cluster, 1, [f"acknowledged-{number}" for number in range(3)])
        cluster.crash(2)
        cluster.controller.change(isr=[1])
        await cluster.start(2)
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        cluster.controller.change(leader=2)
        await cluster.until(lambda: cluster[2].leads() and cluster[2].partition().high_watermark == 4)
        found: list[str] = []
        while len(found) < 3:
            found += await cluster.read_all(2, offset=1 + len(found))
        assert found == [f"acknowledged-{number}" for number in range(3)]

    run(scenario, log_retention_check_interval_ms="500")


@pytest.mark.slow
def test_a_kill_while_a_follower_starts_over_hides_no_record() -> None:
    """A follower whose log starts above the end of its new leader's begins again at 0, and is killed before it has stored
    its new log start a second time. With the old log start, the next start would take everything below it for deleted,
    and the replica would join the ISR without it."""

    async def scenario(cluster: Cluster) -> None:
        disk = await start_with_a_raised_log_start(cluster)
        old_start = stored_offset(disk, "log-start-offset-checkpoint")
        is_killed: list[bool] = []

        def kill(where: str, kind: str, name: str) -> None:
            logs = [each for each in disk.files() if each.startswith("t-0/") and each.endswith(".log")]
            if (where, kind, name) == (path(2, "a"), "fsync_dir", "t-0") and logs == [f"t-0/{0:020d}.log"] and not is_killed:
                is_killed.append(True)
                cluster.crash(2)

        cluster.world.operation_watchers.append(kill)
        cluster.controller.change(isr=[1], leader=1)  # An unclean election.
        cluster.world.network.mend()
        await cluster.until(lambda: is_killed)
        expected = [f"acknowledged-{number:02}" for number in range(old_start + 5)]
        await write(cluster, 1, expected)
        await cluster.start(2)
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        cluster.controller.change(leader=2)
        await cluster.until(cluster[2].leads)
        found: list[str] = []
        while len(found) < len(expected):
            found += await cluster.read_all(2, offset=1 + len(found))
        assert found == expected

    run(scenario, log_retention_check_interval_ms="500")


@pytest.mark.slow
def test_a_cut_that_could_not_begin_brings_no_deleted_record_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoints cannot be lowered for a cut, for lack of descriptors. Then the broker leads again, with all of its
    records, and those that an administrator has deleted are not among them."""

    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, 2)
        await write(cluster, 1, ["first"])
        cluster.world.network.cut("broker-1", "broker-2")
        cluster.controller.change(isr=[2], leader=2)
        await cluster.until(cluster[2].leads)
        await write(cluster, 2, [f"value-{number}" for number in range(9)])
        cluster[2].partition().raise_log_start(Offset(5))
        disk, lower_log_start = cluster.world.disk(path(2, "a")), Log.lower_log_start
        await cluster.until(lambda: stored_offset(disk, "log-start-offset-checkpoint") == 5)
        refused: list[bool] = []

        def lower_and_lead_again(log: Log, offset: Offset) -> None:
            lower_log_start(log, offset)
            refused.append(True)
            disk.fail_next("replace_file", errno.EMFILE)
            cluster.controller.change(isr=[2], leader=2)  # Another one.

        monkeypatch.setattr(Log, "lower_log_start", lower_and_lead_again)
        cluster.controller.change(isr=[1], leader=1)  # An unclean election.
        cluster.world.network.mend()
        await cluster.until(lambda: refused)
        await cluster.until(cluster[2].leads)
        assert cluster[2].partition().log.log_end_offset == 10
        assert cluster[2].partition().log.log_start_offset == 5
        assert stored_offset(disk, "log-start-offset-checkpoint") == 5

    run(scenario, log_flush_start_offset_checkpoint_interval_ms="500")


def test_a_log_that_has_failed_keeps_no_refused_requests_in_memory() -> None:
    """Each produce request is refused with the error of the failure. If the error kept where it was raised, it would keep
    the records of every refused request."""

    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, segment_bytes="200")
        await write(cluster, 1, ["x" * 100])
        cluster.world.disk(path(1, "a")).fail_with(errno.EMFILE, {"open"})
        await cluster.produce(1, "x" * 100)  # Rolls, and the new segment cannot be opened.
        await cluster.until(lambda: cluster[1].partition().log.failure is not None)
        depths: list[int] = []
        for _ in range(5):
            assert (await cluster.produce(1, "refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            depths.append(
                sum(1 for _ in traceback.walk_tb(getattr(cluster[1].partition().log.failure, "__traceback__", None)))
            )
        assert len(set(depths)) == 1

    run(scenario)


def raise_in_the_midst_of_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored before a cut may be raised again before the cut begins: the recovery point, by a roll that ends then.
    Here the log start is, which is not stored before at all."""
    monkeypatch.setattr(Log, "lower_log_start", lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["replace_file", "open"])
def test_no_record_is_appended_after_a_cut_before_the_checkpoints_are_lowered(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process runs out of descriptors after a follower has truncated its log, or in the midst of it. The log takes no
    record until the checkpoint of its start is lowered: the next start after a kill would drop all records."""

    async def scenario(cluster: Cluster) -> None:
        disk = await start_with_a_raised_log_start(cluster)
        raise_in_the_midst_of_a_cut(monkeypatch)
        log_starts: list[int] = []

        def look(where: str, kind: str, name: str) -> None:
            if where != path(2, "a") or not name.startswith("t-0/"):
                return
            if kind == "rename" and not fails:
                fails.append(True)
                disk.fail_next(operation, errno.EMFILE, times=3)
            if kind == "append":
                log_starts.append(stored_offset(disk, "log-start-offset-checkpoint"))

        fails: list[bool] = []
        cluster.world.operation_watchers.append(look)
        cluster.controller.change(isr=[1], leader=1)  # An unclean election.
        await write(cluster, 1, ["acknowledged"])
        cluster.world.network.mend()
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        assert fails and log_starts and set(log_starts) <= {0, 1}

    run(scenario, log_retention_check_interval_ms="500")


@pytest.mark.slow
def test_a_cut_that_waits_for_descriptors_does_not_hold_up_the_other_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has no descriptor for the checkpoints of a log that a follower has truncated. Meanwhile another partition
    of the same leader and the same directory is replicated, and the truncated one after that."""

    async def scenario(cluster: Cluster) -> None:
        disk = await start_with_a_raised_log_start(cluster)
        raise_in_the_midst_of_a_cut(monkeypatch)
        cluster.controller.create_topic([1, 2], name="other", topic_id=OTHER)

        def look(where: str, kind: str, name: str) -> None:
            if where == path(2, "a") and kind == "rename" and name.startswith("t-0/") and not fails:
                fails.append(True)
                disk.fail_with(errno.EMFILE, {"replace_file"})

        fails: list[bool] = []
        cluster.world.operation_watchers.append(look)
        cluster.controller.change(isr=[1], leader=1)  # An unclean election.
        cluster.world.network.mend()
        await cluster.until(lambda: fails)
        await cluster.world.sleep(2)
        assert cluster[2].partition().is_restructuring
        for number in range(3):
            answer = await cluster.produce(1, f"value-{number}", topic="other")
            assert answer.error_code == ErrorCode.NONE
        assert cluster[2].partition(topic_id=OTHER).log.written_offset == 3
        assert cluster[2].partition().is_restructuring
        disk.heal()
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))

    run(scenario, log_retention_check_interval_ms="500")


# --- logs that failed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_leader_whose_log_is_loaded_again_remembers_what_it_has_proposed(is_reloaded: bool) -> None:
    """The answer to a proposal is lost. The controller may have accepted it, so no record may be acknowledged without the
    proposed member, even if the log was loaded again meanwhile."""

    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, 2, 3)
        assert (await cluster.produce(1, "one")).error_code == ErrorCode.NONE
        cluster.controller.change(isr=[1, 2])
        answer = cluster.controller.send

        async def send_and_lose_the_answer(request: Any, **options: Any) -> Any:
            cluster[1].follow = lambda records, first_offset: None  # type: ignore[method-assign]
            await answer(request, **options)
            cluster.controller.is_reachable = False
            raise ControllerUnavailable("the answer is lost")

        cluster.controller.send = send_and_lose_the_answer  # type: ignore[method-assign]
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2, 3))
        for one, other in ((1, 3), (3, 1)):
            cluster.world.network.cut(f"broker-{one}", f"broker-{other}")
        await cluster.world.sleep(0.5)
        if is_reloaded:
            cluster.world.disk(path(1, "a")).fail_next("append", errno.ENOMEM)
            await cluster.produce(1, "short of memory", timeout_ms=100)
            await cluster.world.event("log_reloaded")
            await cluster.until(cluster[1].leads)
        assert (await cluster.produce(1, "two", timeout_ms=3000)).error_code == ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_what_a_failed_creation_has_left_is_not_removed_from_under_a_new_topic_of_the_name() -> None:
    """A creation fails, and its next attempt waits for the disk while the topic is removed and created again. Then the log
    of the new topic is created before the remains of the old one would be removed: from the same folder (seed 12933)."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        disk = cluster.world.disk(path(1, "a"))
        disk.fail_next("open", errno.EMFILE)
        cluster.controller.create_topic([1])
        await cluster.until(lambda: not cluster[1].replicas.is_being_created(TopicIdPartition(TOPIC, 0)))
        disk.hang()
        cluster.controller.create_topic([1], name="u", topic_id=TopicId(Uuid(b"U" * 16)))
        await cluster.until(lambda: cluster[1].replicas.is_being_created(TopicIdPartition(TOPIC, 0)))
        cluster.controller.remove_topic()
        cluster.controller.create_topic([1], topic_id=OTHER)
        disk.thaw()
        await cluster.started(topic_id=OTHER)
        await cluster.world.sleep(2)
        assert "t-0" in disk.folders()
        assert cluster[1].partition(topic_id=OTHER).log.name == "t-0"

    run(scenario)


def test_no_marker_of_an_orderly_end_while_a_log_is_to_be_loaded_again() -> None:
    """The records of a log that waits to be loaded again were never synced. Without a marker of an orderly shutdown, the
    next start recovers the log."""

    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1)
        disk = cluster.world.disk(path(1, "a"))
        await write(cluster, 1, [f"v{number}" for number in range(5)])
        disk.fail_next("append", errno.ENOMEM)
        disk.fail_with(errno.EMFILE, {"open"})
        assert (await cluster.produce(1, "x")).error_code != ErrorCode.NONE
        await cluster.until(lambda: cluster[1].partition().log.is_closed)
        await cluster.stop(1)
        assert CLEAN_SHUTDOWN_FILE not in disk.files()
        disk.heal()
        await cluster.start(1)
        await cluster.started()
        assert cluster[1].partition().log.recovery_point == 0
        assert await cluster.read_all(1) == [f"v{number}" for number in range(5)]

    run(scenario)


def test_a_log_that_fails_behind_its_last_append_is_loaded_again() -> None:
    """A write that follows the last append fails, so the log is broken. It must be loaded again without another append:
    consumers want to read it, and there may never be an append that would notice the failure."""

    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, segment_bytes="200")
        cluster.world.disk(path(1, "a")).fail_next("replace_file", errno.EMFILE)  # The rolled segment's index.
        await write(cluster, 1, [f"value-{number}" for number in range(3)])
        await cluster.world.event("log_reloaded")
        assert (await cluster.fetch(1)).error_code == ErrorCode.NONE

    run(scenario)


def test_a_log_that_fails_before_its_partition_has_it_is_loaded_again() -> None:
    """After a kill, the leader epochs of the batches are stored as soon as a log is loaded. That write fails while other
    logs of the directory are still being loaded."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic(*([[1]] * 4))
        for index in range(4):
            await cluster.started(index)
        await write(cluster, 1, ["before"])
        cluster.crash(1)
        cluster.world.disk(path(1, "a")).fail_next("replace_file", errno.EMFILE)
        await cluster.start(1)
        await cluster.started()
        assert cluster[1].partition().log.failure is not None
        await cluster.world.event("log_reloaded")
        await write(cluster, 1, ["after"])
        assert await cluster.read_all(1) == ["before", "after"]

    run(scenario)


def test_a_follower_whose_log_failed_behind_its_last_append_is_cut_all_the_same() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, 2, segment_bytes="200")
        await cluster.produce(1, "common")
        cluster.crash(1)
        cluster.controller.change(leader=2, isr=[2])
        await cluster.until(cluster[2].leads)
        cluster.world.disk(path(2, "a")).fail_next("replace_file", errno.EMFILE)
        for number in range(3):
            await cluster.produce(2, f"gone-{number}")
        await cluster.start(1)
        cluster.controller.change(leader=1, isr=[1])
        await cluster.started()
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2), within_seconds=60)

    run(scenario, replica_high_watermark_checkpoint_interval_ms="1000000")


def test_a_log_is_loaded_again_when_its_own_deletions_have_ended() -> None:
    """The log fails while its deletions are running. If it were loaded again before they have ended, a file could be renamed
    under the load, and the resulting ENOENT would take the directory offline."""

    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, segment_bytes="100")
        await write(cluster, 1, [f"value-{number}" for number in range(60)])
        disk = cluster.world.disk(path(1, "a"))
        disk.slow_down(40)
        cluster.controller.configure("retention.bytes", "100")
        await cluster.until(lambda: any(name.endswith(".deleted") for name in disk.files()))
        disk.fail_next("append", errno.ENOMEM)
        await cluster.produce(1, "fails")
        await cluster.world.event("log_reloaded", within_seconds=60)
        assert not cluster[1].directories.any_offline

    run(scenario, log_retention_check_interval_ms="1000", diskraft_log_dir_operation_timeout_ms="60000")


def test_a_leader_that_lost_records_between_two_loads_does_not_go_on_leading() -> None:
    """When the log is loaded again, it has fewer records than before. If the broker kept the leadership, the followers would
    truncate records that only this disk has lost."""

    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, 2)
        await write(cluster, 1, [f"v{number}" for number in range(5)])
        await cluster[1].partition().log.flush()
        disk = cluster.world.disk(path(1, "a"))
        disk.fail_next("append", errno.ENOMEM)
        await cluster.produce(1, "fails")
        disk.corrupt("t-0/00000000000000000000.log", 100)
        await cluster.until(lambda: cluster[1].directories.any_offline)
        assert cluster[2].partition().log.log_end_offset == 5

    run(scenario)


# --- folders -----------------------------------------------------------------------------------------------------


def test_a_creation_that_is_tried_again_and_again_leaves_nothing_behind() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        disk = cluster.world.disk(path(1, "a"))
        disk.fail_with(errno.EMFILE, {"fsync_folders"})
        cluster.controller.create_topic([1])
        await cluster.world.sleep(60)
        disk.heal()
        await cluster.started()
        assert disk.folders() == ["t-0"]

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["open", "fsync_dir"])
def test_a_log_that_failed_is_deleted_with_its_topic(operation: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, segment_bytes="200")
        disk = cluster.world.disk(path(1, "a"))
        disk.fail_with(errno.EMFILE, {"open"})
        while (await cluster.produce(1, "x")).error_code == ErrorCode.NONE:
            pass
        disk.fail_with(errno.EMFILE, {operation})
        cluster.controller.remove_topic()
        cluster.controller.create_topic([1], topic_id=OTHER)
        await cluster.world.sleep(5)
        disk.heal()
        await cluster.started(0, OTHER)
        await cluster.until(lambda: disk.folders() == ["t-0"], within_seconds=200)
        assert not cluster[1].directories.any_offline

    run(scenario)


@pytest.mark.slow
def test_a_deleted_folder_goes_although_files_were_short_for_a_moment() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_with_a_topic(cluster, 1, file_delete_delay_ms="1000")
        disk = cluster.world.disk(path(1, "a"))
        cluster.controller.remove_topic()
        await cluster.world.sleep(0.5)
        disk.fail_next("list", errno.EMFILE)
        await cluster.until(lambda: disk.folders() == [], within_seconds=200)

    run(scenario)


@pytest.mark.parametrize("operation", ["create_folders", "open", "fsync_folders"])
def test_a_creation_that_is_tried_again_stays_in_its_directory(operation: str) -> None:
    """If the next attempt used another directory, the files of the first attempt would count as a second log of the replica
    at the next start."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        disks = [cluster.world.disk(path(1, letter)) for letter in "ab"]
        disks[0].fail_next(operation, errno.EMFILE, times=3)
        # Placement alone would choose the other directory for the second attempt.
        cluster.controller.create_topic([1], [1], [1])
        for index in range(3):
            await cluster.started(index)
        await cluster.world.sleep(5)
        assert sorted(disks[0].folders() + disks[1].folders()) == ["t-0", "t-1", "t-2"]

    run(scenario)


def test_a_creation_that_nobody_wants_any_more_leaves_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        disk = cluster.world.disk(path(1, "a"))
        disk.fail_with(errno.EMFILE, {"fsync_folders"})
        cluster.controller.create_topic([1])
        await cluster.until(lambda: disk.folders() == ["t-0"])
        await cluster.world.sleep(0.5)
        cluster.controller.remove_topic()
        await cluster.until(lambda: disk.folders() == [])
        disk.heal()
        assert not cluster[1].directories.any_offline

    run(scenario)


@pytest.mark.parametrize("is_created_again", [False, True])
@pytest.mark.parametrize("operation", ["list", "remove"])
def test_what_an_unwanted_creation_has_left_goes_although_files_are_short(operation: str, is_created_again: bool) -> None:
    """If a topic of the same name comes meanwhile, its log is created only after the folder has gone."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        disk = cluster.world.disk(path(1, "a"))
        disk.fail_with(errno.EMFILE, {"fsync_folders", operation})
        cluster.controller.create_topic([1])
        await cluster.until(lambda: disk.folders() == ["t-0"])
        cluster.controller.remove_topic()
        if is_created_again:
            cluster.controller.create_topic([1], topic_id=OTHER)
        await cluster.world.sleep(5)
        assert disk.folders() == ["t-0"]
        disk.heal()
        if is_created_again:
            await cluster.started(0, OTHER)
            await cluster.world.sleep(5)
            assert disk.folders() == ["t-0"]
        else:
            await cluster.until(lambda: disk.folders() == [])

    run(scenario)


def test_a_start_removes_what_an_unfinished_creation_has_left() -> None:
    """A folder without partition.metadata and without records is removed. If it has records, it is renamed to -stray and
    kept."""

    async def scenario(cluster: Cluster) -> None:
        disk = cluster.world.disk(path(1, "a"))
        disk.write("t-0/00000000000000000000.log", b"")
        disk.write("u-0/00000000000000000000.log", b"records of somebody")
        await cluster.start(1)
        await cluster.until(lambda: all("u-0." in folder and folder.endswith("-stray") for folder in disk.folders()))

    run(scenario)
