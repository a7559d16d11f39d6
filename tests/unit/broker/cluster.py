"""The data path of brokers in a simulated world. The controller is a plain list of metadata records.

Each broker runs the real Replicas, handlers, request server, fetchers and AlterPartition sender on simulated disks and
network. `ClusterController.commit` delivers records to all running brokers at once. On its own, the controller commits only
the ISR changes that it accepts in AlterPartition, so the test controls everything else in the metadata.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from broker.controller_link.alter_partition import AlterPartitionSender
from broker.controller_link.controller_channel import ControllerUnavailable
from broker.coordinator.broker_channels import BrokerChannels
from broker.coordinator.coordinator_partition import CoordinatorSettings
from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.key_partitions import KeyPartitions
from broker.coordinator.core.transactions.verification import AddRetries
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.transaction_verifier import AskHere, TransactionVerifier
from broker.core.current_configuration import CurrentConfiguration
from broker.core.directory_reports import DirectoryReports
from broker.core.partition_replica import Role
from broker.core.replica_selector import replica_selector
from broker.hosting.partition import Partition
from broker.hosting.replicas import Replicas
from broker.requests.consumer_groups import ConsumerGroupRequests
from broker.requests.delete_records import DeleteRecordsHandler
from broker.requests.describe_producers import DescribeProducersRequests
from broker.requests.fetch import FetchHandler
from broker.requests.fetch_session import fetch_sessions
from broker.requests.group_offsets import GroupOffsetsRequests
from broker.requests.groups import GroupRequests
from broker.requests.list_offsets import ListOffsetsHandler
from broker.requests.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.requests.produce import ProduceHandler
from broker.requests.write_txn_markers import MarksOffsets, WriteTxnMarkersRequests
from common.configuration.resolver import ConfigResolver
from common.configuration.server import ServerConfig
from common.configuration.server_loading import load_server_config
from common.environment.interface import LogDir, LogDirError
from common.ids import ZERO_UUID, BrokerEpoch, BrokerId, DirectoryId, Offset, TopicId, TopicIdPartition, Uuid
from common.light_tasks import LightTasks
from common.log_dirs.failure_channel import FailureChannel
from common.log_dirs.log_directories import LogDirectories, LogDirectory, WentOffline
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.net.node_channel import ChannelError, NodeChannel
from common.net.request_context import Handler
from common.net.request_server import RequestServer
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from common.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from common.records.batch import split_batches
from common.records.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    ConfigResourceType,
    FencingChange,
    KnownRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from common.records.record import Record, encode_batch, iterate_records
from common.time_units import NS_PER_MS, NS_PER_S
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld

LISTENER = "PLAINTEXT"
PORT = 9092
TOPIC = TopicId(Uuid(b"T" * 16))
DEFAULTS = {
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "100@controller:9093",
    "listeners": f"{LISTENER}://:{PORT}",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.backoff.ms": "200",
    "diskraft.log.dir.operation.timeout.ms": "2000",
}


def directory(broker_id: int, letter: str) -> DirectoryId:
    """The id of a broker's directory "a", "b", ..."""
    return DirectoryId(Uuid(f"{broker_id}{letter}".encode().rjust(16, b"-")))


def path(broker_id: int, letter: str) -> str:
    return f"/disks/{broker_id}/{letter}"


def at_once(work: Iterable[None]) -> None:
    """Carries out work that a daemon does in slices."""
    for _ in work:
        pass


def _connect(env: SimulatedEnvironment, group: asyncio.TaskGroup) -> Callable[[str, int], NodeChannel]:
    return lambda host, port: NodeChannel(env, host=host, port=port, client_id=env.name, task_group=group)


