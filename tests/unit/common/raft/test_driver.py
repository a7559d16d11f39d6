"""A quorum of one: commits, group commit, restarts, failing disks. Everything runs in the simulated world."""

import asyncio
import errno
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from common.configuration.server_loading import load_server_config
from common.environment.interface import LogDirError
from common.ids import BrokerId, LeaderEpoch
from common.metadata.metadata_version import METADATA_VERSION_FEATURE
from common.protocol.numbering import Numbering
from common.raft import commit_queue
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch, RecordsTooLarge
from common.raft.core.snapshot_content import SnapshotEncoder
from common.raft.driver import QuorumConfig
from common.raft.errors import NotLeader, QuorumFailure
from common.records.batch import split_batches
from common.records.control import LeaderChangeMessage, iterate_control_records
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    FeatureLevelRecord,
    KnownRecord,
    NoOpRecord,
)
from common.records.record import encode_values_batch
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.raft.nodes import Config, QuorumNode, RecordingListener, format_node, leader, topic, write_bootstrap

SEGMENT = "00000000000000000000.log"


def run(scenario: Callable[[SimulatedWorld], Coroutine[Any, Any, None]]) -> None:
    SimulatedWorld(seed=1).run(scenario)


def noting(done: list[str], name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an operation so that each call appends `name` to `done`."""

    def noted(*arguments: Any) -> Any:
        done.append(name)
        return operation(*arguments)

    return noted


def content_of(node: QuorumNode, name: str) -> bytes:
    return bytes(node.file(name).content)


def segment_content(node: QuorumNode) -> bytes:
    return content_of(node, SEGMENT)


def test_a_sole_voter_elects_itself_and_begins_its_epoch() -> None:
    """The node leads only after quorum-state is on disk and the log starts with a LeaderChange of the new epoch."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        assert node.listener.leaders[-1] == LeaderAndEpoch(BrokerId(1), node.driver.leader_and_epoch.epoch)
        assert node.listener.offset_at_leadership[-1] == 1
        assert node.driver.high_watermark == node.driver.log_end_offset == 1

        stored = json.loads(content_of(node, "quorum-state"))
        assert (stored["leaderId"], stored["leaderEpoch"], stored["data_version"]) == (1, 1, 0)
        assert stored["currentVoters"] == [{"voterId": 1}]

        ((header, batch),) = split_batches(bytes(segment_content(node)))
        assert (header.base_offset, header.partition_leader_epoch, header.is_control) == (0, 1, True)
        (record,) = iterate_control_records(batch)
        assert isinstance(record.message, LeaderChangeMessage)
        assert (record.message.version, record.message.leader_id) == (0, 1)
        assert [voter.voter_id for voter in record.message.voters] == [1]
        assert [voter.voter_id for voter in record.message.granting_voters] == [1]

    run(scenario)


def test_records_are_delivered_in_the_order_of_scheduling() -> None:
    """Offsets are assigned at once and without gaps. Batches arrive whole. Committing an offset commits all lower ones."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        offsets = [node.schedule(f"t{number}", f"u{number}") for number in range(20)]
        assert offsets == [2 + 2 * number for number in range(20)]
        assert node.driver.log_end_offset == 41
        assert node.listener.topics == []
        await node.committed(offsets[7])
        assert node.listener.topics[:16] == [name for number in range(8) for name in (f"t{number}", f"u{number}")]
        await node.committed(offsets[-1])
        assert node.driver.high_watermark == 41
        assert [len(batch.records) for batch in node.listener.batches] == [0] + [2] * 20
        assert {batch.epoch for batch in node.listener.batches} == {1}

    run(scenario)


def test_no_records_give_the_newest_offset() -> None:
    """Scheduling no records returns the newest offset, so that the caller waits for everything scheduled before."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        last = node.schedule("a")
        assert node.driver.schedule_append([], epoch=1) == last
        await node.committed(last)
        assert node.listener.topics == ["a"]

    run(scenario)


def test_nothing_is_committed_before_the_sync() -> None:
    """If the disk writes but does not sync, the records are in the file but no listener sees them."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        size = len(segment_content(node))
        node.disk.hang({"fsync"})
        offset = node.schedule("a")
        await world.until(lambda: len(segment_content(node)) > size)
        await world.sleep(1)
        assert node.driver.high_watermark == 1
        assert node.listener.topics == []
        node.disk.thaw()
        await node.committed(offset)
        assert node.listener.topics == ["a"]

    run(scenario)


def test_group_commit_joins_what_arrives_during_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred batches scheduled while a sync hangs are then written with a single append and a single sync."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        done: list[str] = []
        for name in ("append", "fsync"):
            monkeypatch.setattr(node.log_dir, name, noting(done, name, getattr(node.log_dir, name)))
        node.disk.hang({"fsync"})
        node.schedule("first")
        await world.until(lambda: done == ["append", "fsync"])
        offsets = [node.schedule(f"t{number}") for number in range(100)]
        await world.sleep(0.1)
        assert done == ["append", "fsync"]
        node.disk.thaw()
        await node.committed(offsets[-1])
        assert done == ["append", "fsync"] * 2
        assert len(node.listener.topics) == 101

    run(scenario)


def test_a_restart_recovers_everything_in_a_higher_epoch() -> None:
    """The log keeps its order and its epochs, and the new epoch has its own LeaderChange."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a", "b")
        await node.add("c")
        await node.restart()
        await node.leads()
        assert node.driver.leader_and_epoch.epoch == 2
        assert node.listener.topics == ["a", "b", "c"]
        assert [(batch.base_offset, batch.epoch) for batch in node.listener.batches] == [(0, 1), (1, 1), (3, 1), (4, 2)]
        # The listener gets the whole log before it is notified of the leadership.
        assert node.listener.offset_at_leadership[-1] == 5
        await node.add("d")
        assert node.listener.topics == ["a", "b", "c", "d"]

    run(scenario)


