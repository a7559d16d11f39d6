"""The shell of the group coordinator on simulated brokers: loading, answering after replication, and giving up.

The shard is a small one of the tests (`WrittenShard`), so nothing here depends on the decisions about groups. The tests
write the metadata.
"""

import asyncio
import errno
from typing import Any

import pytest

from broker.coordinator import log_replay
from broker.coordinator.coordinator_partition import CoordinatorPartition
from broker.coordinator.core.group_partition import group_partition
from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.result import CoordinatorRecord, Step
from broker.coordinator.group_metrics import group_samples
from common.environment.interface import LogDirError
from common.ids import NO_LEADER, TopicId, Uuid
from common.metadata.directory_ids import UNASSIGNED
from common.protocol.errors import ErrorCode
from common.protocol.messages.heartbeat import HeartbeatRequest
from common.protocol.messages.join_group import JoinGroupRequest
from common.protocol.messages.list_groups import ListGroupsRequest
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from common.protocol.messages.sync_group import SyncGroupRequest
from common.records.batch import read_header
from common.records.metadata_records import FeatureLevelRecord, PartitionRecord
from common.records.record import Record, encode_batch
from common.slices import ITEMS_PER_SLICE
from common.time_units import NS_PER_S
from tests.unit.broker.cluster import Cluster, directory, path, run
from tests.unit.broker.coordinator.written_shard import SESSION_NS, WrittenShard

OFFSETS = TopicId(Uuid(b"O" * 16))
NAME = "__consumer_offsets"


async def start(cluster: Cluster, *partitions: list[int], letters: str = "a", **configs: str) -> list[WrittenShard]:
    """Starts the brokers of these partitions of __consumer_offsets. Returns the list to which each new shard is added."""
    shards: list[WrittenShard] = []

    def new_shard() -> WrittenShard:
        shards.append(WrittenShard())
        return shards[-1]

    cluster.new_shard = new_shard
    for broker_id in sorted({each for replicas in partitions for each in replicas}):
        await cluster.start(broker_id, letters)
    cluster.controller.create_topic([partitions[0][0]])
    await cluster.started()
    configs = {key.replace("_", "."): value for key, value in configs.items()}
    cluster.controller.create_topic(*partitions, name=NAME, topic_id=OFFSETS, configs=configs)
    for index, replicas in enumerate(partitions):
        await cluster.started(index, OFFSETS)
        await until_loaded(cluster, replicas[0], index)
    return shards


def coordinated(cluster: Cluster, broker_id: int) -> dict[int, CoordinatorPartition[GroupShard]]:
    return {each.partition.index: each for each in cluster[broker_id].groups.loaded_and_loading()}


async def until_loaded(cluster: Cluster, broker_id: int, index: int = 0) -> None:
    await cluster.until(lambda: index in (found := coordinated(cluster, broker_id)) and found[index].is_loaded)


async def commit(cluster: Cluster, broker_id: int, offset: int, *, group: str = "g", metadata: str = "") -> ErrorCode:
    """Commits an offset, and returns the error of the partition; NONE if the answer has none."""
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
                ],
            )
        ],
    )
    response = await cluster.request(broker_id, request, version=9)
    return ErrorCode(response.topics[0].partitions[0].error_code) if response.topics else ErrorCode.NONE


async def committed(cluster: Cluster, broker_id: int, group: str = "g") -> int | ErrorCode:
    """Returns the group's offset as a client reads it, or the error."""
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
    answer = (await cluster.request(broker_id, request, version=9)).groups[0]
    if answer.error_code != ErrorCode.NONE:
        return ErrorCode(answer.error_code)
    return int(answer.topics[0].partitions[0].committed_offset)


async def until_committed(cluster: Cluster, broker_id: int, offset: int) -> None:
    """Waits until a client reads this offset."""
    while (found := await committed(cluster, broker_id)) != offset:
        assert found in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), found
        await cluster.world.sleep(0.1)


def join(cluster: Cluster, broker_id: int) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(cluster.request(broker_id, JoinGroupRequest(group_id="g")))


