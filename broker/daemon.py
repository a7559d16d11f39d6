"""The broker daemon: builds the parts, starts them in order, and ends them cleanly or at once (shell).

Counterpart of Kafka's BrokerServer. To start, the broker

1. binds its listeners, follows the metadata and registers;
2. waits until the image contains its own registration, then loads the logs and brings them in line with the image. An
   older image must not decide which logs are strays, because it may not know the newest topics;
3. asks to be unfenced, once the gate is open (`UnfenceGate`).
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from broker.controller_link.alter_partition import AlterPartitionSender
from broker.controller_link.assignments import Assignments
from broker.controller_link.assignments_sender import AssignmentsSender
from broker.controller_link.controller_channel import ControllerChannel
from broker.controller_link.lifecycle_loop import LifecycleLoop
from broker.controller_link.metadata_follower import MetadataFollower
from broker.controller_link.producer_ids import ProducerIds
from broker.coordinator.broker_channels import BrokerChannels
from broker.coordinator.coordinator_partition import CoordinatorSettings
from broker.coordinator.core.group_partition import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from broker.coordinator.core.group_settings import group_settings
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.key_partitions import KeyPartitions
from broker.coordinator.core.transactions.settings import transaction_settings
from broker.coordinator.core.transactions.shard import TransactionShard
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.marker_sender import MarkerSender
from broker.coordinator.transaction_coordinator import TransactionCoordinator
from broker.coordinator.transaction_verifier import TransactionVerifier, add_retries
from broker.core.current_configuration import CurrentConfiguration
from broker.core.directory_assignments import DirectoryAssignments
from broker.core.directory_reports import DirectoryReports
from broker.core.directory_support import reason_to_end
from broker.core.lifecycle import (
    BrokerLifecycle,
    BrokerState,
    CordonsChanged,
    Effect,
    LastWords,
    LastWordsHeard,
    MetadataApplied,
    ReadyToUnfence,
    ShutdownAsked,
    ShutDownNow,
    Start,
    StateChanged,
    lifecycle_settings,
)
from broker.core.unfence_gate import UnfenceGate
from broker.hosting.directory_logs import DuplicateLog
from broker.hosting.partition import Partition
from broker.hosting.replica_loading import ReplicasNotLoaded
from broker.hosting.replicas import Replicas
from broker.requests.api_versions import ApiVersionsRequests
from broker.requests.fetch_session import fetch_sessions
from broker.requests.handlers import request_handlers
from broker.requests.write_txn_markers import WriteTxnMarkersRequests
from broker.serving import Serving
from common.configuration.endpoints import HostPort
from common.configuration.resolver import ConfigResolver
from common.configuration.server import ServerConfig
from common.environment.interface import Environment
from common.ids import BrokerEpoch, BrokerId, DirectoryId, IncarnationId, Offset, TopicId
from common.log_dirs.directories import NodeDirectories
from common.log_dirs.log_directories import WentOffline
from common.metadata.delta import MetadataDelta
from common.metadata.metadata_version import (
    BROKER_FEATURES,
    TRANSACTION_VERSION_FEATURE,
    is_cordoning_supported,
    is_directory_assignment_supported,
)
from common.metadata.state import MetadataState, UnsupportedFeatureLevel
from common.net.node_channel import NodeChannel
from common.net.request_context import Handler
from common.net.request_server import RequestServer
from common.net.server_limits import server_limits
from common.protocol.api_keys import ApiKey
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from common.raft.driver import QuorumDriver
from common.slices import in_slices
from common.time_units import NS_PER_MS

PLAINTEXT = 0
# A heartbeat or registration without an answer is sent again after this time or the heartbeat interval, whichever is longer.
REQUEST_TIMEOUT_MIN_NS = 1_000 * NS_PER_MS

# After this time a client is told to try again, although the record may still be replicated.
TRANSACTION_COMMIT_TIMEOUT_NS = 5_000 * NS_PER_MS


class BrokerDaemon:
    """One incarnation of a broker. `halt(reason)` ends the node at once, `halt_for_disk(reason)` after its last words;
    `on_running` is called when the controller has unfenced the broker."""

    def __init__(
        self,
        env: Environment,
        config: ServerConfig,
        *,
        properties: Mapping[str, str],
        directories: NodeDirectories,
        driver: QuorumDriver,
        task_group: asyncio.TaskGroup,
        halt: Callable[[str], None],
        halt_for_disk: Callable[[str], None],
        on_running: Callable[[], None] = lambda: None,
    ) -> None:
        self._env = env
        self._config = config
        self._directories = directories
        self._driver = driver
        self._task_group = task_group
        self._halt = halt
        self._halt_for_disk = halt_for_disk
        self._on_running = on_running
        self._broker_id = BrokerId(config.node_id)
        self._incarnation_id = IncarnationId(env.uuid())
        self._is_told_to_end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last_words_heard = asyncio.Event()
        # The bound port of each listener, by the listener's name. Filled by `run`.
        self._ports: dict[str, int] = {}
        self.state = MetadataState()
        self._resolver = ConfigResolver(config, properties)
        self.configuration = CurrentConfiguration(self._resolver, self.state)
        self._serving = self._make_serving()
        # Whether the image has this incarnation's registration, and thus at least the metadata.version of that time.
        self._knows_level = False
        # The cordoned directories as of the last published metadata.
        self._last_cordoned: list[DirectoryId] | None = None
        # False from the moment when the controller has unfenced this broker until the broker's image shows it.
        self._is_announced = True
        # The parts of the controller link that the replicas need.
        self._controller = self._make_controller_channel()
        self._proposals = AlterPartitionSender(
            env,
            self._controller,
            broker_id=self._broker_id,
            broker_epoch=self._registered_epoch,
            topic_name=self._name_of_topic,
        )
        self._key_partitions = KeyPartitions(self.state)
        self.groups = self._make_groups()
        self.follower = self._make_follower()
        self.transactions = self._make_transactions()
        self._reports = DirectoryReports()
        self.replicas = self._make_replicas()
        self.groups.watch(self.replicas.suspected)
        self.transactions.watch(self.replicas.suspected)
        self.fetch_sessions = fetch_sessions(config.max_incremental_fetch_session_cache_slots)
        self._markers = WriteTxnMarkersRequests(env, self.replicas, self.groups)
        self.marker_sender = self._make_marker_sender()
        self.verifier = self._make_verifier()
        # The parts of the controller link that need the replicas.
        self.directory_assignments = DirectoryAssignments(rng=env.rng, reports=self._reports)
        self.lifecycle = BrokerLifecycle(
            lifecycle_settings(config),
            rng=env.rng,
            leads_in=self.replicas.leads_in,
            has_pending_assignment_into=self.directory_assignments.has_pending_into,
        )
        self._lifecycle_loop = self._make_lifecycle_loop()
        self._sender = self._make_assignments_sender()
        self._assignments = Assignments(
            self.state,
            broker_id=self._broker_id,
            replicas=self.replicas,
            sender=self._sender,
            gate=UnfenceGate(),
            on_open=lambda: self._lifecycle_loop.post(ReadyToUnfence()),
        )
        # The listeners for clients and other brokers.
        self._servers = self._make_servers()
        self.configuration.subscribe(self._take_over_limits)

    # --- life ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Starts the broker, and returns once it has shut down cleanly. Raises ListenFailed."""
        for name, server in self._servers.items():
            self._ports[name] = server.start().port
        self._driver.register(self.follower)
        self._task_group.create_task(self._proposals.run())
        starting = [self._task_group.create_task(each) for each in (self._bring_up(), self._require_supported_levels())]
        self._lifecycle_loop.post(Start())
        await self._is_told_to_end
        for task in starting:
            task.cancel()
        await self._end()

    def ask_to_shut_down(self) -> None:
        """Begins a controlled shutdown: first the leaderships move away, then the process ends."""
        self._lifecycle_loop.post(ShutdownAsked())

    async def say_last_words(self, *, deadline_ns: int) -> None:
        """Reports to the controller that the node is about to halt. The controller then fences this broker and moves its
        leaderships away now, instead of at the end of the session. Returns once the controller has done so, or at the
        deadline."""
        self._lifecycle_loop.post(LastWords())
        with contextlib.suppress(TimeoutError):
            async with self._env.timeout_at(deadline_ns):
                await self._last_words_heard.wait()

    def directory_offline(self, went: WentOffline) -> None:
        """Handles a failed data directory: stops its replicas and reports the failure to the controller at once."""
        directory_id = went.directory_id
        assert directory_id is not None, "what was online has an id"
        replicas = self.replicas.descriptions.count_in(directory_id)
        closing = self.replicas.handle_directory_offline(directory_id)
        self._env.log.error(
            "log_dir_offline", log_dir=went.log_dir, directory_id=directory_id, cause=went.cause, replicas=replicas
        )
        if len(self._config.log_dirs) > 1 and not self._ends_without_directory():
            # With a single directory the failure is not reported, because the broker ends anyway (KIP-858).
            self._lifecycle_loop.directory_failed(directory_id)
        self._task_group.create_task(self._close_replicas(closing))

    def _ends_without_directory(self) -> bool:
        """Whether the broker has to end because a directory is offline that metadata.version cannot name. Begins the end."""
        if self.lifecycle.state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            # The controller moves the leaders of every directory anyway, and elects none here. A clean end leaves
            # clean-shutdown markers in the other directories.
            return False
        # Until the image has this incarnation's registration, its metadata.version may be an old one.
        reason = reason_to_end(self._directories.known, self.state.metadata_version) if self._knows_level else None
        if reason is not None:
            self._halt_for_disk(reason)
        return reason is not None

    async def _close_replicas(self, closing: Iterator[None]) -> None:
        # Let the heartbeat leave first. It takes one turn of the event loop to begin it and one to write it to the socket,
        # and new leaders wait for it. Clients of the directory are refused from the failure on.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await in_slices(closing)

    async def _bring_up(self) -> None:
        await self.follower.wait_until_registered()
        self._knows_level = True
        if self._ends_without_directory():
            return
        # The logs are loaded with the configuration that is in effect, not with that of server.properties.
        self._log_changed_configuration(self.configuration.refresh())
        try:
            await self.replicas.load(self.follower.previous_directories)
        except (DuplicateLog, ReplicasNotLoaded) as error:
            self._halt(str(error))
            return
        await self.follower.run()

    async def _require_supported_levels(self) -> None:
        """Ends the broker if the end of the log has a level that it does not support: the controller refuses to register it,
        as often as it asks."""
        high_watermark = await self._driver.ask_for_high_watermark()
        try:
            self.follower.require_supported_levels(Offset(high_watermark - 1))
        except UnsupportedFeatureLevel as error:
            self._halt(f"the metadata log cannot be followed: {error}")

    async def _end(self) -> None:
        self._serving.end()
        self._sender.stop()
        for server in self._servers.values():
            server.close()
        await self.replicas.shutdown()
        self.marker_sender.close()
        self.verifier.close()
        self._controller.close()
        self._env.log.info("broker_stopped")

    # --- metadata ------------------------------------------------------------------------------------------------

    async def _publish(self, delta: MetadataDelta) -> None:
        self._key_partitions.metadata_changed()
        self._log_changed_configuration(self.configuration.metadata_changed(delta))
        await in_slices(self.replicas.apply(delta))
        self.groups.metadata_changed(delta)
        self._assignments.published(delta.changed_partitions.keys())

    def _log_changed_configuration(self, keys: Sequence[str]) -> None:
        if keys:
            self._env.log.info("broker_config_changed", keys=keys)

    def _on_published(self, offset: Offset, is_first: bool) -> None:
        self._ends_without_directory()
        if is_first:
            self._assignments.fix_gate()
        self._lifecycle_loop.post(MetadataApplied(self._lacking_registration()))
        self._look_at_cordons()
        self._announce()

    def _look_at_cordons(self) -> None:
        before, self._last_cordoned = self._last_cordoned, self._cordoned()
        if self._last_cordoned != before:
            self._lifecycle_loop.post(CordonsChanged())

    def _lacking_registration(self) -> Offset | None:
        """Returns the offset of this broker's registration if the image has it without directories, although
        metadata.version has them: it was written when the level was lower."""
        registration = self.state.brokers.get(self._broker_id)
        if (
            registration is not None
            and registration.epoch == self.lifecycle.broker_epoch
            and not registration.directories
            and is_directory_assignment_supported(self.state.metadata_version)
        ):
            return self.state.registration_offsets[self._broker_id]
        return None

    async def _catch_up(self) -> None:
        high_watermark = await self._driver.ask_for_high_watermark()
        await self.follower.wait_until_applied(Offset(high_watermark - 1))

    def _is_current_since(self, asked_ns: int) -> bool:
        is_known = self._driver.knows_high_watermark_since(asked_ns)
        return is_known and self.follower.replayed_offset >= self._driver.high_watermark - 1

    def _wishes_changed(self) -> None:
        self._assignments.wishes_changed()

    # --- the controller --------------------------------------------------------------------------------------------

    def _name_of_topic(self, topic_id: TopicId) -> str | None:
        topic = self.state.topics.get(topic_id)
        return None if topic is None else topic.name

    def _registered_epoch(self) -> BrokerEpoch | None:
        if self.lifecycle.broker_epoch >= 0:
            return self.lifecycle.broker_epoch
        # The metadata may have the registration before the response to it arrives, or gets lost and is asked for again.
        registration = self.state.brokers.get(self._broker_id)
        if registration is None or registration.incarnation_id != self._incarnation_id:
            return None
        return registration.epoch

    def _build_registration(self) -> BrokerRegistrationRequest:
        previous = self._directories.known.previous_broker_epoch
        return BrokerRegistrationRequest(
            broker_id=self._broker_id,
            cluster_id=self._directories.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port or self._ports[endpoint.name],
                    security_protocol=PLAINTEXT,
                )
                for endpoint in self._config.advertised_listeners
            ],
            features=[
                Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
                for name, levels in BROKER_FEATURES.items()
            ],
            rack=self._config.broker_rack,
            log_dirs=sorted(self._directories.known.online),
            previous_broker_epoch=previous if previous is not None else -1,
        )

    def _cordoned(self) -> list[DirectoryId] | None:
        """Returns the online directories that are cordoned; None if metadata.version is not known or cannot express them."""
        if not self._knows_level or not is_cordoning_supported(self.state.metadata_version):
            return None
        online = self._directories.known.online
        return sorted(each for each, path in online.items() if self.replicas.is_cordoned(path))

    def _on_effect(self, effect: Effect) -> None:
        match effect:
            case StateChanged(BrokerState.RECOVERY):
                self._serving.begin()
                self._sender.arm()
            case StateChanged(BrokerState.RUNNING):
                self._is_announced = False
                self._announce()
            case LastWordsHeard():
                self._last_words_heard.set()
            case ShutDownNow():
                if not self._is_told_to_end.done():
                    self._is_told_to_end.set_result(None)
            case _:
                pass

    def _announce(self) -> None:
        """Reports that the broker runs, once its own image shows it unfenced. The answer to the heartbeat may come first. A
        client that gets metadata without any broker may not ask again for a minute (librdkafka)."""
        registration = self.state.brokers.get(self._broker_id)
        is_seen = registration is not None and registration.epoch == self.lifecycle.broker_epoch and not registration.fenced
        if self._is_announced or not is_seen:
            return
        self._is_announced = True
        self._env.log.info(
            "broker_running",
            broker_id=self._broker_id,
            broker_epoch=self.lifecycle.broker_epoch,
            listeners={name: f"{server_host}:{port}" for name, server_host, port in self._bound()},
            log_dirs=list(self._directories.known.online.values()),
        )
        self._on_running()

    def _bound(self) -> list[tuple[str, str, int]]:
        return [(endpoint.name, endpoint.host, self._ports[endpoint.name]) for endpoint in self._config.broker_listeners]

    # --- parts -------------------------------------------------------------------------------------------------------

    def _make_serving(self) -> Serving:
        return Serving(
            self._env,
            session_timeout_ns=self._config.broker_session_timeout_ms * NS_PER_MS,
            catch_up=self._catch_up,
            task_group=self._task_group,
        )

    def _make_controller_channel(self) -> ControllerChannel:
        return ControllerChannel(
            self._env,
            servers=self._config.quorum_servers,
            leader=self._leader_address,
            open_channel=self._open_channel,
            retry_backoff_ns=self._config.controller_quorum_retry_backoff_ms * NS_PER_MS,
            attempt_timeout_ns=self._config.controller_quorum_request_timeout_ms * NS_PER_MS,
        )

    def _leader_address(self) -> HostPort | None:
        leader = self._driver.leader_endpoint
        return None if leader is None else HostPort(leader.host, leader.port)

    def _make_follower(self) -> MetadataFollower:
        return MetadataFollower(
            self._env,
            self.state,
            broker_id=self._broker_id,
            incarnation_id=self._incarnation_id,
            publish=self._publish,
            on_published=self._on_published,
            on_topics_removed=self.groups.topics_removed,
        )

    def _make_groups(self) -> GroupCoordinator:
        def new_shard() -> GroupShard:
            settings = group_settings(self._config, self._batch_bytes_max(OFFSETS_TOPIC))
            return GroupShard(settings, self.state, self.configuration.group)

        return GroupCoordinator(
            self._env,
            self.state,
            CoordinatorSettings(
                broker_id=self._broker_id,
                commit_timeout_ns=self._config.offsets_commit_timeout_ms * NS_PER_MS,
                expiry_interval_ns=self._config.offsets_retention_check_interval_ms * NS_PER_MS,
            ),
            key_partitions=self._key_partitions,
            new_shard=new_shard,
            task_group=self._task_group,
        )

    def _make_transactions(self) -> TransactionCoordinator:
        def new_shard() -> TransactionShard:
            settings = transaction_settings(self._config, self._batch_bytes_max(TRANSACTION_STATE_TOPIC))
            return TransactionShard(settings, lambda: self.state.features.get(TRANSACTION_VERSION_FEATURE, 0))

        return TransactionCoordinator(
            self._env,
            self.state,
            CoordinatorSettings(
                broker_id=self._broker_id,
                commit_timeout_ns=TRANSACTION_COMMIT_TIMEOUT_NS,
                expiry_interval_ns=self._config.transaction_remove_expired_transaction_cleanup_interval_ms * NS_PER_MS,
            ),
            key_partitions=self._key_partitions,
            new_shard=new_shard,
            task_group=self._task_group,
        )

    def _batch_bytes_max(self, topic: str) -> int:
        """Returns how large a batch of a coordinator may be. It may change while the broker runs: a coordinator whose batch
        is too large since then loads its partition again, and makes smaller ones from then on."""
        config = self.configuration.topic(topic)
        return min(config.max_message_bytes, config.segment_bytes)

    def _make_marker_sender(self) -> MarkerSender:
        sender = MarkerSender(
            self._env,
            self.state,
            broker_id=self._broker_id,
            channels=self._make_channels(),
            write_here=self._markers.write,
            task_group=self._task_group,
        )
        self.transactions.attach(send_markers=sender.send, drop_markers=sender.drop)
        return sender

    def _make_verifier(self) -> TransactionVerifier:
        return TransactionVerifier(
            self._env,
            self.state,
            broker_id=self._broker_id,
            key_partitions=self._key_partitions,
            channels=self._make_channels(),
            is_enabled=lambda: self.configuration.server.transaction_partition_verification_enable,
            retries=add_retries(self._config),
            task_group=self._task_group,
        )

    def _make_channels(self) -> BrokerChannels:
        listener_name = self._config.inter_broker_listener_name or ""
        return BrokerChannels(self.state, listener_name=listener_name, connect=self._open_channel)

    def _make_replicas(self) -> Replicas:
        return Replicas(
            self._env,
            self._config,
            configuration=self.configuration,
            broker_id=self._broker_id,
            broker_epoch=self._registered_epoch,
            state=self.state,
            directories=self._directories.known,
            reports=self._reports,
            log_dirs=self._directories.log_dirs,
            task_group=self._task_group,
            proposals=self._proposals,
            connect=self._open_channel,
            wishes_changed=self._wishes_changed,
            on_role=self._role_changed,
        )

    def _role_changed(self, partition: Partition) -> None:
        self.groups.role_changed(partition)
        self.transactions.role_changed(partition)

    def _make_lifecycle_loop(self) -> LifecycleLoop:
        return LifecycleLoop(
            self._env,
            self.lifecycle,
            broker_id=self._broker_id,
            channel=self._controller,
            task_group=self._task_group,
            request_timeout_ns=max(self._config.broker_heartbeat_interval_ms * NS_PER_MS, REQUEST_TIMEOUT_MIN_NS),
            build_registration=self._build_registration,
            applied_offset=lambda: self.follower.applied_offset,
            cordoned=self._cordoned,
            on_effect=self._on_effect,
            on_unfenced=self._serving.renew,
            halt=self._halt,
        )

    def _make_assignments_sender(self) -> AssignmentsSender:
        return AssignmentsSender(
            self._env,
            self.directory_assignments,
            broker_id=self._broker_id,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            channel=self._controller,
            task_group=self._task_group,
            on_final=self.replicas.reconcile,
        )

    def _make_producer_ids(self) -> ProducerIds:
        return ProducerIds(
            self._env,
            broker_id=self._broker_id,
            broker_epoch=self._registered_epoch,
            channel=self._controller,
            task_group=self._task_group,
        )

    def _open_channel(self, host: str, port: int) -> NodeChannel:
        return NodeChannel(
            self._env,
            host=host,
            port=port,
            client_id=f"broker-{self._broker_id}",
            task_group=self._task_group,
            setup_ns=self._config.socket_connection_setup_timeout_ms * NS_PER_MS,
            numbering=lambda: self._driver.numbering,
        )

    def _make_servers(self) -> dict[str, RequestServer]:
        handlers = request_handlers(
            self._env,
            self._config,
            resolver=self._resolver,
            state=self.state,
            directories=self._directories,
            replicas=self.replicas,
            fetch_sessions=self.fetch_sessions,
            groups=self.groups,
            transactions=self.transactions,
            key_partitions=self._key_partitions,
            markers=self._markers,
            verifier=self.verifier,
            serving=self._serving,
            controller=self._controller,
            follower=self.follower,
            producer_ids=self._make_producer_ids(),
            catch_up=self._catch_up,
            is_current_since=self._is_current_since,
            task_group=self._task_group,
        )
        gated: dict[ApiKey, Handler] = {key: self._serving.when_serving(handler) for key, handler in handlers.items()}
        gated[ApiKey.API_VERSIONS] = ApiVersionsRequests(
            self.state,
            handlers,
            lambda: self._controller.served_versions,
            cluster_id=self._directories.cluster_id,
            broker_id=self._broker_id,
        ).handle
        return {
            endpoint.name: RequestServer(
                self._env,
                listener_name=endpoint.name,
                host=endpoint.host,
                port=endpoint.port,
                handlers=gated,
                max_request_bytes=self._config.socket_request_max_bytes,
                task_group=self._task_group,
                limits=server_limits(self.configuration.server),
            )
            for endpoint in self._config.broker_listeners
        }

    def _take_over_limits(self) -> None:
        for server in self._servers.values():
            server.limits = server_limits(self.configuration.server)