def test_torn_tail_of_the_metadata_log_is_cut_off() -> None:
    """A last batch that was half written when the power failed is dropped, and its offset is reused."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        whole = len(segment_content(node))
        await node.add("torn")
        node.crash()
        node.file(SEGMENT).rewrite(segment_content(node)[: whole + 40])
        await node.start()
        await node.leads()
        assert node.listener.topics == ["a"]
        assert len(world.events_named("metadata_log_recovered")) == 1
        assert await node.add("b") == 3

    run(scenario)


def test_a_lost_quorum_state_does_not_bring_an_old_epoch_back() -> None:
    """Without quorum-state, the next epoch must still be higher than the epoch of the newest batch in the log."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.restart()
        await node.leads()
        node.crash()
        node.disk.delete("__cluster_metadata-0/quorum-state")
        await node.start()
        await node.leads()
        assert node.driver.leader_and_epoch.epoch == 3

    run(scenario)


def test_a_damaged_quorum_state_is_fatal_with_its_name() -> None:
    """The error names the damaged file for the operator."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        node.crash()
        node.file("quorum-state").rewrite(b"{")
        await node.start()
        assert isinstance(node.failure, QuorumFailure)
        assert "/disks/one/__cluster_metadata-0/quorum-state" in str(node.failure)

    run(scenario)


def test_atomic_records_that_fit_no_batch_are_refused() -> None:
    """If atomic records do not fit into one batch, none of them is appended. Other records are split into batches."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        records = [ApiMessageAndVersion(NoOpRecord(), 0)] * 10_001
        with pytest.raises(RecordsTooLarge):
            node.driver.schedule_append(records, epoch=1)
        assert node.driver.log_end_offset == 1
        await node.committed(node.driver.schedule_append(records, epoch=1, atomic=False))
        assert [len(batch.records) for batch in node.listener.batches] == [0, 10_000, 1]

    run(scenario)