def heartbeat(cluster: Cluster, broker_id: int, generation: int) -> "asyncio.Future[Any]":
    request = HeartbeatRequest(group_id="g", generation_id=generation)
    return asyncio.ensure_future(cluster.request(broker_id, request))


def test_what_was_committed_is_there_after_a_change_of_the_leader() -> None:
    """The new leader reads the log and knows the offset; the old one says that it is not the coordinator any more."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2])
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        assert await committed(cluster, 1) == 7
        assert await committed(cluster, 2) is ErrorCode.NOT_COORDINATOR
        cluster.controller.change(topic_id=OFFSETS, leader=2)
        await until_loaded(cluster, 2)
        assert await committed(cluster, 2) == 7
        assert await commit(cluster, 1, 8) is ErrorCode.NOT_COORDINATOR
        names = [event.name for event in cluster.world.events if event.name.startswith("coordinator_")]
        assert names == ["coordinator_loaded", "coordinator_unloaded", "coordinator_loaded"]

    run(scenario)


def test_a_commit_is_answered_once_the_followers_have_it_and_so_is_all_that_follows() -> None:
    """A read that comes after an unreplicated commit waits for it: nobody may see an offset that could be lost."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2])
        cluster.world.network.cut("broker-2", "broker-1")
        committing = asyncio.ensure_future(commit(cluster, 1, 7))
        await cluster.world.sleep(0.1)
        reading = asyncio.ensure_future(committed(cluster, 1))
        await cluster.world.sleep(1)
        assert not committing.done() and not reading.done()
        cluster.world.network.mend()
        assert await committing is ErrorCode.NONE
        assert await reading == 7

    run(scenario)


def test_a_commit_that_is_not_replicated_in_time_reports_that() -> None:
    """After offsets.commit.timeout.ms the client is told to try again. The commit may still take effect, and does here."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2])
        cluster.world.network.cut("broker-2", "broker-1")
        begun_ns = cluster.world.now_ns()
        assert await commit(cluster, 1, 7) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert 1.9 * NS_PER_S < cluster.world.now_ns() - begun_ns < 2.2 * NS_PER_S
        assert await committed(cluster, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the read waits for the commit"
        cluster.world.network.mend()
        await cluster.until(lambda: cluster[1].partition(0, OFFSETS).high_watermark == 1)
        assert await committed(cluster, 1) == 7

    run(scenario, offsets_commit_timeout_ms="2000", replica_lag_time_max_ms="30000")


@pytest.mark.parametrize("hung", [1, 2])
def test_no_answer_waits_for_a_suspected_disk(hung: int) -> None:
    """The disk of the leader or of a follower hangs. A client's other answers come after these, on the same connection. The
    records stay, and what was answered with an error takes effect once the disk goes on."""

    async def scenario(cluster: Cluster) -> None:
        [shard] = await start(cluster, [1, 2])
        world, disk = cluster.world, cluster.world.disk(path(hung, "a"))
        disk.hang()
        began_ns = world.now_ns()
        assert await commit(cluster, 1, 7) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.now_ns() - began_ns < 1.5 * NS_PER_S
        began_ns = world.now_ns()
        assert await commit(cluster, 1, 8) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await committed(cluster, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the read waits for the commit"
        assert world.now_ns() - began_ns < NS_PER_S // 10
        disk.thaw()
        await cluster.until(lambda: bool(world.events_named("log_dir_trusted")))
        await cluster.until(lambda: not cluster[1].partition(0, OFFSETS).replica.is_held_up, within_seconds=1)
        assert await committed(cluster, 1) == 8
        assert await commit(cluster, 1, 9) is ErrorCode.NONE
        assert coordinated(cluster, 1)[0].shard is shard

    run(scenario, diskraft_log_dir_operation_timeout_ms="10000")


def test_whoever_waits_is_answered_when_the_leadership_is_lost() -> None:
    """A member that waits for a rebalance and a commit that waits for a follower look for the new coordinator at once."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2])
        joining = join(cluster, 1)
        await cluster.world.sleep(0.1)
        cluster.world.network.cut("broker-2", "broker-1")
        committing = asyncio.ensure_future(commit(cluster, 1, 7))
        await cluster.world.sleep(0.1)
        assert not joining.done() and not committing.done()
        begun_ns = cluster.world.now_ns()
        cluster.controller.change(topic_id=OFFSETS, leader=2)
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
        assert await committing is ErrorCode.NOT_COORDINATOR
        assert cluster.world.now_ns() - begun_ns < 50_000_000

    run(scenario)


