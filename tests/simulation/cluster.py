"""A whole cluster of production daemons on one simulated world: a controller, brokers with several disks, and a client.

Shell of the tests. The daemons are started by the code behind `kafka-server-start`, on disks formatted by the code behind
`kafka-storage`. A disk is named by its path (`/b1/d2`). One run of a node's process is called a *life*: a restart begins a
new life on the same disks.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from common.configuration.server import ServerConfig
from common.configuration.server_loading import load_server_config
from common.environment.interface import ListenFailed, LogDirError
from common.ids import BrokerId, DirectoryId, TopicId
from common.log_dirs.startup_scan import StartupError
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.metadata_version import DEFAULT_LEVEL
from common.metadata.registrations import BrokerRegistration, PartitionRegistration
from common.metadata.state import MetadataState
from common.metadata.topic_names import INTERNAL_TOPIC_NAMES
from common.net.node_channel import ChannelError, NodeChannel
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from common.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.protocol.numbering import Numbering
from common.raft.errors import QuorumFailure
from common.records.batch import split_batches
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import FeatureLevelRecord
from common.records.record import Record, encode_batch, iterate_records
from common.storage.meta_properties import parse_meta_properties
from common.time_units import NS_PER_S
from controller.core.eligibility import Eligibility
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.simulation.history import is_compacted
from tools.kafka.storage import format_directories
from tools.node.node import Node

CLUSTER_ID = "simulated-cluster-----"
CONTROLLER_ID = 100
CONTROLLER_PORT = 9093
BROKER_PORT = 9092

# With small values, the internal topics are compacted during a run.
INTERNAL_SEGMENT_BYTES = ("offsets.topic.segment.bytes", "transaction.state.log.segment.bytes")

# Shorter than Kafka's defaults, so that a scenario needs less virtual time.
FAST: Mapping[str, str] = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "5000",
    "diskraft.log.dir.operation.timeout.ms": "2000",
    "diskraft.log.dir.suspect.ms": "500",
    # So small that not all partitions fit into one answer.
    "replica.fetch.response.max.bytes": "500",
    "default.replication.factor": "3",
}


def rack_of(broker_id: int) -> str:
    """Returns the rack of a broker, if the cluster has racks."""
    return f"rack-{broker_id}"


class SimulatedCluster:
    """Call `await start()` first. Brokers are numbered from 1; disk `d` of broker `b` is `/b{b}/d{d}`."""

    def __init__(
        self,
        world: SimulatedWorld,
        *,
        brokers: int = 3,
        disks: int = 3,
        overrides: Mapping[str, str] | None = None,
        level: int = DEFAULT_LEVEL,
        numbering: Numbering = Numbering.KIP858,
        transaction_version: int = 0,
    ) -> None:
        self.world = world
        self.level = level
        self._numbering = numbering
        self._transaction_version = transaction_version
        self.broker_ids = list(range(1, brokers + 1))
        self._disks = dict.fromkeys(self.broker_ids, disks)
        self._overrides = {**FAST, **(overrides or {})}
        self.nodes: dict[int, Node] = {}
        self._stops: dict[int, asyncio.Future[None]] = {}

    def compacts(self, name: str) -> bool:
        """Whether the topic of this name is compacted during a run. Also takes the name of a partition or of its folder. By
        default no run fills a segment of an internal topic."""
        internals = INTERNAL_TOPIC_NAMES if INTERNAL_SEGMENT_BYTES[0] in self._overrides else ()
        return is_compacted(name) or name.startswith(internals)

    # --- nodes ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Formats every disk, starts every node, and waits until all brokers are unfenced."""
        for node_id in (CONTROLLER_ID, *self.broker_ids):
            config = self.config(node_id)
            for path in config.all_log_dirs:
                self.world.disk(path)
            await self.format(node_id)
            self.start_node(node_id)
        await self.until_running()

    async def format(self, node_id: int, *, ignore_formatted: bool = False) -> None:
        """Formats the node's disks with the code behind `kafka-storage format`."""
        await format_directories(
            self.world.node(f"format-{node_id}"),
            self.config(node_id),
            cluster_id=CLUSTER_ID,
            level=self.level,
            numbering=self._numbering,
            transaction_version=self._transaction_version,
            ignore_formatted=ignore_formatted,
        )

    def start_node(self, node_id: int, overrides: Mapping[str, str] | None = None) -> None:
        """Starts a stopped node on its disks. `overrides` changes its configuration for this life only."""
        properties = {**self.properties(node_id), **(overrides or {})}
        config = load_server_config(properties)
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stops[node_id] = stop
        # Remove the objects of the previous life, so that no test mistakes them for those of the new life.
        self.nodes.pop(node_id, None)

        async def main(env: SimulatedEnvironment) -> None:
            node = self.nodes[node_id] = Node(env, config, properties)
            try:
                await node.run(lambda: asyncio.shield(stop))
            except* (StartupError, ListenFailed, QuorumFailure, LogDirError) as group:
                # `kafka-server-start` prints the same reasons before it exits with status 1.
                env.log.critical("node_not_started", reason="; ".join(str(error) for error in group.exceptions))
                env.exit_code = 1
            env.die()

        self.world.start(self.name(node_id), main)

    def crash(self, node_id: int) -> None:
        """Kills the node's process (kill -9)."""
        self.world.crash(self.name(node_id))

    def pause(self, node_id: int) -> None:
        """Pauses the node's process (SIGSTOP)."""
        self.world.pause(self.name(node_id))

    def resume(self, node_id: int) -> None:
        """Lets a paused process go on (SIGCONT)."""
        self.world.resume(self.name(node_id))

    def power_cut(self, node_id: int) -> None:
        """Cuts the machine's power: data that its disks had not synced may be lost, whole or in part."""
        self.world.power_cut(self.name(node_id))

    def ask_to_stop(self, node_id: int) -> None:
        """Asks the node to shut down (SIGTERM). A second call has no effect."""
        if not self._stops[node_id].done():
            self._stops[node_id].set_result(None)

    async def until_running(self, within_seconds: float = 60) -> None:
        """Waits until every live broker is unfenced in the controller's image."""
        await self.world.until(
            lambda: all(
                broker_id in self.state.brokers and not self.state.brokers[broker_id].fenced  # type: ignore[index]
                for broker_id in self.broker_ids
                if not self.env(broker_id).is_dead
            ),
            within_seconds=within_seconds,
        )

    def last_words(self, node_id: int) -> str:
        """Returns the reason in the last event of an ended node, or an empty string if that event was not critical."""
        last = [event for event in self.world.events if event.node == self.name(node_id)][-1]
        return str(last.fields.get("reason")) if last.level == "critical" else ""

    async def until_registered_again(self, broker_id: int) -> None:
        """Waits for the registration of the broker's next incarnation."""
        known = self.world.events_named("broker_registered", self.name(broker_id))
        await self.world.until(lambda: len(self.world.events_named("broker_registered", self.name(broker_id))) > len(known))

    def env(self, node_id: int) -> SimulatedEnvironment:
        """Returns the node's present life, or its last one."""
        return self.world._nodes[self.name(node_id)]

    def name(self, node_id: int) -> str:
        return "controller" if node_id == CONTROLLER_ID else f"broker-{node_id}"

    def home(self, node_id: int) -> str:
        """Returns the path under which the node's disks are mounted."""
        return "/controller" if node_id == CONTROLLER_ID else f"/b{node_id}"

    def registration(self, broker_id: int) -> BrokerRegistration | None:
        """Returns the broker's registration in the controller's image."""
        return self.state.brokers.get(BrokerId(broker_id))

    def is_controller_active(self) -> bool:
        """Whether the controller is alive and has loaded its metadata log."""
        node = self.nodes.get(CONTROLLER_ID)
        if node is None or node.controller is None or self.env(CONTROLLER_ID).is_dead:
            return False
        return node.controller.controller.is_active

    def is_registered(self, broker_id: int, state: MetadataState) -> bool:
        """Whether the broker's registration in an image belongs to its present life."""
        node = self.nodes.get(broker_id)
        registration = state.brokers.get(BrokerId(broker_id))
        if node is None or node.broker is None or registration is None:
            return False
        return registration.incarnation_id == node.broker._incarnation_id

    def has_lost_directories(self, broker_id: int) -> bool:
        """Whether the broker has taken a configured directory offline in this life. Also True while the node has no broker
        object yet."""
        node = self.nodes.get(broker_id)
        if node is None or node.broker is None:
            return True
        return node.broker._directories.known.any_offline

    def disk(self, broker_id: int, number: int) -> SimulatedDisk:
        return self.world.disk(f"/b{broker_id}/d{number}")

    def disk_numbers(self, broker_id: int) -> range:
        """Returns the numbers of the broker's data disks. A controller has none."""
        return range(1, self._disks.get(broker_id, 0) + 1)

    def add_disk(self, broker_id: int) -> None:
        """Gives the broker a further data disk, which its next life uses. It is empty and has to be formatted."""
        self._disks[broker_id] += 1
        self.world.disk(f"{self.home(broker_id)}/d{self._disks[broker_id]}")

    def disk_of(self, broker_id: BrokerId, directory_id: DirectoryId) -> SimulatedDisk:
        """Returns the disk that was formatted with this directory.id."""
        for number in self.disk_numbers(broker_id):
            disk = self.disk(broker_id, number)
            content = disk.files().get("meta.properties")
            if content is not None and parse_meta_properties(content).directory_id == directory_id:
                return disk
        raise AssertionError(f"no disk of broker {broker_id} has this directory.id")

    def disk_of_replica(self, broker_id: BrokerId, topic: str, index: int = 0) -> SimulatedDisk:
        """Returns the disk in which the replica is, according to the metadata."""
        partition = self.partition(topic, index)
        return self.disk_of(broker_id, partition.directories[partition.replicas.index(broker_id)])

    def other_disk(self, broker_id: BrokerId, topic: str, index: int = 0) -> SimulatedDisk:
        """Returns the first disk of the broker in which the replica is not."""
        disks = (self.disk(broker_id, number) for number in self.disk_numbers(broker_id))
        current = self.disk_of_replica(broker_id, topic, index)
        return next(disk for disk in disks if disk is not current)

    def fail_disk(self, broker_id: BrokerId, directory_id: DirectoryId) -> None:
        """Makes every operation that needs this disk fail with EIO until the disk is healed."""
        self.disk_of(broker_id, directory_id).fail_with(errno.EIO)

    @property
    def state(self) -> MetadataState:
        """The controller's image."""
        node = self.nodes.get(CONTROLLER_ID)
        if node is None or node.controller is None:
            return MetadataState()
        return node.controller.controller.state

    def config(self, node_id: int) -> ServerConfig:
        return load_server_config(self.properties(node_id))

    def properties(self, node_id: int) -> dict[str, str]:
        is_controller = node_id == CONTROLLER_ID
        home = self.home(node_id)
        data_dirs = [f"{home}/d{number}" for number in self.disk_numbers(node_id)]
        name = self.name(node_id)
        return {
            "process.roles": "controller" if is_controller else "broker",
            "node.id": str(node_id),
            "controller.quorum.voters": f"{CONTROLLER_ID}@controller:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{name}:{CONTROLLER_PORT}" if is_controller else f"PLAINTEXT://{name}:{BROKER_PORT}",
            "log.dirs": f"{home}/metadata" if is_controller else ",".join(data_dirs),
            "metadata.log.dir": f"{home}/metadata",
            # Each broker is a rack of its own where consumers read from the replica in their rack.
            **(
                {"broker.rack": rack_of(node_id)}
                if "replica.selector.class" in self._overrides and not is_controller
                else {}
            ),
            **self._overrides,
        }

    # --- metadata ------------------------------------------------------------------------------------------------

    def finalize_feature(self, name: str, level: int) -> None:
        """Appends a feature level record, as the controller of another release would. The active controller does not check
        the level."""
        node = self.nodes[CONTROLLER_ID].controller
        assert node is not None
        record = ApiMessageAndVersion(FeatureLevelRecord(name=name, feature_level=level), 0)
        node.controller._driver.schedule_append([record], epoch=node.controller.leader.epoch)

    def topic_id(self, topic: str) -> TopicId:
        return self.state.topic_ids[topic]

    def partition(self, topic: str, index: int) -> PartitionRegistration:
        found = self.state.partition(self.topic_id(topic), index)
        assert found is not None
        return found

    def partitions(self, topic: str) -> dict[int, PartitionRegistration]:
        found = self.state.topic_named(topic)
        return {} if found is None else found.partitions

    def is_writable(self, partition: PartitionRegistration) -> bool:
        """Whether some ISR member could lead: in the controller's image its broker is alive and its directory is online."""
        eligibility = Eligibility(self.state)
        return any(eligibility.is_eligible(member, partition.directory(member)) for member in partition.isr)

    async def until_in_sync(self, topic: str, within_seconds: float = 60) -> None:
        """Waits until each partition of the topic has a leader, and every replica is in the ISR and assigned to a
        directory."""
        await self.world.until(
            lambda: (
                bool(self.partitions(topic))
                and all(
                    part.has_leader and set(part.isr) == set(part.replicas) and UNASSIGNED not in part.directories
                    for part in self.partitions(topic).values()
                )
            ),
            within_seconds=within_seconds,
        )