def test_only_the_leader_of_the_epoch_appends() -> None:
    """An append for any epoch but the current one raises, so a former leader cannot write into a later epoch."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        with pytest.raises(NotLeader):
            node.driver.schedule_append([topic("a")], epoch=0)
        with pytest.raises(NotLeader):
            node.driver.schedule_append([topic("a")], epoch=2)

    run(scenario)


def test_resignation_takes_back_what_was_not_appended() -> None:
    """Records already on disk are committed in the next epoch; the rest are dropped."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        node.disk.hang({"fsync"})
        size = len(segment_content(node))
        node.schedule("in-flight")
        await world.until(lambda: len(segment_content(node)) > size)
        node.schedule("pending")
        node.driver.resign(1)
        with pytest.raises(NotLeader):
            node.schedule("too late")
        node.disk.thaw()
        await world.until(
            lambda: node.listener.leaders[-1] == LeaderAndEpoch(BrokerId(1), node.driver.leader_and_epoch.epoch)
        )
        await node.leads()
        assert [leader.leader_id for leader in node.listener.leaders[-2:]] == [None, 1]
        assert node.listener.leaders[-1].epoch == 2
        assert node.listener.topics == ["in-flight"]
        await node.add("after")
        assert node.listener.topics == ["in-flight", "after"]

    run(scenario)


def test_resigning_an_older_epoch_does_nothing() -> None:
    """A late call to resign from an earlier epoch must not end the current one."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        node.driver.resign(0)
        assert node.driver.is_leader
        await node.add("a")

    run(scenario)


@pytest.mark.parametrize("operation", ["append", "fsync"])
def test_a_failing_metadata_directory_ends_run(operation: str) -> None:
    """The error reaches on_error first and is then raised by run(). Records that failed to be written are not committed."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        seen: list[LogDirError] = []
        node.log_dir.on_error = seen.append
        node.disk.fail_with(errno.EIO, {operation})
        node.schedule("a")
        await world.until(lambda: node.failure is not None)
        assert isinstance(node.failure, LogDirError)
        assert node.failure.errno_code == errno.EIO
        assert seen[0].operation == operation
        assert node.listener.topics == []

    run(scenario)


def test_an_unknown_record_is_fatal() -> None:
    """A daemon must not skip an unknown record, because the rest of the log builds on it."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        node.crash()
        unknown = encode_values_batch([b"\x01\x7f\x00"], base_offset=2, leader_epoch=1, timestamp_ms=0)
        node.file(SEGMENT).rewrite(segment_content(node) + bytes(unknown))
        await node.start()
        await world.until(lambda: node.failure is not None)
        assert isinstance(node.failure, QuorumFailure)
        assert "type 127" in str(node.failure)

    run(scenario)


def test_two_listeners_hear_the_same() -> None:
    """Listeners of one driver, as in a node with both roles, get the same batches, even if one registers late."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        await node.add("b")
        late = RecordingListener()
        node.driver.register(late)
        await world.until(lambda: late.leaders)
        assert late.batches == node.listener.batches
        await node.add("c")
        assert late.batches == node.listener.batches
        assert late.leaders == node.listener.leaders[-1:]

    run(scenario)


def test_a_listener_may_take_its_time_for_a_batch() -> None:
    """A listener needs a while for topic "b". What is committed meanwhile reaches it afterwards, in order and once; the
    other listener does not wait. Then the listener is called directly again."""

    @dataclass(slots=True)
    class Slow(RecordingListener):
        done: asyncio.Event = field(default_factory=asyncio.Event)
        is_busy: bool = False

        def handle_commit(self, batch: CommittedBatch) -> Coroutine[Any, Any, None] | None:
            assert not self.is_busy
            RecordingListener.handle_commit(self, batch)
            return self._finish() if self.topics[-1:] == ["b"] and batch.records else None

        async def _finish(self) -> None:
            self.is_busy = True
            await self.done.wait()
            self.is_busy = False

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        slow = Slow()
        node.driver.register(slow)
        await node.add("a")
        await world.until(lambda: slow.topics == ["a"])
        await node.add("b")
        await node.add("c")
        await node.add("d")
        assert node.listener.topics == ["a", "b", "c", "d"]
        assert slow.topics == ["a", "b"]
        assert slow.is_busy
        slow.done.set()
        await world.until(lambda: len(slow.topics) == 4)
        await node.add("e")
        assert slow.topics == node.listener.topics == ["a", "b", "c", "d", "e"]
        # A listener that catches up from disk may take its time, too.
        late = Slow()
        node.driver.register(late)
        await world.until(lambda: late.is_busy)
        await world.sleep(1)
        assert late.topics == ["a", "b"]
        late.done.set()
        await world.until(lambda: late.topics == slow.topics)

    run(scenario)


