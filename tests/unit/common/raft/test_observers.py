"""Observers of a quorum of one, over simulated connections: catching up, divergence, long polls, snapshots, leaders."""

import asyncio
import errno
from asyncio import TaskGroup
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from common.environment.interface import Connection, LogDirError
from common.ids import ZERO_UUID, BrokerId, DirectoryId, LeaderEpoch, Offset
from common.net.node_channel import NodeChannel
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from common.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    RequestPartitionSnapshot,
    RequestTopicSnapshot,
    SnapshotId,
)
from common.protocol.numbering import Numbering
from common.protocol.schema import Struct
from common.raft import commit_queue, follower
from common.raft.core.leader_endpoints import QuorumEndpoint
from common.raft.core.offsets import METADATA_LOG_FOLDER, ORIGIN, OffsetAndEpoch
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.quorum_messages import fetch_request, fetch_snapshot_request
from common.raft.core.record_batches import CommittedBatch, encode_batches
from common.raft.core.replica_progress import ReplicaKey
from common.raft.errors import QuorumFailure
from common.records.batch import read_header
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.unit.common.net.worlds import RawPeer, SimulatedTestWorld, request_bytes
from tests.unit.common.raft.nodes import MEBIBYTE, PORT, Config, QuorumNode, RecordingListener, leader, topic

SEGMENT = "00000000000000000000.log"


def run(scenario: Callable[[SimulatedWorld], Coroutine[Any, Any, None]]) -> None:
    SimulatedWorld(seed=3).run(scenario)


async def observer(world: SimulatedWorld, *, node_id: int = 101, config: Config | None = None) -> QuorumNode:
    return await QuorumNode(world, f"observer-{node_id}", node_id, config=config).start()


def content_of(node: QuorumNode, name: str) -> bytes:
    return bytes(node.file(name).content)


def test_observer_catches_up_and_persists() -> None:
    """An observer finds the leader, copies its log byte for byte, delivers committed records and writes quorum-state."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a", "b")
        other = await observer(world)
        await other.has("a", "b")
        assert other.listener.leaders[-1] == LeaderAndEpoch(BrokerId(1), LeaderEpoch(1))
        assert other.listener.batches == one.listener.batches
        await one.add("c")
        await other.has("a", "b", "c")
        assert content_of(other, SEGMENT) == content_of(one, SEGMENT)
        assert b'"leaderId":1,"leaderEpoch":1' in content_of(other, "quorum-state")
        assert other.driver.high_watermark == one.driver.high_watermark

    run(scenario)


def test_a_damaged_part_of_the_own_log_ends_a_node_with_its_name() -> None:
    """A listener has to catch up from the disk. Without what is damaged, the node cannot go on; the reason is one line."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a")
        await one.add("b")
        other = await observer(world)
        await other.has("a", "b")
        first = read_header(content_of(other, SEGMENT))
        # The length of the second batch.
        other.disk.corrupt(f"{METADATA_LOG_FOLDER}/{SEGMENT}", first.size + 8, 4)
        other.driver.register(RecordingListener())
        await world.until(lambda: other.failure is not None)
        assert isinstance(other.failure, QuorumFailure)
        assert METADATA_LOG_FOLDER in str(other.failure)

    run(scenario)