def test_a_leader_whose_replica_is_still_being_made_asks_for_patience() -> None:
    """NOT_COORDINATOR would send the client to look for another broker, and there is none."""

    async def scenario(cluster: Cluster) -> None:
        cluster.new_shard = WrittenShard
        await cluster.start(1)
        disk = cluster.world.disk(path(1, "a"))
        disk.hang()
        cluster.controller.create_topic([1], name=NAME, topic_id=OFFSETS)
        await cluster.until(lambda: cluster[1].state.topic_named(NAME) is not None)
        assert await committed(cluster, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        disk.thaw()
        await until_loaded(cluster, 1)
        assert await committed(cluster, 1) == -1

    run(scenario)


def test_a_failed_disk_unloads_its_groups() -> None:
    """The directory of the partition fails: waiting members get NOT_COORDINATOR, and so does everybody after them. Until
    another leader is elected, no broker has the groups, and a list without them would not be a list of all."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1], letters="ab")
        joining = join(cluster, 1)
        await cluster.world.sleep(0.1)
        letter = "a" if cluster[1].partition(0, OFFSETS).directory_id == directory(1, "a") else "b"
        cluster[1].failures.report(LogDirError(path(1, letter), "probe", errno.EIO))
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
        assert await commit(cluster, 1, 7) is ErrorCode.NOT_COORDINATOR
        assert (await cluster.request(1, ListGroupsRequest())).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        cluster.controller.change(topic_id=OFFSETS, leader=NO_LEADER)
        await cluster.until(lambda: cluster[1].state.partitions_led_by(NO_LEADER))
        assert (await cluster.request(1, ListGroupsRequest())).error_code == ErrorCode.NONE

    run(scenario)


def test_a_failed_append_throws_the_state_away_and_loads_it_again() -> None:
    """The state had changed when the append failed for lack of in-sync replicas. It is loaded again from the log, so the
    offset that was refused is not there."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2], min_insync_replicas="2")
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        cluster.controller.change(topic_id=OFFSETS, isr=[1])
        joining = join(cluster, 1)
        await cluster.world.sleep(0.1)
        assert await commit(cluster, 1, 8) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await joining).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await committed(cluster, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await until_committed(cluster, 1, 7)

    run(scenario)


def test_an_operation_that_comes_while_the_log_is_loaded_again_is_not_forgotten() -> None:
    """For example, all markers of a transaction are written while the log of its coordinator is loaded again, because the
    process was short of files. If that had no effect at all, the transaction would stay prepared. So the state is loaded
    again as well: then a prepared transaction asks for its markers once more."""

    async def scenario(cluster: Cluster) -> None:
        shards = await start(cluster, [1])
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        [coordinator] = coordinated(cluster, 1).values()
        coordinator.partition.begin_restructuring()
        coordinator.perform_unasked(lambda _shard, _now: [Step([CoordinatorRecord(b"g", b"8.")])])
        coordinator.partition.end_restructuring()
        await until_committed(cluster, 1, 7)
        assert len(shards) == 2

    run(scenario)


async def lose_the_follower(cluster: Cluster) -> None:
    """Leaves the leader alone in the ISR. Returns when several commits have been refused for that."""
    cluster.world.network.cut("broker-2", "broker-1")
    cluster.controller.change(topic_id=OFFSETS, isr=[1])
    refused = 0
    while refused < 6:
        error = await commit(cluster, 1, 8)
        assert error in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), error
        refused += error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await cluster.world.sleep(0.5)


async def until_commits_succeed(cluster: Cluster, *, within_ns: int) -> None:
    """Commits until one succeeds. Fails the test if none has after `within_ns`."""
    begun_ns = cluster.world.now_ns()
    while (error := await commit(cluster, 1, 9)) is not ErrorCode.NONE:
        assert cluster.world.now_ns() - begun_ns < within_ns, error
        await cluster.world.sleep(0.02)
    assert cluster.world.now_ns() - begun_ns < within_ns