class TestBroker:
    """One incarnation of a broker. `ready` completes when the broker accepts requests."""

    __test__ = False

    def __init__(self, cluster: "Cluster", broker_id: int, env: SimulatedEnvironment, letters: str, port: int) -> None:
        self.cluster = cluster
        self.broker_id = BrokerId(broker_id)
        self.env = env
        self.letters = letters
        self.port = port
        properties = {
            **DEFAULTS,
            "node.id": str(broker_id),
            "log.dirs": ",".join(path(broker_id, letter) for letter in letters),
        } | cluster.properties
        self.config: ServerConfig = load_server_config(properties, host_name=env.name)
        self.state = MetadataState()
        self.configuration = CurrentConfiguration(ConfigResolver(self.config, properties), self.state)
        self.log_dirs: dict[DirectoryId, LogDir] = {}
        self.directories: LogDirectories
        self.failures: FailureChannel
        # The delay between a directory going offline in LogDirectories and the replicas being notified.
        self.offline_delay_ns = 0
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.shut_down = asyncio.Event()
        self.epoch: BrokerEpoch | None = None
        self.previous_directories: Sequence[DirectoryId] | None = None
        self.replicas: Replicas
        self.groups: GroupCoordinator
        self.verifier: TransactionVerifier
        self.server: RequestServer

    async def main(self, env: SimulatedEnvironment) -> None:
        delta = MetadataDelta()
        for offset, record in enumerate(self.cluster.controller.records):
            self.state.replay(record, offset=Offset(offset), delta=delta)
        found = [await self._open(letter) for letter in self.letters]
        metadata = await self._open("metadata")
        self.reports = DirectoryReports()
        self.directories = LogDirectories(
            [*found, metadata],
            data_dirs=[each.path for each in found],
            metadata_dir=metadata.path,
        )
        self.failures = FailureChannel(
            env,
            self.directories,
            on_offline=self._went_offline,
            # Tests may fail a broker's last directory and expect the broker to keep running, so a halt does nothing.
            halt=lambda _reason: None,
        )
        self.failures.watch(self.log_dirs.values())
        async with asyncio.TaskGroup() as group:
            sender = AlterPartitionSender(
                env,
                self.cluster.controller,
                broker_id=self.broker_id,
                broker_epoch=lambda: self.epoch,
                topic_name=lambda topic_id: self.state.topics[topic_id].name,
            )
            self.key_partitions = KeyPartitions(self.state)
            self.groups = self._make_groups(env, group)
            self.verifier = self._make_verifier(env, group)
            self.replicas = self._make_replicas(env, group, sender)
            self.groups.watch(self.replicas.suspected)
            light_tasks = LightTasks()
            working = [
                group.create_task(each) for each in (sender.run(), self.failures.run(), light_tasks.run_until_cancelled())
            ]
            self.configuration.refresh()
            await self.replicas.load(self.previous_directories)
            at_once(self.replicas.apply(delta))
            self.server = self._make_server(env, group, light_tasks)
            self.server.start()
            self.cluster.brokers[self.broker_id] = self
            self.ready.set_result(None)
            await self.shut_down.wait()
            self.server.close()
            await self.replicas.shutdown()
            for task in working:
                task.cancel()

    def _make_groups(self, env: SimulatedEnvironment, group: asyncio.TaskGroup) -> GroupCoordinator:
        return GroupCoordinator(
            env,
            self.state,
            CoordinatorSettings(
                broker_id=self.broker_id,
                commit_timeout_ns=self.config.offsets_commit_timeout_ms * NS_PER_MS,
                expiry_interval_ns=self.config.offsets_retention_check_interval_ms * NS_PER_MS,
            ),
            key_partitions=self.key_partitions,
            new_shard=self.cluster.new_shard or (lambda: GroupShard(GroupSettings())),
            task_group=group,
        )

    def _make_replicas(self, env: SimulatedEnvironment, group: asyncio.TaskGroup, sender: AlterPartitionSender) -> Replicas:
        return Replicas(
            env,
            self.config,
            configuration=self.configuration,
            broker_id=self.broker_id,
            broker_epoch=lambda: self.epoch,
            state=self.state,
            directories=self.directories,
            reports=self.reports,
            log_dirs=self.log_dirs,
            task_group=group,
            proposals=sender,
            connect=_connect(env, group),
            wishes_changed=lambda: None,
            on_role=self.groups.role_changed,
        )

    def _make_server(self, env: SimulatedEnvironment, group: asyncio.TaskGroup, light_tasks: LightTasks) -> RequestServer:
        return RequestServer(
            env,
            listener_name=LISTENER,
            host="",
            port=self.port,
            handlers={
                ApiKey.PRODUCE: ProduceHandler(
                    env,
                    self.replicas,
                    is_certain=lambda: True,
                    verifier=None if self.cluster.marked_offsets is None else self.verifier,
                ).handle,
                ApiKey.FETCH: FetchHandler(
                    env,
                    self.replicas,
                    response_bytes_max=self.config.fetch_max_bytes,
                    sessions=fetch_sessions(self.config.max_incremental_fetch_session_cache_slots),
                    light_tasks=light_tasks,
                    selector=replica_selector(self.config.replica_selector_class),
                ).handle,
                ApiKey.LIST_OFFSETS: ListOffsetsHandler(self.replicas).handle,
                ApiKey.DELETE_RECORDS: DeleteRecordsHandler(env, self.replicas).handle,
                ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(self.replicas).handle,
                ApiKey.DESCRIBE_PRODUCERS: DescribeProducersRequests(self.replicas).handle,
                **(self._group_handlers() if self.cluster.new_shard is not None else {}),
                **self._marker_handlers(),
            },
            max_request_bytes=self.config.socket_request_max_bytes,
            task_group=group,
        )

    def _make_verifier(self, env: SimulatedEnvironment, group: asyncio.TaskGroup) -> TransactionVerifier:
        verifier = TransactionVerifier(
            env,
            self.state,
            broker_id=self.broker_id,
            key_partitions=self.key_partitions,
            channels=BrokerChannels(self.state, listener_name=LISTENER, connect=_connect(env, group)),
            is_enabled=lambda: (
                self.cluster.coordinate is not None and self.configuration.server.transaction_partition_verification_enable
            ),
            retries=AddRetries(),
            task_group=group,
        )
        if self.cluster.coordinate is not None:
            verifier.attach(self.cluster.coordinate)
        return verifier

    def _group_handlers(self) -> Mapping[ApiKey, Handler]:
        offsets = GroupOffsetsRequests(self.state, self.groups, self.verifier)
        consumers = ConsumerGroupRequests(self.env, self.groups)
        return {**GroupRequests(self.env, self.groups).handlers(), **consumers.handlers(), **offsets.handlers()}

    def _marker_handlers(self) -> Mapping[ApiKey, Handler]:
        groups = self.cluster.marked_offsets
        if groups is None:
            return {}
        return {ApiKey.WRITE_TXN_MARKERS: WriteTxnMarkersRequests(self.env, self.replicas, groups).handle}

    async def _open(self, letter: str) -> LogDirectory:
        directory_id, where = directory(self.broker_id, letter), path(self.broker_id, letter)
        log_dir = self.env.log_dir(where, operation_timeout_ns=self.config.diskraft_log_dir_operation_timeout_ms * 1_000_000)
        try:
            await log_dir.attach()
            await log_dir.probe()
        except LogDirError as error:
            return LogDirectory(path=where, directory_id=directory_id, cause=str(error))
        self.log_dirs[directory_id] = log_dir
        return LogDirectory(path=where, directory_id=directory_id)

    def _went_offline(self, went: WentOffline) -> None:
        directory_id = went.directory_id
        assert directory_id is not None

        def handle() -> None:
            at_once(self.replicas.handle_directory_offline(directory_id))

        if self.offline_delay_ns:
            self.env.call_at(self.env.now_ns() + self.offline_delay_ns, handle)
        else:
            handle()

    def follow(self, records: Sequence[KnownRecord], first_offset: int) -> None:
        """Replays committed records and updates the replicas accordingly."""
        delta = MetadataDelta()
        for offset, record in enumerate(records, first_offset):
            self.state.replay(record, offset=Offset(offset), delta=delta)
        self.key_partitions.metadata_changed()
        self.configuration.metadata_changed(delta)
        at_once(self.replicas.apply(delta))
        self.groups.topics_removed([topic.name for topic in delta.removed_topics.values()])
        self.groups.metadata_changed(delta)

    def partition(self, index: int = 0, topic_id: TopicId = TOPIC) -> Partition:
        """Returns the hosted partition. Fails the test if the broker does not host it."""
        found = self.replicas.find(TopicIdPartition(topic_id, index))
        assert isinstance(found, Partition), found
        return found

    def leads(self, index: int = 0, topic_id: TopicId = TOPIC) -> bool:
        found = self.replicas.find(TopicIdPartition(topic_id, index))
        return isinstance(found, Partition) and found.is_leader

    def follows(self, index: int = 0, topic_id: TopicId = TOPIC) -> bool:
        found = self.replicas.find(TopicIdPartition(topic_id, index))
        return isinstance(found, Partition) and found.replica.role is Role.FOLLOWER