def test_an_observer_that_asks_for_a_damaged_part_of_the_log_does_not_end_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that have that part already follow on, and the one that asks for it tries again."""
    monkeypatch.setattr(follower, "FETCH_BYTES_MAX", 100)

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world, Config(metadata_log_segment_bytes=1_000))
        for name in [f"{number:050}" for number in range(20)]:
            await one.add(name)
        other = await observer(world)
        await world.until(lambda: other.listener.topics == one.listener.topics)
        first = read_header(content_of(one, SEGMENT))
        # The length of the second batch.
        one.disk.corrupt(f"{METADATA_LOG_FOLDER}/{SEGMENT}", first.size + 8, 4)
        late = await observer(world, node_id=102)
        failed = await world.event("metadata_fetch_failed")
        assert failed.fields["reason"] == "UNKNOWN_SERVER_ERROR"
        await one.add("last")
        await world.until(lambda: other.listener.topics == one.listener.topics)
        assert late.listener.next_offset <= first.next_offset

    run(scenario)


@pytest.mark.slow
def test_an_observer_that_lags_is_not_stopped_by_what_it_has_missed() -> None:
    """While the observer is stopped, the leader commits far more than the observer should decode in one step of its event
    loop. The observer gets it with several fetches."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        other = await observer(world)
        await one.add("a")
        await other.has("a")
        world.pause("observer-101")
        names = [f"{number:0100d}" for number in range(20_000)]
        for start in range(0, len(names), 1_000):
            await one.add(*names[start : start + 1_000])
        world.resume("observer-101")
        moments: set[int] = set()

        def is_complete() -> bool:
            if other.listener.next_offset == one.listener.next_offset:
                return True
            moments.add(other.listener.next_offset)
            return False

        await world.until(is_complete)
        assert len(moments) >= 4
        assert other.listener.topics == one.listener.topics

    run(scenario)


def test_what_was_fetched_at_once_is_delivered_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live observer is stopped, and gets what was committed meanwhile with one fetch. No step of its event loop delivers
    more than a few records, except for a batch that is larger. Afterwards it is called directly again."""
    monkeypatch.setattr(commit_queue, "RECORDS_PER_STEP", 2)
    steps: list[list[str]] = []

    class Counting(RecordingListener):
        def handle_commit(self, batch: CommittedBatch) -> Coroutine[Any, Any, None] | None:
            asyncio.get_running_loop().call_soon(self._end_of_step)
            return super().handle_commit(batch)

        def _end_of_step(self) -> None:
            if not steps or steps[-1] != self.topics:
                steps.append(self.topics)

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        other = await observer(world)
        counting = Counting()
        other.driver.register(counting)
        await one.add("a")
        await world.until(lambda: counting.topics == ["a"])
        steps.clear()
        fetched = other.driver._bytes_since_snapshot()
        world.pause("observer-101")
        for names in ("b", "c", "d", "efgh", "i", "j"):
            await one.add(*names)
        world.resume("observer-101")
        await world.until(lambda: counting.topics == [*"abcdefghij"])
        assert steps == [[*"abc"], [*"abcd"], [*"abcdefgh"], [*"abcdefghij"]]
        assert other.listener.batches == one.listener.batches
        assert other.driver._bytes_since_snapshot() - fetched == sum(batch.size for batch in one.listener.batches[2:])
        await one.add("k")
        await other.has(*"abcdefghijk")
        assert steps[-1] == [*"abcdefghijk"]

    run(scenario)


def test_observer_goes_on_from_its_own_log_after_a_restart() -> None:
    """A restarted observer delivers nothing until the leader reports the high watermark. Then it reads its own log."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a")
        other = await observer(world)
        await other.has("a")
        other.crash()
        await one.add("b")
        await other.start()
        assert other.listener.topics == []
        await other.has("a", "b")

    run(scenario)


def test_long_poll_wakes_at_once() -> None:
    """A commit reaches an idle observer within a few network delays, far below MaxWaitMs, and without a NoOp record."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        other = await observer(world)
        await world.until(lambda: other.listener.next_offset == 1)
        # Wait until the observer is in the middle of a long poll.
        await world.sleep(0.3)
        names = [f"t{number}" for number in range(5)]
        for number, name in enumerate(names):
            before_ns = world.now_ns()
            await one.add(name)
            await other.has(*names[: number + 1])
            assert world.now_ns() - before_ns < 50_000_000

    run(scenario)


def test_a_commit_without_new_records_wakes_the_poll_too() -> None:
    """The observer has the records, but they are not committed until the sync ends. Its long poll then ends at once."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        other = await observer(world)
        await world.until(lambda: other.listener.next_offset == 1)
        written = len(content_of(one, SEGMENT))
        one.disk.hang({"fsync"})
        one.schedule("a")
        await world.until(lambda: len(content_of(one, SEGMENT)) > written)
        await world.sleep(0.2)
        assert other.listener.topics == []
        one.disk.thaw()
        before_ns = world.now_ns()
        await other.has("a")
        assert world.now_ns() - before_ns < 50_000_000

    run(scenario)