@pytest.mark.parametrize("is_leaving", [False, True])
def test_the_event_loop_runs_between_the_batches_of_a_listener_that_catches_up(
    is_leaving: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is delivered in whole batches, in order, and never too many of them in one step. A listener that is
    unregistered between two steps gets no further batch."""
    monkeypatch.setattr(commit_queue, "RECORDS_PER_STEP", 2)

    class Late(RecordingListener):
        def handle_commit(self, batch: CommittedBatch) -> Coroutine[Any, Any, None] | None:
            asyncio.get_running_loop().call_soon(self._end_of_step)
            return super().handle_commit(batch)

        def _end_of_step(self) -> None:
            if self.topics not in steps:
                steps.append(self.topics)
            if is_leaving and self.topics:
                nodes[0].driver.unregister(self)

    steps: list[list[str]] = []
    nodes: list[QuorumNode] = []

    async def scenario(world: SimulatedWorld) -> None:
        nodes.append(await leader(world))
        for names in ("a", "b", "cde", "f"):
            await nodes[0].add(*names)
        late = Late()
        nodes[0].driver.register(late)
        await world.sleep(1)
        # The first step has a LeaderChange, too.
        assert steps == ([[*"a"]] if is_leaving else [[*"a"], [*"ab"], [*"abcde"], [*"abcdef"]])
        await nodes[0].add("g")
        assert late.topics == [*("a" if is_leaving else "abcdefg")]

    run(scenario)


def test_the_rest_of_a_batch_is_dropped_with_its_listener() -> None:
    """The listener is unregistered in the step in which it returns the rest of its work. The rest never begins, and nothing
    warns that it did not."""

    class Leaving(RecordingListener):
        has_begun = False

        def handle_commit(self, batch: CommittedBatch) -> Coroutine[Any, Any, None] | None:
            super().handle_commit(batch)
            if self.topics[-1:] != ["b"]:
                return None
            nodes[0].driver.unregister(self)
            return self._finish()

        async def _finish(self) -> None:
            self.has_begun = True

    nodes: list[QuorumNode] = []

    async def scenario(world: SimulatedWorld) -> None:
        nodes.append(await leader(world))
        leaving = Leaving()
        nodes[0].driver.register(leaving)
        await nodes[0].add("a")
        await world.until(lambda: leaving.topics == ["a"])
        await nodes[0].add("b")
        await nodes[0].add("c")
        await world.sleep(1)
        assert leaving.topics == ["a", "b"]
        assert not leaving.has_begun

    run(scenario)


def test_a_state_that_is_given_up_is_replaced_by_a_new_listener() -> None:
    """When the leadership ends, a listener may replace itself with a new one, which gets the log from the beginning."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        old, fresh = node.listener, RecordingListener()

        class Replacing(RecordingListener):
            def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
                super().handle_leader_change(leader)
                if leader.leader_id is None:
                    node.driver.unregister(self)
                    node.driver.register(fresh)

        replacing = Replacing()
        node.driver.register(replacing)
        await world.until(lambda: replacing.leaders)
        node.driver.resign(1)
        await world.until(lambda: fresh.leaders and fresh.leaders[-1].leader_id == 1)
        await node.add("b")
        assert fresh.topics == old.topics == ["a", "b"]
        assert replacing.topics == ["a"]
        assert fresh.offset_at_leadership[-1] == 3

    run(scenario)


def test_bootstrap_records_come_from_formatting() -> None:
    """The controller gets the records of bootstrap.checkpoint, and the numbering that they select is in effect."""

    async def scenario(world: SimulatedWorld) -> None:
        node = QuorumNode(world, "one", 1)
        await format_node(node)
        await node.start()
        await node.leads()
        records = node.driver.load_bootstrap_records()
        assert records[0] == ApiMessageAndVersion(FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=21), 0)
        assert len(records) == 2
        assert node.driver.numbering is Numbering.KIP858
        await node.committed(node.driver.schedule_append(records, epoch=1))
        await node.restart()
        await node.leads()
        assert node.driver.numbering is Numbering.KIP858
        assert node.listener.records == [entry.record for entry in records]

    run(scenario)