def test_a_coordinator_goes_on_once_the_isr_has_enough_members_again() -> None:
    """The pauses between the loads have grown long by then. The change of the ISR ends the last one."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2], min_insync_replicas="2")
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        await lose_the_follower(cluster)
        cluster.world.network.mend()
        await cluster.until(cluster[1].partition(0, OFFSETS).has_enough_in_sync)
        await until_commits_succeed(cluster, within_ns=NS_PER_S)

    run(scenario)


def test_a_coordinator_goes_on_once_fewer_members_are_enough() -> None:
    """Lowering min.insync.replicas is how an operator gets groups to work again while brokers are lost."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2], min_insync_replicas="2")
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        await lose_the_follower(cluster)
        cluster.controller.configure("min.insync.replicas", "1", name=NAME)
        await until_commits_succeed(cluster, within_ns=NS_PER_S)

    run(scenario)


def test_pauses_are_short_again_after_the_isr_had_enough_members() -> None:
    """The next lack of replicas does not go on where the last one ended: reads are served again after the first pause."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2], min_insync_replicas="2")
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        await lose_the_follower(cluster)
        await cluster.until(lambda: coordinated(cluster, 1)[0].is_loaded, within_seconds=60)
        cluster.controller.change(topic_id=OFFSETS, isr=[1, 2])
        cluster.controller.change(topic_id=OFFSETS, isr=[1])
        assert await commit(cluster, 1, 8) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        begun_ns = cluster.world.now_ns()
        await until_committed(cluster, 1, 7)
        assert cluster.world.now_ns() - begun_ns < 1.5 * NS_PER_S

    run(scenario)


def test_commits_that_are_too_large_do_not_hold_up_the_other_groups_for_long() -> None:
    """However often one client commits what does not fit into a batch, the others go on after a short pause each time."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1], max_message_bytes="1000")
        for _ in range(6):
            assert await commit(cluster, 1, 8, metadata="x" * 1000) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            await until_commits_succeed(cluster, within_ns=1_500_000_000)

    run(scenario)