class ClusterController:
    """A metadata log in a list, and just enough of a controller to answer AlterPartition."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.state = MetadataState()
        self.records: list[KnownRecord] = []
        self.requests: list[AlterPartitionRequest] = []
        # Error codes to return for the next partitions in AlterPartition requests. The controller decides by itself when
        # none is left.
        self.next_errors: list[ErrorCode] = []
        self.is_reachable = True

    def commit(self, *records: KnownRecord) -> None:
        """Appends records to the log. Every running broker applies them at once."""
        first_offset = len(self.records)
        for offset, record in enumerate(records, first_offset):
            self.state.replay(record, offset=Offset(offset))
        self.records += records
        for broker in list(self._cluster.brokers.values()):
            if not broker.env.is_dead:
                broker.follow(records, first_offset)

    async def send(self, request: Any, *, deadline_ns: int, version: int | None = None) -> Any:
        """Takes the place of `ControllerChannel.send` in the brokers."""
        await self._cluster.world.sleep(0.002)
        if not self.is_reachable:
            raise ControllerUnavailable("no controller in this test")
        assert isinstance(request, AlterPartitionRequest)
        self.requests.append(request)
        response = AlterPartitionResponse()
        records: list[KnownRecord] = []
        for topic in request.topics:
            answers = ResponseTopicData(topic_id=topic.topic_id)
            response.topics.append(answers)
            for wanted in topic.partitions:
                known = self.state.topics[TopicId(topic.topic_id)].partitions[wanted.partition_index]
                answer = ResponsePartitionData(partition_index=wanted.partition_index)
                answers.partitions.append(answer)
                answer.error_code = self.next_errors.pop(0) if self.next_errors else self._error_of(wanted, known)
                if answer.error_code == ErrorCode.NONE:
                    isr = [member.broker_id for member in wanted.new_isr_with_epochs]
                    records.append(
                        PartitionChangeRecord(
                            partition_id=wanted.partition_index,
                            topic_id=topic.topic_id,
                            isr=isr,
                            leader_recovery_state=wanted.leader_recovery_state,
                        )
                    )
                    answer.leader_id = known.leader
                    answer.leader_epoch = known.leader_epoch
                    answer.isr = isr
                    answer.leader_recovery_state = wanted.leader_recovery_state
                    answer.partition_epoch = known.partition_epoch + 1
        self.commit(*records)
        return response

    def _error_of(self, wanted: Any, known: PartitionRegistration) -> ErrorCode:
        if wanted.leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if wanted.partition_epoch < known.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for member in wanted.new_isr_with_epochs:
            broker = self.state.brokers[BrokerId(member.broker_id)]
            is_other = member.broker_epoch not in (-1, broker.epoch)
            where = known.directory(BrokerId(member.broker_id))
            if broker.fenced or is_other or not broker.has_online_directory(where):
                return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    # --- verbs ---------------------------------------------------------------------------------------------------

    def register(self, broker_id: int, letters: str, *, fenced: bool = False, port: int = PORT) -> None:
        """Registers a new incarnation, with the epoch that a controller would assign: the record's offset."""
        epoch = len(self.records)
        record = RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=Uuid(f"{broker_id}/{epoch}".encode().rjust(16, b"i")),
            broker_epoch=epoch,
            end_points=[BrokerEndpoint(name=LISTENER, host=f"broker-{broker_id}", port=port)],
            fenced=fenced,
            rack=f"rack-{broker_id}",
            log_dirs=sorted(directory(broker_id, letter) for letter in letters),
        )
        broker = self._cluster.brokers.get(BrokerId(broker_id))
        if broker is not None:
            broker.epoch = BrokerEpoch(epoch)
        self.commit(record)

    def fence(self, broker_id: int, *, still: str = "") -> None:
        """Fences the broker. If `still` is given, reduces its registered directories to those of `still` instead."""
        known = self.state.brokers[BrokerId(broker_id)]
        self.commit(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id,
                broker_epoch=known.epoch,
                fenced=FencingChange.NONE if still else FencingChange.FENCE,
                log_dirs=sorted(directory(broker_id, letter) for letter in still),
            )
        )

    def create_topic(
        self,
        *partitions: Sequence[int],
        name: str = "t",
        topic_id: TopicId = TOPIC,
        configs: dict[str, str] | None = None,
    ) -> None:
        """Creates a topic with these replica lists. The first replica of each list is the leader, all replicas are in sync,
        and all directories are UNASSIGNED."""
        self.commit(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=name, name=key, value=value)
                for key, value in (configs or {}).items()
            ),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=list(replicas),
                    isr=list(replicas),
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[UNASSIGNED] * len(replicas),
                )
                for index, replicas in enumerate(partitions)
            ),
        )

    def configure_broker(self, name: str, key: str, value: str | None) -> None:
        """Sets or removes one dynamic configuration of a broker, or of all brokers if the name is empty. The value None
        removes it."""
        self.commit(ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name=name, name=key, value=value))

    def configure(self, key: str, value: str | None, *, name: str = "t") -> None:
        """Sets or removes one configuration of a topic."""
        self.commit(ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=name, name=key, value=value))

    def remove_topic(self, topic_id: TopicId = TOPIC) -> None:
        self.commit(RemoveTopicRecord(topic_id=topic_id))

    def change(self, index: int = 0, *, topic_id: TopicId = TOPIC, **changes: Any) -> None:
        """Commits a PartitionChangeRecord."""
        self.commit(PartitionChangeRecord(partition_id=index, topic_id=topic_id, **changes))

    def partition(self, index: int = 0, topic_id: TopicId = TOPIC) -> PartitionRegistration:
        return self.state.topics[topic_id].partitions[index]


