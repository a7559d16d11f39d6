"""A driver on the files of Apache Kafka's controllers, whose log names the voters (KIP-853)."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from common.ids import Offset
from common.protocol.numbering import Numbering
from common.raft.core.offsets import METADATA_LOG_FOLDER, ORIGIN, OffsetAndEpoch, snapshot_path
from common.raft.core.quorum_records import QuorumRecords
from common.raft.core.snapshot_content import SnapshotEncoder, parse_snapshot
from common.records.control import KRaftVersionRecord, Voter, VoterEndpoint, VotersRecord, encode_control_batch
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import BeginTransactionRecord, EndTransactionRecord
from common.time_units import NS_PER_S
from tests.simulation.disk_store import FileNode
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.raft.nodes import PORT, Config, QuorumNode, topic

FOLDER = "/disks/one/__cluster_metadata-0"


def voters(*node_ids: int, host: str = "one") -> QuorumRecords:
    endpoint = VoterEndpoint(name="CONTROLLER", host=host, port=PORT)
    named = [Voter(voter_id=node_id, endpoints=[endpoint]) for node_id in node_ids]
    return QuorumRecords(KRaftVersionRecord(k_raft_version=1), VotersRecord(voters=named))


def run(scenario: Callable[[SimulatedWorld], Coroutine[Any, Any, None]]) -> None:
    SimulatedWorld(seed=7).run(scenario)


async def formatted(world: SimulatedWorld, records: QuorumRecords, config: Config | None = None) -> QuorumNode:
    """Returns a node that was never started, formatted by Apache Kafka with these voters."""
    node = QuorumNode(world, "one", 1, config=config)
    log_dir = world.node("formatter").log_dir(node.path, operation_timeout_ns=NS_PER_S)
    await log_dir.attach(create=True)
    await log_dir.mkdir(METADATA_LOG_FOLDER)
    await log_dir.close()
    add_snapshot(node, ORIGIN, records)
    return node


def add_snapshot(node: QuorumNode, snapshot_id: OffsetAndEpoch, records: QuorumRecords) -> None:
    encoder = SnapshotEncoder(epoch=snapshot_id.epoch, numbering=Numbering.APACHE, written_ms=0)
    content = encoder.header(0, records.messages) + encoder.footer()
    node.disk.folder(METADATA_LOG_FOLDER).entries[name_of(snapshot_id)] = FileNode(content, 0)


def append_to_log(node: QuorumNode, records: QuorumRecords) -> None:
    """Puts the records at the end of a crashed node's log."""
    epoch = node.driver.leader_and_epoch.epoch
    end_offset = node.driver.log_end_offset
    batch = encode_control_batch(records.messages, timestamp_ms=5, base_offset=end_offset, leader_epoch=epoch)
    segment = node.file([name for name in node.files() if name.endswith(".log")][-1])
    segment.rewrite(bytes(segment.content) + batch)


def name_of(snapshot_id: OffsetAndEpoch) -> str:
    return snapshot_path(snapshot_id).removeprefix(f"{METADATA_LOG_FOLDER}/")


def records_in(node: QuorumNode, snapshot_id: OffsetAndEpoch) -> QuorumRecords:
    return parse_snapshot(bytes(node.file(name_of(snapshot_id)).content)).quorum_records


async def written(node: QuorumNode) -> QuorumRecords:
    """Writes a snapshot and returns its quorum records."""
    snapshot_id = await node.driver.write_snapshot()
    assert snapshot_id is not None
    return records_in(node, snapshot_id)


def test_snapshots_keep_the_voters() -> None:
    """They come from the snapshot with which Apache Kafka formatted the log, then from the log, then from the snapshot
    before. Each of these can be the only place that still names them."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await (await formatted(world, voters(1), Config(metadata_max_retention_bytes=1))).start()
        await node.leads()
        await node.add("a")
        assert await written(node) == voters(1)
        node.crash()
        append_to_log(node, QuorumRecords(voters=voters(1, host="elsewhere").voters))
        await node.start()
        await node.leads()
        await node.add("b")
        assert await written(node) == voters(1, host="elsewhere")
        await node.add("c")
        assert await written(node) == voters(1, host="elsewhere")
        assert node.driver.log_start_offset > 0
        await node.restart()
        await node.leads()
        await node.add("d")
        assert await written(node) == voters(1, host="elsewhere")
        assert node.listener.topics == ["a", "b", "c", "d"]

    run(scenario)


def test_a_snapshot_holds_the_voters_of_its_end_offset() -> None:
    """The voters changed after the beginning of a transaction that is still open, so the snapshot ends before the change."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await (await formatted(world, voters(1))).start()
        await node.leads()
        await node.add("a")
        epoch = node.driver.leader_and_epoch.epoch
        begun = [ApiMessageAndVersion(BeginTransactionRecord(), 0), topic("half")]
        await node.committed(node.driver.schedule_append(begun, epoch=epoch))
        node.crash()
        append_to_log(node, voters(1, host="elsewhere"))
        await node.start()
        await node.leads()
        assert await written(node) == voters(1)
        epoch = node.driver.leader_and_epoch.epoch
        await node.committed(node.driver.schedule_append([ApiMessageAndVersion(EndTransactionRecord(), 0)], epoch=epoch))
        assert await written(node) == voters(1, host="elsewhere")

    run(scenario)


@pytest.mark.parametrize("place", ["format", "log", "snapshot"])
def test_a_voter_of_several_does_not_start(place: str) -> None:
    """The others would go on with a leader of their own. It does not matter where the log names them."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await formatted(world, voters(1, 2, 3) if place == "format" else voters(1))
        if place != "format":
            await node.start()
            await node.leads()
            snapshot_id = OffsetAndEpoch(Offset(await node.add("a") + 1), node.driver.leader_and_epoch.epoch)
            node.crash()
            if place == "log":
                append_to_log(node, voters(1, 2, 3))
            else:
                add_snapshot(node, snapshot_id, voters(1, 2, 3))
        await node.start()
        assert str(node.failure) == (
            f"{FOLDER} names the voters 1, 2, 3, and a quorum of one is served: start Apache Kafka's controllers once more, "
            "and remove all but node 1 with kafka-metadata-quorum remove-controller"
        )

    run(scenario)


def test_a_node_that_is_no_voter_any_more_does_not_start() -> None:
    """Its own log says that another node is the only voter."""

    async def scenario(world: SimulatedWorld) -> None:
        node = await (await formatted(world, voters(2))).start()
        assert "names the voters 2, and" in str(node.failure)

    run(scenario)


def test_an_observer_keeps_the_voters_of_its_leader() -> None:
    """A broker's snapshots name the voters as well, and their number does not matter to it."""

    async def scenario(world: SimulatedWorld) -> None:
        leader = await (await formatted(world, voters(1))).start()
        await leader.leads()
        leader.crash()
        append_to_log(leader, voters(1, host="elsewhere"))
        await leader.start()
        await leader.leads()
        follower = await QuorumNode(world, "two", 2).start()
        await leader.add("a")
        await follower.has("a")
        assert await written(follower) == voters(1, host="elsewhere")

    run(scenario)