def test_a_commit_that_does_not_fit_into_a_batch_is_the_fault_of_that_client_alone() -> None:
    """It gets the error that means so; the others only find the coordinator away for a moment."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1], max_message_bytes="1000")
        joining = join(cluster, 1)
        await cluster.world.sleep(0.1)
        assert await commit(cluster, 1, 8, metadata="x" * 1000) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert (await joining).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await until_committed(cluster, 1, -1)

    run(scenario)


def test_a_new_leader_loads_only_what_is_committed() -> None:
    """The new leader has a record that the other replica lacks. It answers with COORDINATOR_LOAD_IN_PROGRESS until the
    record is replicated: if it opened before, clients would see an offset that could still be lost."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2, 3])
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        cluster.world.network.cut("broker-3", "broker-1")
        cluster.world.network.cut("broker-3", "broker-2")
        committing = asyncio.ensure_future(commit(cluster, 1, 8))
        await cluster.until(lambda: cluster[2].partition(0, OFFSETS).log.written_offset == 2)
        cluster.controller.change(topic_id=OFFSETS, leader=2)
        assert await committing is ErrorCode.NOT_COORDINATOR
        await cluster.world.sleep(1)
        assert await committed(cluster, 2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        cluster.world.network.mend()
        await until_committed(cluster, 2, 8)

    run(scenario, replica_lag_time_max_ms="30000")


def test_members_of_a_group_that_is_being_loaded_are_not_frightened() -> None:
    """A heartbeat succeeds, and a member that waits for its assignment is to join again. Some clients give up for good if
    either is answered with COORDINATOR_LOAD_IN_PROGRESS."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2])
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        cluster.world.network.cut("broker-2", "broker-1")
        committing = asyncio.ensure_future(commit(cluster, 1, 8))
        await cluster.until(lambda: cluster[1].partition(0, OFFSETS).log.written_offset == 2)
        cluster.controller.change(topic_id=OFFSETS, leader=1)
        assert await committing is ErrorCode.NOT_COORDINATOR
        assert await committed(cluster, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await heartbeat(cluster, 1, 5)).error_code == ErrorCode.NONE
        syncing = await cluster.request(1, SyncGroupRequest(group_id="g", generation_id=5), version=4)
        assert syncing.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await join(cluster, 1)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(scenario, replica_lag_time_max_ms="30000")


def test_a_large_log_is_read_in_chunks_and_the_broker_goes_on_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load reads many chunks. The broker serves another partition before the load is over."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2])
        for offset in range(60):
            assert await commit(cluster, 1, offset, group=f"g{offset % 20}") is ErrorCode.NONE
        monkeypatch.setattr(log_replay, "_CHUNK_BYTES", 100)
        cluster.controller.change(topic_id=OFFSETS, leader=2)
        await until_loaded(cluster, 2)
        found = [await committed(cluster, 2, f"g{number}") for number in range(20)]
        assert found == [*range(40, 60)]

    run(scenario)


def test_a_compacted_log_still_has_the_last_commit_of_each_group() -> None:
    """Most commits of the log are gone when the new leader loads it, and there are holes between those that are left."""

    async def scenario(cluster: Cluster) -> None:
        configs = {"cleanup_policy": "compact", "segment_bytes": "600", "min_cleanable_dirty_ratio": "0.01"}
        await start(cluster, [1, 2], **configs)
        for offset in range(60):
            assert await commit(cluster, 1, offset, group=f"g{offset % 5}") is ErrorCode.NONE
        partition = cluster[2].partition(0, OFFSETS)
        await cluster.until(lambda: 0 < partition.first_dirty_offset == partition.log.segment_base_offsets[-1])
        assert partition.first_dirty_offset > 40
        cluster.controller.change(topic_id=OFFSETS, leader=2)
        await until_loaded(cluster, 2)
        assert [await committed(cluster, 2, f"g{number}") for number in range(5)] == [*range(55, 60)]

    run(scenario, log_cleaner_backoff_ms="100")


def test_a_log_that_cannot_be_understood_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that fails is an event. The next one begins after a pause and succeeds when the cause is gone."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2])
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        monkeypatch.setattr(log_replay, "_OPENED_BYTES_MAX", 0)
        batch = encode_batch([Record(b"g", b"8", 1)], attributes=1, compress=bytes)
        appended = asyncio.get_running_loop().create_future()
        header = read_header(batch)
        cluster[1].partition(0, OFFSETS).append_as_leader(
            [(header, memoryview(batch))], on_written=appended.set_result, on_failed=lambda: None
        )
        await appended
        await cluster.until(lambda: cluster[1].partition(0, OFFSETS).high_watermark == 2)
        cluster.controller.change(topic_id=OFFSETS, leader=2)
        await cluster.until(lambda: len(cluster.world.events_named("coordinator_load_failed")) == 2)
        assert await committed(cluster, 2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert cluster[2].groups.load_counts.failed == 2
        assert "offset 2" in str(cluster.world.events_named("coordinator_load_failed")[0].fields["reason"])
        monkeypatch.undo()
        monkeypatch.setattr(log_replay, "decompress", lambda code, payload, size_max: payload)
        await until_committed(cluster, 2, 8)

    run(scenario)


def test_a_damaged_header_ends_the_load_and_not_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of a chunk is searched in the headers of the batches before it, and one of them is damaged."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1], segment_bytes="1000", index_interval_bytes="10000")
        for offset in range(30):
            assert await commit(cluster, 1, offset) is ErrorCode.NONE
        monkeypatch.setattr(log_replay, "_CHUNK_BYTES", 100)
        disk = cluster.world.disk(path(1, "a"))
        segment = f"{NAME}-0/{0:020}.log"
        # The length of the second batch.
        disk.corrupt(segment, read_header(disk.files()[segment]).size + 8, 4)
        cluster.controller.change(topic_id=OFFSETS, leader=1)
        await cluster.world.event("coordinator_load_failed")
        assert await committed(cluster, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(scenario)


def test_a_commit_survives_the_move_of_its_partition_to_another_directory() -> None:
    """While the copy takes the place of the log, the appends are held back. All are answered, and a member that waits for a
    rebalance goes on waiting."""

    async def scenario(cluster: Cluster) -> None:
        cluster.controller.commit(FeatureLevelRecord(name="metadata.version", feature_level=21))
        await start(cluster, [1], letters="ab")
        partition = cluster[1].partition(0, OFFSETS)
        source = partition.directory_id
        target = "b" if source == directory(1, "a") else "a"
        cluster.controller.change(topic_id=OFFSETS, directories=[source])
        joining = join(cluster, 1)
        assert cluster[1].replicas.log_dir_alteration.alter(NAME, 0, path(1, target)) is ErrorCode.NONE
        key = partition.key
        await cluster.until(lambda: cluster[1].replicas.wished_assignments().get(key) == directory(1, target))
        cluster.controller.change(topic_id=OFFSETS, directories=[directory(1, target)])
        was_swapping = False
        offset = 0
        while partition.directory_id != directory(1, target):
            offset += 1
            committing = asyncio.ensure_future(commit(cluster, 1, offset))
            while not committing.done():
                was_swapping |= partition.is_swapping
                await cluster.world.sleep(0.0001)
            assert await committing is ErrorCode.NONE
        assert was_swapping
        assert not joining.done()
        assert await committed(cluster, 1) == offset
        assert (await heartbeat(cluster, 1, 5)).error_code == ErrorCode.NONE
        assert (await joining).generation_id == 5

    run(scenario)


def test_a_timer_fires_at_its_latest_time() -> None:
    """A session ends a second after the last heartbeat, not after the first."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1])
        for _ in range(4):
            await heartbeat(cluster, 1, 1)
            await cluster.world.sleep(0.6)
        assert await committed(cluster, 1) == -1
        await cluster.world.sleep(SESSION_NS / NS_PER_S)
        assert await committed(cluster, 1) == -2

    run(scenario)


def test_a_cancelled_timer_does_not_fire() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1])
        await heartbeat(cluster, 1, 1)
        await heartbeat(cluster, 1, -1)
        await cluster.world.sleep(3)
        assert await committed(cluster, 1) == -1

    run(scenario)