class Cluster:
    """A simulated world with brokers, a `ClusterController`, and one client."""

    def __init__(self, world: SimulatedWorld, **properties: str) -> None:
        self.world = world
        self.properties = {key.replace("_", "."): value for key, value in properties.items()}
        self.controller = ClusterController(self)
        self.brokers: dict[BrokerId, TestBroker] = {}
        # Makes the shards of the brokers' group coordinators. None if the brokers of this test coordinate no groups.
        self.new_shard: Callable[[], GroupShard] | None = None
        # Takes the markers for `__consumer_offsets`. None if the brokers of this test serve no transactions.
        self.marked_offsets: MarksOffsets | None = None
        # The transaction coordinator of every broker. None if the brokers of this test do not ask it.
        self.coordinate: AskHere | None = None
        self._channels: dict[int, NodeChannel] = {}
        self._client_group: asyncio.TaskGroup | None = None

    def __getitem__(self, broker_id: int) -> TestBroker:
        return self.brokers[BrokerId(broker_id)]

    async def start(
        self, broker_id: int, letters: str = "a", *, port: int = PORT, previous: str | None = None
    ) -> TestBroker:
        """Starts a broker on its disks and registers it as a new incarnation. `previous` has the letters of the directories
        in the broker's previous registration. None means that the broker does not know them."""
        for letter in letters:
            self.world.disk(path(broker_id, letter))
        env = self.world.node(f"broker-{broker_id}")
        broker = TestBroker(self, broker_id, env, letters, port)
        if previous is not None:
            broker.previous_directories = [directory(broker_id, letter) for letter in previous]
        env.start(broker.main)
        await broker.ready
        self.controller.register(broker_id, letters, port=port)
        return broker

    async def run_until_it_ends(self, broker_id: int, letters: str) -> None:
        """Runs a broker whose start is expected to fail. The broker's exception reaches the caller."""
        env = self.world.node(f"broker-{broker_id}")
        await TestBroker(self, broker_id, env, letters, PORT).main(env)

    async def stop(self, broker_id: int) -> None:
        """Performs an orderly shutdown of the broker."""
        broker = self.brokers.pop(BrokerId(broker_id))
        broker.shut_down.set()
        await self.world.sleep(1)
        broker.env.die()

    def crash(self, broker_id: int) -> None:
        """Ends the broker like kill -9."""
        self.brokers.pop(BrokerId(broker_id))
        self.world.crash(f"broker-{broker_id}")

    async def until(self, condition: Any, *, within_seconds: float = 20) -> None:
        await self.world.until(condition, within_seconds=within_seconds)

    async def started(self, index: int = 0, topic_id: TopicId = TOPIC) -> None:
        """Waits until every running broker leads or follows the partition as the metadata says."""
        registration = self.controller.partition(index, topic_id)
        await self.until(
            lambda: all(
                self[replica].leads(index, topic_id)
                if replica == registration.leader
                else self[replica].follows(index, topic_id)
                for replica in registration.replicas
                if replica in self.brokers
            )
        )

    async def coordinates_groups(self, partitions: int) -> None:
        """Waits until broker 1 has loaded the groups of that many partitions."""
        await self.until(lambda: sum(each.is_loaded for each in self[1].groups.loaded_and_loading()) == partitions)

    # --- client --------------------------------------------------------------------------------------------------

    async def request(self, broker_id: int, message: Any, *, version: int | None = None) -> Any:
        """Sends a request from the client's node."""
        async with asyncio.TaskGroup() as group:
            channel = NodeChannel(
                self.world.node("client"),
                host=f"broker-{broker_id}",
                port=self[broker_id].port,
                client_id="test",
                task_group=group,
            )
            response = await channel.send(message, version=version, deadline_ns=self.world.now_ns() + 40 * NS_PER_S)
            channel.close()
        return response

    async def produce(
        self,
        broker_id: int,
        *values: str,
        index: int = 0,
        topic: str = "t",
        acks: int = -1,
        timeout_ms: int = 10_000,
        records: Any = None,
        version: int | None = None,
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse:
        """Produces one batch to one partition, and returns that partition's response."""
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=self.controller.state.topic_ids.get(topic, ZERO_UUID),
                    partition_data=[
                        PartitionProduceData(index=index, records=batch(*values) if records is None else records)
                    ],
                )
            ],
        )
        response = await self.request(broker_id, request, version=version)
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer

    async def send_without_answer(self, broker_id: int, records: bytearray) -> str:
        """Produces with acks=0. Returns "closed" if the connection is closed within a second, else "open"."""
        request = ProduceRequest(
            acks=0,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(name="t", topic_id=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
            ],
        )
        async with asyncio.TaskGroup() as group:
            channel = NodeChannel(
                self.world.node("client"),
                host=f"broker-{broker_id}",
                port=self[broker_id].port,
                client_id="test",
                task_group=group,
            )
            sent_ns = self.world.now_ns()
            with contextlib.suppress(ChannelError):
                await channel.send(request, deadline_ns=sent_ns + NS_PER_S)
            channel.close()
        return "open" if self.world.now_ns() - sent_ns >= NS_PER_S else "closed"

    async def fetch(
        self, broker_id: int, offset: int = 0, *, index: int = 0, topic_id: TopicId = TOPIC, **options: Any
    ) -> PartitionData:
        """Fetches one partition as a consumer."""
        request = FetchRequest(
            max_wait_ms=options.pop("max_wait_ms", 0),
            min_bytes=options.pop("min_bytes", 1),
            isolation_level=options.pop("isolation_level", 0),
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, **options)
                    ],
                )
            ],
        )
        response = await self.request(broker_id, request)
        assert response.session_id == 0
        answer: PartitionData = response.responses[0].partitions[0]
        return answer

    async def read_all(self, broker_id: int, offset: int = 0, **options: Any) -> list[str]:
        """Returns the values that a consumer reads from this offset on."""
        return values((await self.fetch(broker_id, offset, **options)).records)

    def log_bytes(self, broker_id: int, letter: str = "a", folder: str = "t-0") -> bytes:
        """Returns the bytes of the first segment of a log on the disk."""
        return self.world.disk(path(broker_id, letter)).files()[f"{folder}/00000000000000000000.log"]


def batch(*texts: str, timestamp_ms: int = 1_700_000_000_000) -> bytearray:
    """Encodes these values as a record batch."""
    return encode_batch([Record(key=None, value=text.encode(), timestamp_ms=timestamp_ms) for text in texts])


def values(records: Any) -> list[str]:
    """Returns the record values of all batches in fetched bytes."""
    return [
        bytes(record.value or b"").decode()
        for _, view in split_batches(records or b"", allow_partial_tail=True)
        for record in iterate_records(view)
    ]


def run(scenario: Any, *, seed: int = 1, **properties: str) -> None:
    """Runs `await scenario(cluster)` in a new world. `properties` are broker configurations, with '_' for '.' in their
    keys."""

    async def main(world: SimulatedWorld) -> None:
        await scenario(Cluster(world, **properties))

    SimulatedWorld(seed).run(main)
