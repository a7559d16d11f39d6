"""Nodes with a quorum driver in a simulated world, and a listener that records its calls."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from common.environment.interface import Environment, LogDir, LogDirError
from common.ids import BrokerId, DirectoryId, Offset, TopicId, Uuid
from common.net.node_channel import NodeChannel
from common.net.request_server import RequestServer
from common.protocol.api_keys import ApiKey
from common.protocol.numbering import Numbering
from common.raft.bootstrap import bootstrap_records, make_bootstrap_checkpoint
from common.raft.core.leader_endpoints import QuorumEndpoint
from common.raft.core.offsets import METADATA_LOG_FOLDER
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch
from common.raft.driver import QuorumDriver
from common.raft.errors import QuorumFailure
from common.raft.listener import LoadedSnapshot
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import KnownRecord, TopicRecord
from common.time_units import NS_PER_S
from tests.simulation.disk_store import FileNode
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld

PORT = 9093
CLUSTER_ID = "the-cluster"
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The keys of server.properties that the driver reads, with Kafka's defaults."""

    metadata_log_segment_bytes: int = 1024 * MEBIBYTE
    metadata_log_segment_ms: int = 7 * 24 * 3_600_000
    metadata_max_retention_bytes: int = 100 * MEBIBYTE
    metadata_max_retention_ms: int = 7 * 24 * 3_600_000
    metadata_log_max_record_bytes_between_snapshots: int = 20 * MEBIBYTE
    metadata_log_max_snapshot_interval_ms: int = 3_600_000
    controller_quorum_request_timeout_ms: int = 2_000
    controller_quorum_retry_backoff_ms: int = 20
    controller_listener_names: tuple[str, ...] = ("CONTROLLER",)


@dataclass(slots=True)
class RecordingListener:
    """Records what the driver reports to a listener, in the order of arrival."""

    batches: list[CommittedBatch] = field(default_factory=list)
    records: list[KnownRecord] = field(default_factory=list)
    snapshots: list[tuple[Offset, int]] = field(default_factory=list)
    leaders: list[LeaderAndEpoch] = field(default_factory=list)
    next_offset: int = 0
    # The value of `next_offset` at each leader change that was reported.
    offset_at_leadership: list[int] = field(default_factory=list)

    def handle_commit(self, batch: CommittedBatch) -> Coroutine[Any, Any, None] | None:
        assert batch.base_offset == self.next_offset
        self.batches.append(batch)
        self.records += batch.records
        self.next_offset = batch.next_offset
        return None

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.snapshots.append((snapshot.end_offset, snapshot.epoch))
        self.batches.clear()
        self.records[:] = snapshot.records
        self.next_offset = snapshot.end_offset

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)
        self.offset_at_leadership.append(self.next_offset)

    @property
    def topics(self) -> list[str]:
        """The topic names in log order."""
        return [record.name for record in self.records if isinstance(record, TopicRecord)]