class NotAcknowledged(Exception):
    """A produce request got an error or no response. The record may be in the log nevertheless."""


class SimulatedClient:
    """Produces and fetches over Kafka's protocol. Looks up leaders in the controller's image, where a real client would use
    Metadata requests."""

    def __init__(self, cluster: SimulatedCluster, task_group: asyncio.TaskGroup) -> None:
        self._cluster = cluster
        self._env = cluster.world.node("client")
        self._task_group = task_group
        self._channels: dict[int, NodeChannel] = {}
        self.acknowledged: dict[tuple[str, int], dict[int, bytes]] = {}
        """Offset -> value of every acknowledged record, by topic and partition."""

    async def create_topic(self, name: str, *, partitions: int, replication_factor: int = 3, **configs: str) -> None:
        """Creates a topic and waits until all its replicas are in sync. Write '_' for '.' in configuration keys."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        live = next(id_ for id_ in self._cluster.broker_ids if not self._cluster.env(id_).is_dead)
        response = await self._send(live, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert [result.error_code for result in response.topics] == [ErrorCode.NONE], response.topics
        await self._cluster.until_in_sync(name)

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and waits for the response."""
        live = next(id_ for id_ in self._cluster.broker_ids if not self._cluster.env(id_).is_dead)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
        response = await self._send(live, request)
        assert [result.error_code for result in response.responses] == [ErrorCode.NONE], response.responses

    async def move(self, broker_id: BrokerId, topic: str, index: int, target: SimulatedDisk) -> None:
        """Has the broker begin to move its replica to this disk."""
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=[index])]
        response = await self.ask(
            broker_id, AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target.path, topics=topics)])
        )
        assert response.results[0].partitions[0].error_code == ErrorCode.NONE, response.results

    async def ask(self, broker_id: int, request: Any, *, seconds: float = 30) -> Any:
        """Sends a request of any kind to a broker and returns the response. Raises ChannelError."""
        return await self._send(broker_id, request, seconds=seconds)

    def close(self) -> None:
        """Closes every connection."""
        for channel in self._channels.values():
            channel.close()

    async def produce(self, topic: str, index: int, value: bytes, *, acks: int = -1, within_seconds: float = 30) -> int:
        """Writes one record, retrying until it is acknowledged, and returns its offset."""
        deadline_ns = self._env.now_ns() + round(within_seconds * NS_PER_S)
        seen: object = None
        while self._env.now_ns() < deadline_ns:
            try:
                return await self.produce_once(topic, index, value, acks=acks)
            except NotAcknowledged as refusal:
                seen = refusal
            await self._env.sleep_until(self._env.now_ns() + NS_PER_S // 50)
        raise AssertionError(f"{topic}-{index}: not acknowledged within {within_seconds} s; last answer {seen!r}")

    async def produce_once(self, topic: str, index: int, value: bytes, *, acks: int = -1) -> int:
        """Tries once to write a record and returns its offset. Raises NotAcknowledged."""
        if topic not in self._cluster.state.topic_ids:
            raise NotAcknowledged("the controller is loading")
        leader = self._cluster.partition(topic, index).leader
        if leader < 0:
            raise NotAcknowledged(ErrorCode.LEADER_NOT_AVAILABLE.name)
        batch = encode_batch([Record(key=None, value=value, timestamp_ms=self._env.wall_ms())])
        request = ProduceRequest(
            acks=acks,
            timeout_ms=2_000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=self._cluster.state.topic_ids[topic],
                    partition_data=[PartitionProduceData(index=index, records=bytes(batch))],
                )
            ],
        )
        try:
            response = await self._send(leader, request, seconds=3)
        except ChannelError as error:
            raise NotAcknowledged(str(error)) from error
        answer = response.responses[0].partition_responses[0]
        if answer.error_code != ErrorCode.NONE:
            raise NotAcknowledged(ErrorCode(answer.error_code).name)
        # If this is the second record at its offset, the first one was lost, and must be missed.
        self.acknowledged.setdefault((topic, index), {}).setdefault(answer.base_offset, value)
        return int(answer.base_offset)

    async def read_all(self, topic: str, index: int) -> dict[int, bytes]:
        """Reads all records up to the high watermark from the present leader. Returns values by offset."""
        found: dict[int, bytes] = {}
        offset = 0
        give_up_ns = self._env.now_ns() + 30 * NS_PER_S
        while True:
            leader = self._cluster.partition(topic, index).leader
            request = FetchRequest(
                max_wait_ms=10,
                min_bytes=1,
                topics=[
                    FetchTopic(
                        topic_id=self._cluster.topic_id(topic),
                        partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)],
                    )
                ],
            )
            response = await self._send(leader, request)
            data = response.responses[0].partitions[0]
            if data.error_code != ErrorCode.NONE:
                # The controller's image may be slightly ahead of the broker's, so the broker may not know yet that it leads.
                assert self._env.now_ns() < give_up_ns, f"{topic}-{index}: {ErrorCode(data.error_code).name}"
                await self._env.sleep_until(self._env.now_ns() + NS_PER_S // 50)
                continue
            for header, view in split_batches(memoryview(data.records or b"")):
                for record in iterate_records(view):
                    if record.offset >= offset and record.value is not None:
                        found[record.offset] = bytes(record.value)
                offset = header.next_offset
            if offset >= data.high_watermark:
                return found

    async def assert_nothing_lost(self) -> None:
        """Checks that every acknowledged record is at its offset, with its value."""
        for (topic, index), expected in self.acknowledged.items():
            found = await self.read_all(topic, index)
            missing = [offset for offset, value in expected.items() if found.get(offset) != value]
            assert not missing, f"{topic}-{index} lost what was acknowledged at the offsets {missing}"

    async def _send(self, broker_id: int, request: Any, *, seconds: float = 30) -> Any:
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = NodeChannel(
                self._env,
                host=f"broker-{broker_id}",
                port=BROKER_PORT,
                client_id="client",
                task_group=self._task_group,
            )
        return await channel.send(request, deadline_ns=self._env.now_ns() + round(seconds * NS_PER_S))


Scenario = Callable[[SimulatedCluster, SimulatedClient], Awaitable[None]]


def run(scenario: Scenario, *, seed: int = 1, brokers: int = 3, disks: int = 3, **overrides: str) -> SimulatedWorld:
    """Starts a cluster, runs a scenario on it, and checks that no acknowledged record was lost. Write '_' for '.' in the
    keys of `overrides`."""
    world = SimulatedWorld(seed)

    async def whole(_: SimulatedWorld) -> None:
        properties = {key.replace("_", "."): value for key, value in overrides.items()}
        cluster = SimulatedCluster(world, brokers=brokers, disks=disks, overrides=properties)
        await cluster.start()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await scenario(cluster, client)
            await client.assert_nothing_lost()
            client.close()

    world.run(whole)
    return world