def test_offsets_are_looked_at_for_expiry_by_one_timer_for_each_shard() -> None:
    """Each shard is asked once in each offsets.retention.check.interval.ms, as long as it is loaded."""

    async def scenario(cluster: Cluster) -> None:
        shards = await start(cluster, [1, 2], [1])
        await cluster.world.sleep(3.5)
        assert [shard.expiries for shard in shards] == [3, 3]
        cluster.controller.change(0, topic_id=OFFSETS, leader=2)
        await until_loaded(cluster, 2)
        await cluster.world.sleep(2.2)
        assert sorted(shard.expiries for shard in shards) == [2, 3, 5]

    run(scenario, offsets_retention_check_interval_ms="1000")


def test_the_offsets_of_a_deleted_topic_are_dropped() -> None:
    """Every shard learns the name, also if a topic of the same name is there again."""

    async def scenario(cluster: Cluster) -> None:
        shards = await start(cluster, [1], [1])
        cluster.controller.remove_topic()
        assert [shard.dropped_topics for shard in shards] == [["t"], ["t"]]

    run(scenario)


def test_the_offsets_of_a_topic_that_is_deleted_during_a_load_are_dropped_after_it() -> None:
    """A shard that is being loaded learns the names once it is loaded: a topic of the same name could be there again."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1, 2], min_insync_replicas="2")
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        cluster.controller.change(topic_id=OFFSETS, isr=[1])
        assert await commit(cluster, 1, 8) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await committed(cluster, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        cluster.controller.remove_topic()
        await cluster.until(lambda: cluster[1].state.topic_named("t") is None)
        assert coordinated(cluster, 1)[0].shard is None
        cluster.controller.change(topic_id=OFFSETS, isr=[1, 2])
        await until_loaded(cluster, 1)
        shard = coordinated(cluster, 1)[0].shard
        assert isinstance(shard, WrittenShard)
        assert shard.dropped_topics == ["t"]

    run(scenario)


@pytest.mark.parametrize("why", ["the ISR is too small", "there is no leader"])
def test_a_new_topic_of_the_name_does_not_inherit_offsets_that_could_not_be_dropped(why: str) -> None:
    """No coordinator could write that they are gone. With them, consumers would skip the first records of the new topic."""

    async def scenario(cluster: Cluster) -> None:
        cluster.new_shard = lambda: GroupShard(GroupSettings(), cluster[1].state)
        await cluster.start(1)
        await cluster.start(2)
        cluster.controller.create_topic([1])
        await cluster.started()
        cluster.controller.create_topic([1, 2], name=NAME, topic_id=OFFSETS, configs={"min.insync.replicas": "2"})
        await cluster.started(0, OFFSETS)
        await until_loaded(cluster, 1)
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        changes: dict[str, Any] = {"isr": [1]} if why == "the ISR is too small" else {"leader": -1}
        cluster.controller.change(topic_id=OFFSETS, **changes)
        cluster.controller.remove_topic()
        await cluster.until(lambda: cluster[1].state.topic_named("t") is None)
        cluster.controller.create_topic([1], topic_id=TopicId(Uuid(b"N" * 16)))
        cluster.controller.change(topic_id=OFFSETS, isr=[1, 2], leader=1)
        await until_loaded(cluster, 1)
        await until_committed(cluster, 1, -1)

    run(scenario)


def test_a_partition_added_to_the_topic_is_coordinated_too() -> None:
    """The broker leads a second partition from then on, and the first keeps its shard and its groups."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1])
        first = coordinated(cluster, 1)[0].shard
        assert await commit(cluster, 1, 7) is ErrorCode.NONE
        added = PartitionRecord(partition_id=1, topic_id=OFFSETS, replicas=[1], isr=[1], leader=1, directories=[UNASSIGNED])
        cluster.controller.commit(added)
        await until_loaded(cluster, 1, 1)
        assert coordinated(cluster, 1)[0].shard is first
        assert group_partition("g", 2) == 1
        assert await committed(cluster, 1) == 7

    run(scenario)