class QuorumNode:
    """A node with one driver. After a crash, `start` starts it again on the same disk."""

    def __init__(
        self,
        world: SimulatedWorld,
        name: str,
        node_id: int,
        *,
        config: Config | None = None,
        cluster_id: str = CLUSTER_ID,
        voters: tuple[QuorumEndpoint, ...] = (QuorumEndpoint(BrokerId(1), "one", PORT),),
    ) -> None:
        self.world = world
        self.name = name
        self.node_id = BrokerId(node_id)
        self.config = config or Config()
        self.cluster_id = cluster_id
        self.voters = voters
        self.path = f"/disks/{name}"
        self.disk = world.disk(self.path)
        self.directory_id = DirectoryId(Uuid(bytes([node_id]) * 16))

    async def start(self) -> "QuorumNode":
        """Starts the driver. Returns once it has recovered and is running."""
        self.listener = RecordingListener()
        self.failure: Exception | None = None
        self.env: SimulatedEnvironment = self.world.node(self.name)
        running = asyncio.Event()
        # The previous run may end after this one has started. It sets its event when it ends, so each run has its own event.
        self.env.start(lambda env: self._main(env, running))
        await running.wait()
        return self

    async def _main(self, env: Environment, running: asyncio.Event) -> None:
        try:
            await self._serve(env, running)
        finally:
            running.set()

    async def _serve(self, env: Environment, running: asyncio.Event) -> None:
        self.log_dir: LogDir = env.log_dir(self.path, operation_timeout_ns=10 * NS_PER_S)
        await self.log_dir.attach(create=True)
        async with asyncio.TaskGroup() as task_group:
            self.task_group = task_group

            def channel(host: str, port: int) -> NodeChannel:
                return NodeChannel(env, host=host, port=port, client_id=self.name, task_group=task_group)

            try:
                driver = self.driver = await QuorumDriver.open(
                    env,
                    self.config,
                    node_id=self.node_id,
                    cluster_id=self.cluster_id,
                    log_dir=self.log_dir,
                    directory_id=self.directory_id,
                    voters=self.voters,
                    channels=channel,
                )
            except (LogDirError, QuorumFailure) as error:
                self.failure = error
                return
            driver.register(self.listener)
            server = self.server = RequestServer(
                env,
                listener_name="CONTROLLER",
                host="",
                port=PORT,
                handlers={
                    ApiKey.FETCH: driver.handle_fetch,
                    ApiKey.FETCH_SNAPSHOT: driver.handle_fetch_snapshot,
                    ApiKey.DESCRIBE_QUORUM: driver.handle_describe_quorum,
                },
                max_request_bytes=MEBIBYTE,
                task_group=task_group,
            )
            server.start()
            running.set()
            try:
                await driver.run(task_group)
            except (LogDirError, QuorumFailure) as error:
                self.failure = error
            finally:
                server.close()

    def crash(self) -> None:
        """Simulates kill -9: bytes that have reached the kernel survive."""
        self.world.crash(self.name)

    async def restart(self) -> "QuorumNode":
        self.crash()
        return await self.start()

    # --- queries -------------------------------------------------------------------------------------------------
    async def leads(self) -> None:
        """Waits until the listener has been notified that this node leads the newest epoch."""
        await self.world.until(
            lambda: (
                self.listener.leaders
                and self.listener.leaders[-1].leader_id == self.node_id
                and self.listener.leaders[-1].epoch == self.driver.leader_and_epoch.epoch
            )
        )

    async def has(self, *topics: str) -> None:
        """Waits until the listener has exactly these topics, in this order, and the log what the listener has."""
        await self.world.until(
            lambda: self.listener.topics == list(topics) and self.driver._log.log.written_offset >= self.listener.next_offset
        )

    async def add(self, *topics: str) -> int:
        """Appends the topics as one batch and waits for the commit. Returns the last offset."""
        offset = self.schedule(*topics)
        await self.committed(offset)
        return offset

    async def committed(self, offset: int) -> None:
        """Waits until the listener has the record at this offset."""
        await self.world.until(lambda: self.listener.next_offset > offset)

    def schedule(self, *topics: str) -> int:
        epoch = self.driver.leader_and_epoch.epoch
        return self.driver.schedule_append([topic(name) for name in topics], epoch=epoch)

    def files(self) -> list[str]:
        """Returns the file names in the folder of the metadata log."""
        return sorted(self.disk.folder(METADATA_LOG_FOLDER).entries)

    def file(self, name: str) -> FileNode:
        """Returns a file in the folder of the metadata log."""
        entry = self.disk.find(f"{METADATA_LOG_FOLDER}/{name}")
        assert isinstance(entry, FileNode)
        return entry


async def leader(world: SimulatedWorld, config: Config | None = None) -> QuorumNode:
    """Starts the only voter. Returns once it leads."""
    node = await QuorumNode(world, "one", 1, config=config).start()
    await node.leads()
    return node


def topic(name: str) -> ApiMessageAndVersion:
    topic_id = TopicId(Uuid(name.encode().rjust(16, b"#")[:16]))
    return ApiMessageAndVersion(TopicRecord(name=name, topic_id=topic_id), 0)


async def format_node(node: QuorumNode, numbering: Numbering = Numbering.KIP858) -> None:
    """Puts a bootstrap.checkpoint on the node's disk, as `kafka-storage format` does."""
    await write_bootstrap(node, make_bootstrap_checkpoint(bootstrap_records(numbering=numbering)))


async def write_bootstrap(node: QuorumNode, content: bytes) -> None:
    """Puts this bootstrap.checkpoint on the node's disk."""
    env = node.world.node(f"formatter-of-{node.name}")
    log_dir = env.log_dir(node.path, operation_timeout_ns=NS_PER_S)
    await log_dir.attach(create=True)
    await log_dir.replace_file("bootstrap.checkpoint", content)
    await log_dir.close()