@pytest.mark.parametrize("ends_with", [[], [AbortTransactionRecord()]])
def test_a_bootstrap_transaction_that_took_no_effect_does_not_select_the_numbering(ends_with: list[KnownRecord]) -> None:
    """The first controller did not finish its bootstrap transaction, which selected KIP-858's numbering. The next one writes
    the bootstrap records of a file that selects Apache's, so that is the log's numbering."""

    async def scenario(world: SimulatedWorld) -> None:
        node = QuorumNode(world, "one", 1)
        await format_node(node)
        await node.start()
        await node.leads()
        begun = [ApiMessageAndVersion(BeginTransactionRecord(), 0), *node.driver.load_bootstrap_records()]
        for records in (begun, [ApiMessageAndVersion(record, 0) for record in ends_with]):
            await node.committed(node.driver.schedule_append(records, epoch=1))
        node.crash()
        await format_node(node, Numbering.APACHE)
        await node.start()
        await node.leads()
        if not ends_with:
            abort = [ApiMessageAndVersion(AbortTransactionRecord(), 0)]
            await node.committed(node.driver.schedule_append(abort, epoch=2))
        assert node.driver.numbering is Numbering.APACHE
        assert len(node.driver.load_bootstrap_records()) == 1

    run(scenario)


def test_bootstrap_records_without_a_metadata_version_are_refused() -> None:
    """The controller could not write such records into an empty log, so the node ends with one line that names the file."""

    async def scenario(world: SimulatedWorld) -> None:
        node = QuorumNode(world, "one", 1)
        encoder = SnapshotEncoder(epoch=LeaderEpoch(0), numbering=Numbering.KIP858, written_ms=0)
        records = [ApiMessageAndVersion(NoOpRecord(), 0)]
        await write_bootstrap(node, b"".join([encoder.header(0), *encoder.records(records), encoder.footer()]))
        await node.start()
        assert str(node.failure) == "/disks/one/bootstrap.checkpoint names no metadata.version"

    run(scenario)


def test_a_driver_that_was_closed_does_not_run() -> None:
    """A node stopped during startup closes its driver before `run` starts. No election takes place then."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.driver.close()
        elected = len(node.listener.leaders)
        async with asyncio.TaskGroup() as group:
            await node.driver.run(group)
        await world.sleep(1)
        assert len(node.listener.leaders) == elected

    run(scenario)


def test_an_orderly_end_keeps_everything() -> None:
    """close() syncs the log, so the next start has nothing to repair."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await leader(world)
        await node.add("a")
        await node.driver.close()
        await world.until(lambda: not node.driver.is_leader)
        assert node.failure is None
        await node.restart()
        await node.leads()
        assert node.listener.topics == ["a"]
        assert world.events_named("metadata_log_recovered") == []

    run(scenario)


def test_the_same_seed_gives_the_same_run() -> None:
    """The whole history of a run, including its timing, depends only on the seed."""

    def trace(seed: int) -> str:
        world = SimulatedWorld(seed)

        async def scenario(world: SimulatedWorld) -> None:
            node = await leader(world)
            await node.add("a")
            await node.restart()
            await node.leads()

        world.run(scenario)
        return world.trace_hash()

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)


def test_the_server_configuration_is_all_that_the_driver_needs() -> None:
    """ServerConfig has every key that the driver reads, with Kafka's defaults, and its voters have the right type."""
    config: QuorumConfig = load_server_config(
        {
            "process.roles": "controller",
            "node.id": "1",
            "controller.quorum.voters": "1@one:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://one:9093",
            "log.dirs": "/disks/one",
        }
    )
    reference = Config()
    for key in Config.__slots__:
        assert getattr(config, key) == getattr(reference, key), key
