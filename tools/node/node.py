"""One node: its directories, its metadata log and its roles (shell).

Counterpart of Kafka's KafkaRaftServer and SharedServer: a node with both roles has one metadata log and one quorum driver.
Run by `kafka-server-start`, and by the tests on simulated environments. A failure of the metadata directory halts the node,
whatever its role. The halt waits for no disk, because that disk may hang. A node that is only a broker first tries to report
the failure to the controller, for at most LAST_WORDS_NS.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Final

from broker.coordinator.group_metrics import group_samples
from broker.coordinator.transaction_metrics import transaction_samples
from broker.daemon import BrokerDaemon
from broker.hosting.cleaner_metrics import cleaner_samples
from broker.hosting.log_metrics import LogSizes
from broker.metrics import broker_samples
from broker.requests.fetch_session import fetch_session_samples
from common.configuration.server import ServerConfig
from common.environment.interface import Environment, ListenFailed, LogDir, LogDirError, SpaceStat
from common.ids import BrokerId, DirectoryId
from common.log_dirs.directories import NodeDirectories
from common.log_dirs.directory_metrics import directory_samples
from common.log_dirs.failure_channel import FailureChannel
from common.log_dirs.log_directories import LogDirectories, SpaceSeen, WentOffline
from common.log_dirs.probe import probe_log_dir
from common.log_dirs.startup_scan import scan_directories
from common.log_dirs.suspected_directories import SuspectedDirectories
from common.metrics_exposition import Sample, SnapshotCollector
from common.net.node_channel import NodeChannel
from common.raft.driver import QuorumDriver
from common.raft.errors import QuorumFailure
from common.raft.metrics import raft_samples
from common.time_units import NS_PER_MS
from controller.daemon import ControllerDaemon

METRICS_INTERVAL_NS = 1_000 * NS_PER_MS
# How long a broker that loses its last directory may take to report the loss. Without a report, the controller would notice
# the loss only when the broker's session expires.
LAST_WORDS_NS = 500 * NS_PER_MS
# What an operator can do about an address on which the node cannot listen.
_REMEDIES: Final = MappingProxyType(
    {
        errno.EADDRINUSE: "stop what listens there, or name an address that is free",
        errno.EADDRNOTAVAIL: "name an address of this machine",
        errno.EACCES: "name a port above 1023, or give the node the capability CAP_NET_BIND_SERVICE",
    }
)


class _EndedInOrder(Exception):
    """Ends the TaskGroup, which then cancels the tasks that never end by themselves."""


@contextmanager
def _named(key: str, properties: Mapping[str, str]) -> Iterator[None]:
    """Extends the message of a ListenFailed: adds the configuration line that holds the address, and how to fix it."""
    try:
        yield
    except ListenFailed as failed:
        value = properties.get(key, "(default)")
        remedy = listen_remedy(failed.__cause__)
        raise ListenFailed(f"{key}={value}: {failed}" + (f"; {remedy}" if remedy else "")) from failed


def listen_remedy(cause: BaseException | None) -> str | None:
    """Returns what to do about the cause of a ListenFailed. None if the cause says it all, or is not about the address."""
    if isinstance(cause, (socket.gaierror, UnicodeError)):
        # UnicodeError means a text that no resolver would take, such as a label of 64 characters.
        return "correct the host, or make its name resolve to an address of this machine"
    return _REMEDIES.get(cause.errno or 0) if isinstance(cause, OSError) else None


class Node:
    """One run of one node. Call `run` once. It calls `on_ready` once, when every role has loaded its state and works."""

    def __init__(
        self,
        env: Environment,
        config: ServerConfig,
        properties: Mapping[str, str],
        *,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._env = env
        self._config = config
        self._properties = properties
        self._on_ready = on_ready
        self._not_ready = dict.fromkeys(config.process_roles)
        self._has_last_words = False
        self.controller: ControllerDaemon | None = None
        self.broker: BrokerDaemon | None = None

    async def run(self, asked_to_end: Callable[[], Awaitable[None]]) -> None:
        """Runs until `asked_to_end()` returns, then shuts down cleanly.

        Raises StartupError, QuorumFailure or ListenFailed if the node cannot start.
        """
        config = self._config
        for warning in config.warnings:
            self._env.log.warning("configuration_warning", text=warning)
        directories = await scan_directories(
            self._env,
            node_id=config.node_id,
            log_dirs=config.log_dirs if config.is_broker else (config.metadata_log_dir,),
            metadata_log_dir=config.metadata_log_dir,
            operation_timeout_ns=config.diskraft_log_dir_operation_timeout_ms * NS_PER_MS,
            sync_timeout_ns=config.diskraft_log_dir_sync_timeout_ms * NS_PER_MS,
        )
        try:
            async with asyncio.TaskGroup() as group:
                await self._run(group, directories, asked_to_end)
                raise _EndedInOrder
        except* _EndedInOrder:
            pass
        async with asyncio.TaskGroup() as group:
            for log_dir in directories.log_dirs.values():
                group.create_task(self._close(log_dir))

    async def _close(self, log_dir: LogDir) -> None:
        try:
            await log_dir.close()
        except LogDirError as error:
            # A disk that hangs at the very end must not prevent the shutdown.
            self._env.log.warning("log_dir_not_closed", log_dir=log_dir.path, reason=str(error))

    def halt(self, reason: str) -> None:
        """Exits at once with status 1."""
        self._env.log.critical("node_halted", reason=reason)
        self._env.exit(1)

    def _halt_for_disk(self, group: asyncio.TaskGroup, reason: str) -> None:
        """Halts because the node cannot go on without a directory that has failed."""
        if self.broker is None or self.controller is not None:
            # There is no controller in another process to report to.
            self.halt(reason)
        elif not self._has_last_words:
            self._has_last_words = True
            group.create_task(self._halt_after_last_words(self.broker, reason))

    async def _halt_after_last_words(self, broker: BrokerDaemon, reason: str) -> None:
        await broker.say_last_words(deadline_ns=self._env.now_ns() + LAST_WORDS_NS)
        self.halt(reason)

    async def _run(
        self, group: asyncio.TaskGroup, directories: NodeDirectories, asked_to_end: Callable[[], Awaitable[None]]
    ) -> None:
        channel = FailureChannel(
            self._env,
            directories.known,
            on_offline=self._directory_offline,
            halt=partial(self._halt_for_disk, group),
        )
        channel.watch(directories.log_dirs.values())
        group.create_task(channel.run())
        self._start_probes(group, directories)
        driver = await self._open_driver(group, directories)
        group.create_task(self._run_driver(driver, group))
        if self._config.is_controller:
            self.controller = ControllerDaemon(
                self._env,
                self._config,
                driver,
                properties=self._properties,
                cluster_id=directories.cluster_id,
                on_active=partial(self._role_is_ready, "controller"),
            )
            with _named("listeners", self._properties):
                self.controller.start(group)
        if self._config.is_broker:
            self.broker = BrokerDaemon(
                self._env,
                self._config,
                properties=self._properties,
                directories=directories,
                driver=driver,
                task_group=group,
                halt=self.halt,
                halt_for_disk=partial(self._halt_for_disk, group),
                on_running=partial(self._role_is_ready, "broker"),
            )
        suspected = self._start_suspicion(group, directories)
        stop_metrics = self._start_metrics(group, directories, suspected, channel, driver)
        await self._serve_until_asked(group, asked_to_end)
        stop_metrics()
        if self.controller is not None:
            self.controller.close()
        await driver.close()

    def _role_is_ready(self, role: str) -> None:
        if self._not_ready.pop(role, role) is None and not self._not_ready:
            self._on_ready()

    async def _serve_until_asked(self, group: asyncio.TaskGroup, asked_to_end: Callable[[], Awaitable[None]]) -> None:
        broker = self.broker
        if broker is None:
            await asked_to_end()
            return

        async def pass_on() -> None:
            await asked_to_end()
            broker.ask_to_shut_down()

        group.create_task(pass_on())
        with _named("listeners", self._properties):
            await broker.run()

    def _directory_offline(self, went: WentOffline) -> None:
        if self.broker is not None and went.is_data_dir:
            self.broker.directory_offline(went)

    def _start_probes(self, group: asyncio.TaskGroup, directories: NodeDirectories) -> None:
        known = directories.known

        def is_online(path: str) -> bool:
            return known.at(path).is_online

        def note_space(directory_id: DirectoryId, space: SpaceStat) -> None:
            known.step(SpaceSeen(directory_id, space))

        for directory_id, log_dir in directories.log_dirs.items():
            group.create_task(
                probe_log_dir(
                    self._env,
                    log_dir,
                    interval_ns=self._config.diskraft_log_dir_probe_interval_ms * NS_PER_MS,
                    is_online=partial(is_online, log_dir.path),
                    on_space=partial(note_space, directory_id),
                )
            )

    def _start_suspicion(self, group: asyncio.TaskGroup, directories: NodeDirectories) -> SuspectedDirectories:
        """Returns the suspected directories of this node. A broker looks for them itself, because its clients wait."""
        if self.broker is not None:
            return self.broker.replicas.suspected
        suspected = SuspectedDirectories(
            self._env,
            suspect_after_ns=self._config.diskraft_log_dir_suspect_ms * NS_PER_MS,
            directories=directories.known,
            log_dirs=directories.log_dirs,
        )

        async def look() -> None:
            while True:
                suspected.look()
                await self._env.sleep_until(self._env.now_ns() + suspected.look_interval_ns)

        group.create_task(look())
        return suspected

    async def _open_driver(self, group: asyncio.TaskGroup, directories: NodeDirectories) -> QuorumDriver:
        def open_channel(host: str, port: int) -> NodeChannel:
            client_id = f"raft-client-{self._config.node_id}"
            setup_ns = self._config.socket_connection_setup_timeout_ms * NS_PER_MS
            return NodeChannel(self._env, host=host, port=port, client_id=client_id, task_group=group, setup_ns=setup_ns)

        return await QuorumDriver.open(
            self._env,
            self._config,
            node_id=BrokerId(self._config.node_id),
            cluster_id=directories.cluster_id,
            log_dir=directories.metadata,
            directory_id=directories.metadata_directory_id,
            voters=self._config.controller_quorum_voters,
            channels=open_channel,
            bootstrap_servers=self._config.controller_quorum_bootstrap_servers,
        )

    async def _run_driver(self, driver: QuorumDriver, group: asyncio.TaskGroup) -> None:
        try:
            await driver.run(group)
        except LogDirError as error:
            self._halt_for_disk(group, f"the metadata log cannot be written: {error}")
        except QuorumFailure as error:
            self.halt(f"the metadata log cannot be followed: {error}")

    def _start_metrics(
        self,
        group: asyncio.TaskGroup,
        directories: NodeDirectories,
        suspected: SuspectedDirectories,
        channel: FailureChannel,
        driver: QuorumDriver,
    ) -> Callable[[], None]:
        address = self._config.diskraft_prometheus_listener
        if address is None:
            return lambda: None
        collector = SnapshotCollector(self._env.now_ns)
        log_sizes = LogSizes()

        def samples() -> list[Sample]:
            voters = [voter.node_id for voter in self._config.controller_quorum_voters]
            found = list(raft_samples(driver, node_id=self._config.node_id, voters=voters))
            found.extend(directory_samples(directories, suspected, channel.io_errors))
            if self.controller is not None:
                found.extend(self.controller.metrics())
            if self.broker is not None:
                found.extend(_samples_of_broker(self.broker, directories.known, log_sizes, self._env.now_ns()))
            return found

        async def publish() -> None:
            while True:
                collector.publish(samples())
                await self._env.sleep_until(self._env.now_ns() + METRICS_INTERVAL_NS)

        with _named("diskraft.prometheus.listener", self._properties):
            stop = self._env.serve_metrics(address.host, address.port, collector)
        group.create_task(publish())
        return stop


def _samples_of_broker(broker: BrokerDaemon, known: LogDirectories, log_sizes: LogSizes, now_ns: int) -> Iterator[Sample]:
    replicas = broker.replicas
    yield from broker_samples(
        state=broker.lifecycle.state,
        known=known,
        replicas=replicas,
        queued_assignments=broker.directory_assignments.size,
        applied_offset=broker.follower.applied_offset,
        lag_ms=broker.follower.lag_ms,
    )
    yield from fetch_session_samples(broker.fetch_sessions)
    yield from group_samples(broker.groups)
    yield from transaction_samples(broker.transactions, broker.marker_sender, broker.verifier.counts)
    yield from replicas.traffic.samples(replicas.descriptions.topics)
    yield from log_sizes.samples(known.online, replicas.descriptions)
    yield from cleaner_samples(replicas.cleaner.counts, replicas.cleaner.uncleanable, known.online, now_ns)