def test_the_metrics_count_partitions_loads_and_failures() -> None:
    """The shard of the tests has no groups of its own, so their gauges are zero; partitions and loads are counted."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1], [1], [2, 1])
        samples = {(sample.name, *dict(sample.labels).values()): sample.value for sample in group_samples(cluster[1].groups)}
        loads = "kafka_server_group_coordinator_metrics"
        assert samples[f"{loads}_num_partitions", "active"] == 2
        assert samples[f"{loads}_num_partitions", "loading"] == 0
        assert samples[f"{loads}_partition_loads",] == 2
        assert samples[f"{loads}_partition_load_failures",] == 0
        assert samples[f"{loads}_partition_load_time_max",] >= samples[f"{loads}_partition_load_time_avg",]
        groups = "kafka_coordinator_group_groupmetadatamanager"
        names = ("groups", "offsets", "groupspreparingrebalance", "groupscompletingrebalance", "groupsstable")
        assert [samples[f"{groups}_num{name}",] for name in (*names, "groupsdead", "groupsempty")] == [0] * 7

    run(scenario)


def test_a_shutdown_answers_who_waits() -> None:
    """An orderly shutdown lets no member wait for the end of its own timeout."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, [1])
        joining = join(cluster, 1)
        await cluster.world.sleep(0.1)
        await cluster[1].replicas.shutdown()
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_very_many_groups_are_looked_at_for_expiry_in_slices() -> None:
    """Others have their turn between the slices."""

    async def scenario(cluster: Cluster) -> None:
        [shard] = await start(cluster, [1])
        ids = [f"group-{number}" for number in range(2 * ITEMS_PER_SLICE + 1)]
        shard.idle = ids
        await cluster.world.sleep(1.5)
        slices = [ids[:ITEMS_PER_SLICE], ids[ITEMS_PER_SLICE : 2 * ITEMS_PER_SLICE], ids[2 * ITEMS_PER_SLICE :]]
        assert shard.looked_at == [each for one in slices for each in (one, [])]

    run(scenario, offsets_retention_check_interval_ms="1000")