def test_an_observer_knows_when_its_high_watermark_is_new_enough() -> None:
    """The answer to a fetch that was sent earlier may be older than the question. A leader always knows."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a")
        other = await observer(world)
        await other.has("a")
        await world.sleep(0.01)
        asked_ns = world.now_ns()
        assert one.driver.knows_high_watermark_since(asked_ns)
        assert not other.driver.knows_high_watermark_since(asked_ns)
        await world.until(lambda: other.driver.knows_high_watermark_since(asked_ns), within_seconds=2)
        assert other.driver.high_watermark == one.driver.high_watermark

    run(scenario)


def test_an_idle_poll_ends_after_its_wait() -> None:
    """A long poll during which nothing changes gets an empty response after MaxWaitMs, which is not an error."""

    async def scenario(world: SimulatedWorld) -> None:
        await leader(world)
        other = await observer(world)
        await world.until(lambda: other.listener.next_offset == 1)
        await world.sleep(3)
        assert world.events_named("metadata_fetch_failed") == []
        assert other.failure is None

    run(scenario)


def test_observer_diverged_tail_truncated() -> None:
    """An observer has a batch that the leader lost before syncing it. The observer truncates it and fetches the new one."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("kept")
        other = await observer(world)
        await other.has("kept")
        one.crash()
        other.crash()
        (lost,) = encode_batches(
            [topic("lost")],
            base_offset=Offset(2),
            epoch=LeaderEpoch(1),
            append_time_ms=0,
            numbering=Numbering.KIP858,
            is_atomic=True,
        )
        other.file(SEGMENT).rewrite(content_of(other, SEGMENT) + bytes(lost.buffer))
        await one.start()
        await one.leads()
        await one.add("new")
        await other.start()
        await other.has("kept", "new")
        assert content_of(other, SEGMENT) == content_of(one, SEGMENT)
        assert len(world.events_named("metadata_log_truncated", other.name)) == 1

    run(scenario)


def test_a_leader_that_lost_its_disk_is_not_followed_by_a_node_that_starts_then() -> None:
    """The observer knows no high watermark yet. The new log of the leader is in the same epoch and shorter, so the observer
    stops and keeps its copy, which is the only one left."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("committed")
        other = await observer(world)
        await other.has("committed")
        kept = content_of(other, SEGMENT)
        one.crash()
        other.crash()
        one.disk.delete("__cluster_metadata-0")
        await one.start()
        await one.leads()
        await other.start()
        await world.until(lambda: other.failure is not None)
        assert "the controller has lost its metadata log" in str(other.failure)
        assert content_of(other, SEGMENT) == kept

    run(scenario)


def test_a_leader_that_lost_committed_records_is_not_followed() -> None:
    """After the controller's disk was replaced, an observer with more committed records stops instead of truncating."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("committed")
        other = await observer(world)
        await other.has("committed")
        one.crash()
        one.disk.delete("__cluster_metadata-0")
        await one.start()
        await one.restart()
        await one.leads()
        await world.until(lambda: other.failure is not None)
        assert "committed" in str(other.failure)
        assert other.listener.topics == ["committed"]

    run(scenario)


def test_leader_restart_with_a_higher_epoch_is_followed() -> None:
    """The observer learns of the new epoch from a failed fetch, persists it, and continues from its log end."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a")
        other = await observer(world)
        await other.has("a")
        await one.restart()
        await one.leads()
        await one.add("b")
        await other.has("a", "b")
        assert [leader.epoch for leader in other.listener.leaders] == [0, 1, 2]
        assert b'"leaderEpoch":2' in content_of(other, "quorum-state")

    run(scenario)


def test_an_observer_waits_for_its_leader() -> None:
    """An observer started before the controller keeps retrying and logs a few lines at most, not one per attempt."""

    async def scenario(world: SimulatedWorld) -> None:
        other = await observer(world)
        await world.sleep(20)
        assert 1 <= len(world.events_named("metadata_fetch_failed")) <= 3
        one = await leader(world)
        await one.add("a")
        await other.has("a")

    run(scenario)


def test_many_observers_hear_the_same() -> None:
    """Four observers get the same records from one leader, although one of them is restarted."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        others = [await observer(world, node_id=101 + number) for number in range(4)]
        names = [f"t{number}" for number in range(30)]
        for number, name in enumerate(names):
            await one.add(name)
            if number == 10:
                await others[2].restart()
        for other in others:
            await other.has(*names)

    run(scenario)


# --- snapshots -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_observer_fetches_a_snapshot_instead_of_the_log() -> None:
    """A new observer gets the snapshot in pieces, then the log after it. Its next start uses its own copy."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        # The snapshot is larger than 1 MiB, so it takes more than one FetchSnapshot request.
        names = [f"{number:05d}" + "x" * 200 for number in range(6_000)]
        for start in range(0, len(names), 1_000):
            await one.add(*names[start : start + 1_000])
        snapshot_id = await one.driver.write_snapshot()
        assert snapshot_id == OffsetAndEpoch(one.driver.high_watermark, LeaderEpoch(1))
        await one.add("behind")

        other = await observer(world)
        await other.has(*names, "behind")
        assert other.listener.snapshots == [snapshot_id]
        name = f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"
        assert content_of(other, name) == content_of(one, name)
        assert len(content_of(other, name)) > 1_048_576
        assert other.driver.log_start_offset == snapshot_id.offset
        assert not [file for file in other.files() if file.endswith(".part")]

        await other.restart()
        await other.has(*names, "behind")
        assert other.listener.snapshots == [snapshot_id]

    run(scenario)


def test_observer_fetches_a_snapshot_when_the_leaders_log_was_cut() -> None:
    """While an observer was down, the leader deleted the log that it needs next. It fetches the snapshot instead."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world, Config(metadata_max_retention_bytes=1))
        await one.add("a")
        other = await observer(world)
        await other.has("a")
        other.crash()
        await one.add("b")
        await one.driver.write_snapshot()
        await one.add("c")
        newest = await one.driver.write_snapshot()
        assert newest is not None
        assert one.driver.log_start_offset == newest.offset
        await other.start()
        await other.has("a", "b", "c")
        assert other.listener.snapshots == [newest]
        await one.add("d")
        await other.has("a", "b", "c", "d")

    run(scenario)


def test_a_live_observer_loads_a_snapshot_that_replaces_its_log() -> None:
    """While the observer was cut off, the leader deleted the old part of its own log. The observer therefore fetches a
    snapshot. The observer's listener loads the snapshot and continues."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world, Config(metadata_max_retention_bytes=1))
        await one.add("a")
        other = await observer(world)
        await other.has("a")
        world.network.cut(one.name, other.name)
        await one.add("b")
        for name in ("c", "d"):
            await one.add(name)
            await one.driver.write_snapshot()
        await one.add("e")
        world.network.mend()
        await other.has("a", "b", "c", "d", "e")
        assert len(other.listener.snapshots) == 1

    run(scenario)


@pytest.mark.slow
def test_a_download_that_is_cut_off_starts_again() -> None:
    """The leader dies during the download. After its restart the observer downloads the whole snapshot again."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        names = [f"{number:05d}" + "x" * 240 for number in range(9_000)]
        for start in range(0, len(names), 1_000):
            await one.add(*names[start : start + 1_000])
        await one.driver.write_snapshot()
        other = await observer(world)
        await world.until(lambda: any(file.endswith(".part") for file in other.files()))
        await one.restart()
        await one.leads()
        await other.has(*names)
        assert not [file for file in other.files() if file.endswith(".part")]

    run(scenario)


def test_an_observer_makes_its_own_snapshots() -> None:
    """An observer writes its own snapshots, with the same triggers as the controller, to keep its log short."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        other = await observer(world, config=Config(metadata_log_max_record_bytes_between_snapshots=2_000))
        names = [f"t{number}" for number in range(40)]
        for name in names:
            await one.add(name)
        await other.has(*names)
        await world.event("metadata_snapshot_written", node=other.name)
        assert world.events_named("metadata_snapshot_written", one.name) == []

    run(scenario)


def test_a_leader_whose_disk_cannot_be_read_ends_and_is_followed_again() -> None:
    """If the leader cannot read its disk for an observer, its run() raises. The observer waits for the leader to restart."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a")
        await one.driver.write_snapshot()
        one.disk.fail_with(errno.EIO, {"open"})
        other = await observer(world)
        await world.until(lambda: one.failure is not None)
        assert isinstance(one.failure, LogDirError)
        one.crash()
        one.disk.heal()
        await one.start()
        await other.has("a")

    run(scenario)


# --- invalid requests ------------------------------------------------------------------------------------------------


async def ask(world: SimulatedWorld, request: Struct, *, version: int | None = None) -> Any:
    """Sends one request to the leader and returns the response."""
    answers: list[Any] = []

    async def main(env: SimulatedEnvironment) -> None:
        async with TaskGroup() as task_group:
            channel = NodeChannel(env, host="one", port=PORT, client_id="test", task_group=task_group)
            answers.append(await channel.send(request, version=version, deadline_ns=env.now_ns() + 10 * NS_PER_S))
            channel.close()

    world.node("stranger").start(main)
    await world.until(lambda: answers)
    return answers[0]


def test_a_node_of_another_cluster_is_turned_away() -> None:
    """A node with another cluster id gets no records of the log. Its driver fails with an error that names the reason."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a")
        other = await QuorumNode(world, "other", 101, cluster_id="another-cluster").start()
        await world.until(lambda: other.failure is not None)
        assert isinstance(other.failure, QuorumFailure)
        assert "another cluster" in str(other.failure)
        assert other.listener.topics == []

    run(scenario)


def test_malformed_fetches_are_refused() -> None:
    """A Fetch with a wrong topic, without a partition or with a negative epoch is answered with INVALID_REQUEST."""

    async def scenario(world: SimulatedWorld) -> None:
        await leader(world)
        good = fetch_request(
            cluster_id="the-cluster",
            replica=ReplicaKey(BrokerId(101)),
            epoch=LeaderEpoch(1),
            end=ORIGIN,
            high_watermark=Offset(0),
            max_wait_ms=0,
            max_bytes=1_000,
        )
        other_topic = FetchRequest(topics=[FetchTopic(topic="orders", partitions=[FetchPartition()])])
        for request in (FetchRequest(), FetchRequest(topics=[FetchTopic()]), other_topic):
            assert (await ask(world, request)).error_code == ErrorCode.INVALID_REQUEST
        good.topics[0].partitions[0].last_fetched_epoch = -1
        response = await ask(world, good)
        assert response.error_code == ErrorCode.NONE
        (partition,) = response.responses[0].partitions
        assert partition.error_code == ErrorCode.INVALID_REQUEST
        assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
        assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [(1, "one", PORT)]

    run(scenario)


def test_a_fetch_by_name_without_endpoints_works_too() -> None:
    """Fetch version 12 sends the topic's name instead of its id and gets no node endpoints, but the same records."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        request = FetchRequest(
            replica_id=101,
            max_bytes=100_000,
            topics=[
                FetchTopic(
                    topic="__cluster_metadata",
                    partitions=[FetchPartition(current_leader_epoch=1, last_fetched_epoch=0, partition_max_bytes=100_000)],
                )
            ],
        )
        response = await ask(world, request, version=12)
        (partition,) = response.responses[0].partitions
        assert bytes(partition.records) == bytes(content_of(one, SEGMENT))
        assert partition.high_watermark == 1

    run(scenario)


def test_a_snapshot_fetch_that_fits_nothing_is_refused_with_its_error() -> None:
    """FetchSnapshot has an error for each of: missing snapshot, bad position, old epoch, other topic, other cluster."""

    def request(
        *, offset: int = 2, epoch: int = 1, leader_epoch: int = 1, position: int = 0, name: str = "__cluster_metadata"
    ) -> FetchSnapshotRequest:
        partition = RequestPartitionSnapshot(
            current_leader_epoch=leader_epoch, snapshot_id=SnapshotId(end_offset=offset, epoch=epoch), position=position
        )
        return FetchSnapshotRequest(topics=[RequestTopicSnapshot(name=name, partitions=[partition])])

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a")
        await one.driver.write_snapshot()

        async def error(asked: FetchSnapshotRequest) -> int:
            (partition,) = (await ask(world, asked)).topics[0].partitions
            return int(partition.error_code)

        assert await error(request()) == ErrorCode.NONE
        assert await error(request(offset=1)) == ErrorCode.SNAPSHOT_NOT_FOUND
        assert await error(request(offset=0, epoch=0)) == ErrorCode.SNAPSHOT_NOT_FOUND
        assert await error(request(position=1_000_000)) == ErrorCode.POSITION_OUT_OF_RANGE
        assert await error(request(position=-1)) == ErrorCode.POSITION_OUT_OF_RANGE
        assert await error(request(leader_epoch=0)) == ErrorCode.FENCED_LEADER_EPOCH
        assert await error(request(name="orders")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await ask(world, FetchSnapshotRequest())).error_code == ErrorCode.INVALID_REQUEST
        foreign = request()
        foreign.cluster_id = "another-cluster"
        assert (await ask(world, foreign)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

    run(scenario)


def test_a_peer_that_does_not_read_gets_few_pieces_of_a_snapshot_at_a_time() -> None:
    """A peer requests 64 pieces at once and does not read. Few are loaded at a time, and all arrive once it reads."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        for number in range(120):
            await one.add(str(number).ljust(30_000, "x"))
        snapshot_id = await one.driver.write_snapshot()
        assert snapshot_id is not None
        request = fetch_snapshot_request(
            cluster_id=one.cluster_id,
            replica=ReplicaKey(BrokerId(7), DirectoryId(ZERO_UUID)),
            epoch=snapshot_id.epoch,
            snapshot_id=snapshot_id,
            position=0,
            max_bytes=MEBIBYTE,
        )
        env = world.node("stranger")
        peers: list[RawPeer] = []

        def accept(connection: Connection) -> RawPeer:
            peers.append(RawPeer(SimulatedTestWorld(world), connection))
            return peers[0]

        await env.connect("one", PORT, accept, deadline_ns=env.now_ns() + NS_PER_S)
        (peer,) = peers
        peer.connection.pause_reading()
        peer.send(b"".join(request_bytes(request, 1, correlation_id=number) for number in range(64)))
        for _ in range(1000):
            await world.sleep(0.01)
            assert sum(served._connection.queued_bytes for served in one.server._connections) < 4 * MEBIBYTE
        peer.connection.resume_reading()
        await world.until(lambda: len(peer.frames) == 64)
        assert all(len(frame) > MEBIBYTE for frame in peer.frames)
        other = await observer(world)
        await other.has(*one.listener.topics)

    run(scenario)


def test_describe_quorum_lists_voters_and_observers() -> None:
    """The response has offsets, times and directory ids if its version has these fields. An unknown topic gets an error."""
    request = DescribeQuorumRequest(
        topics=[RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData()])]
    )

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        other = await observer(world)
        await one.add("a")
        await other.has("a")
        await world.sleep(1)
        response = await ask(world, request)
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 1)
        assert partition.high_watermark == 2
        (voter,), (seen,) = partition.current_voters, partition.observers
        assert (voter.replica_id, voter.replica_directory_id, voter.log_end_offset) == (1, one.directory_id, 2)
        assert (seen.replica_id, seen.replica_directory_id, seen.log_end_offset) == (101, other.directory_id, 2)
        assert seen.last_caught_up_timestamp > 1_700_000_000_000
        assert [(node.node_id, node.listeners[0].name, node.listeners[0].port) for node in response.nodes] == [
            (1, "CONTROLLER", PORT)
        ]
        assert (await ask(world, request, version=0)).topics[0].partitions[0].leader_id == 1

        unknown = DescribeQuorumRequest(topics=[RequestTopicData(topic_name="orders", partitions=[RequestPartitionData()])])
        (refused,) = (await ask(world, unknown)).topics[0].partitions
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_a_leader_that_has_committed_nothing_yet_describes_no_high_watermark() -> None:
    """As in Kafka, and as for Fetch: a leader knows the high watermark once a record of its own epoch is committed. What it
    remembers of earlier epochs may be lower than what was committed then."""
    request = DescribeQuorumRequest(
        topics=[RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData()])]
    )

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a")
        one.crash()

        def look(where: str, kind: str, name: str) -> None:
            if where == one.path and kind == "replace_file" and name.endswith("quorum-state"):
                one.disk.hang({"fsync"})

        world.operation_watchers.append(look)
        await one.start()
        await world.sleep(1)
        (partition,) = (await ask(world, request)).topics[0].partitions
        assert (partition.error_code, partition.leader_epoch, partition.high_watermark) == (0, 2, -1)
        world.operation_watchers.remove(look)
        one.disk.thaw()
        await one.leads()
        (partition,) = (await ask(world, request)).topics[0].partitions
        assert partition.high_watermark == 3

    run(scenario)


def test_a_node_that_does_not_lead_names_the_leader() -> None:
    """An observer answers a Fetch with an error and the leader that it knows, so the sender finds the leader."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        other = await observer(world)
        await one.add("a")
        await other.has("a")
        # A third node is configured with the observer as its only voter.
        misled = QuorumNode(world, "misled", 102, voters=(QuorumEndpoint(BrokerId(101), other.name, PORT),))
        await misled.start()
        await misled.has("a")
        assert misled.listener.leaders[-1] == LeaderAndEpoch(BrokerId(1), LeaderEpoch(1))

    run(scenario)


def test_an_observer_takes_over_as_the_only_voter() -> None:
    """After the controller is lost, an observer configured as the only voter becomes leader and keeps its log."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        two = await QuorumNode(world, "two", 2).start()
        await one.add("a")
        await two.has("a")
        epoch = one.driver.leader_and_epoch.epoch
        one.crash()
        two.crash()
        alone = (QuorumEndpoint(BrokerId(2), "two", PORT),)
        two = await QuorumNode(world, "two", 2, voters=alone).start()
        await two.leads()
        assert two.driver.leader_and_epoch.epoch == epoch + 1
        await two.add("b")
        assert two.listener.topics == ["a", "b"]

    run(scenario)


def test_an_observer_whose_disk_hangs_delivers_what_is_committed() -> None:
    """Its log is only a copy. The records reach the disk, in order, when it goes on."""

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a")
        other = await observer(world)
        await other.has("a")
        other.disk.hang()
        for name in ("b", "c"):
            await one.add(name)
        await world.until(lambda: other.listener.topics == ["a", "b", "c"], within_seconds=1)
        assert content_of(other, SEGMENT) != content_of(one, SEGMENT)
        other.disk.thaw()
        await other.has("a", "b", "c")
        assert content_of(other, SEGMENT) == content_of(one, SEGMENT)

    run(scenario)


def test_an_observer_whose_disk_hangs_takes_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for the disk is in memory, so the next answer waits too when that is too much. An append that fails ends
    the node."""
    monkeypatch.setattr("common.raft.follower.UNWRITTEN_BYTES_MAX", 100)

    async def scenario(world: SimulatedWorld) -> None:
        one = await leader(world)
        await one.add("a")
        other = await observer(world)
        await other.has("a")
        other.disk.hang({"append"})
        for name in ("b", "c", "d", "e", "f"):
            await one.add(name)
            await world.sleep(0.1)
        assert other.listener.topics[-1] in ("b", "c", "d")
        other.disk.fail_with(errno.EIO)
        other.disk.thaw()
        await world.until(lambda: other.failure is not None)
        assert isinstance(other.failure, LogDirError)

    run(scenario)
