"""The checkers of a simulated cluster: the invariants of docs/INVARIANTS.md, as far as they can be checked.

Shell of the tests. Call `Checkers(cluster, history).install()` before the first fault: from then on a violation ends the run
at once, no matter which task is running. Call `await at_quiescence()` after the heal and `at_end()` at the very end. The
checkers do not patch the production modules. They register as one more listener of each node's metadata log, wrap the
handlers of its request servers, and inspect the nodes at a fixed interval of virtual time.
"""

import random
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

from broker.daemon import BrokerDaemon
from broker.hosting.partition import Partition
from common.configuration.server_loading import load_server_config
from common.ids import DirectoryId, TopicId, TopicIdPartition, Uuid, uuid_from_text
from common.protocol.errors import ErrorCode
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch
from common.raft.driver import QuorumDriver
from common.raft.listener import LoadedSnapshot
from common.time_units import NS_PER_MS, NS_PER_S
from controller.quorum_controller import QuorumController
from tests.simulation.checkers import raw_logs
from tests.simulation.checkers.compactions import check_compacted
from tests.simulation.checkers.copies import CopiesChecker, check_proposal
from tests.simulation.checkers.cordons import CordonChecker
from tests.simulation.checkers.deletions import DeletionChecker
from tests.simulation.checkers.detection import DetectionChecker, check_acknowledged
from tests.simulation.checkers.durability import (
    DirectoryIds,
    check_metadata,
    check_new_log,
    check_no_marker,
    check_owner,
    check_recovery_points,
)
from tests.simulation.checkers.groups import check_groups
from tests.simulation.checkers.history import BOUNDS_INTERVAL_NS, check_history, check_isr_sizes
from tests.simulation.checkers.image import ImageChecker
from tests.simulation.checkers.moves import MoveChecker
from tests.simulation.checkers.placement import check_spread
from tests.simulation.checkers.producers import LastBatch, check_known, check_snapshots, known_beyond
from tests.simulation.checkers.quiescence import problems
from tests.simulation.checkers.replicas import ReplicaChecker, hosted
from tests.simulation.checkers.requests import RequestChecker, WatchedServer
from tests.simulation.checkers.transactions import check_transactions
from tests.simulation.checkers.undisturbed import UndisturbedChecker, check_given_up
from tests.simulation.cluster import CONTROLLER_ID, SimulatedCluster
from tests.simulation.environment import SimulatedEvent
from tests.simulation.history import History, is_careless
from tests.simulation.log_dir import SimulatedLogDir
from tests.simulation.violations import InvariantViolated
from tools.node.node import Node

__all__ = ["Checkers", "InvariantViolated"]

LOOK_INTERVAL_NS = 20 * NS_PER_MS
PLATTERS_INTERVAL_NS = 7_000 * NS_PER_MS
LOGS_INTERVAL_NS = 13_000 * NS_PER_MS
SETTLED_INTERVAL_SECONDS = 0.05


class Checkers:
    """Checks a running cluster; see the module docstring. A broker may take a directory offline only if its path is in
    `harmed`. If `harmed` is None, any directory may go offline."""

    def __init__(self, cluster: SimulatedCluster, history: History, *, harmed: Collection[str] | None = None) -> None:
        self.image = ImageChecker(cluster.world.now_ns)
        config = load_server_config(cluster.properties(cluster.broker_ids[0]))
        self.replicas = ReplicaChecker(
            self.image, directory_failure_timeout_ns=config.log_dir_failure_timeout_ms * NS_PER_MS
        )
        self.detection = DetectionChecker(
            cluster.world.disk,
            probe_interval_ns=config.diskraft_log_dir_probe_interval_ms * NS_PER_MS,
            operation_timeout_ns=config.diskraft_log_dir_operation_timeout_ms * NS_PER_MS,
            suspect_after_ns=config.diskraft_log_dir_suspect_ms * NS_PER_MS,
        )
        self.copies = CopiesChecker(history)
        self.moves = MoveChecker(cluster.world.disk)
        self.cordons = CordonChecker()
        self.deletions = DeletionChecker(history)
        # Cached, because every look needs these paths and loading the configuration is expensive.
        self._log_dirs = {broker_id: cluster.config(broker_id).log_dirs for broker_id in cluster.broker_ids}
        self._metadata_dir = cluster.config(CONTROLLER_ID).metadata_log_dir
        self._session_timeout_ns = config.broker_session_timeout_ms * NS_PER_MS
        self._cluster = cluster
        self._history = history
        self._harmed = harmed
        self._attached: dict[int, Node] = {}
        self._requests = RequestChecker(self.image)
        self._undisturbed = UndisturbedChecker(cluster.world.disk)
        self._directory_ids = DirectoryIds()
        self._power_cuts = random.Random(f"{cluster.world.seed}/checkers")
        self._unjudged: deque[tuple[int, SimulatedEvent]] = deque()
        # The times, in ascending order, at which a look found that a broker could not learn from the controller.
        self._without_controller: list[int] = []
        self._is_over = False

    def install(self) -> None:
        """Starts checking every committed batch as it is delivered, and every replica at a fixed interval."""
        self._cluster.world.event_watchers.append(self._happens)
        self._cluster.world.operation_watchers.append(self._operates)
        self._every(LOOK_INTERVAL_NS, self._look_at_replicas)
        self._every(BOUNDS_INTERVAL_NS, self._look_at_bounds)
        self._every(PLATTERS_INTERVAL_NS, self._look_at_platters)
        self._every(LOGS_INTERVAL_NS, self._look_at_logs)

    def stop(self) -> None:
        """Ends the periodic checks."""
        self._is_over = True

    async def at_quiescence(self, within_seconds: float = 60) -> None:
        """Waits until the cluster has settled. Call it after the heal, with the clients stopped. Raises InvariantViolated
        for the first problem that is left after this much virtual time."""
        world = self._cluster.world
        deadline_ns = world.now_ns() + round(within_seconds * NS_PER_S)
        while violation := self._unsettled():
            if world.now_ns() >= deadline_ns:
                raise InvariantViolated(violation.invariant, f"{violation.text} ({within_seconds} s after the heal)")
            await world.sleep(SETTLED_INTERVAL_SECONDS)
        self._look_at_platters()

    def check_spread(self, topic_id: TopicId) -> None:
        """I20: checks that the replicas of a topic are spread evenly. The topic must have been created after the cluster had
        settled, and its replicas must be in sync. Raises InvariantViolated."""
        check_spread(topic_id, self.brokers(), self.image.image)

    def at_end(self, *, excused: Iterable[TopicIdPartition] = ()) -> None:
        """Checks the history on its own. Then compares the files on the disks with the history and the metadata. Call it
        with the clients stopped and the cluster settled. Partitions that lost all their disks (`excused`) may have lost
        records. Raises InvariantViolated."""
        self.stop()
        forgiven = frozenset(excused)
        careless = {key for key in self.image.image.partitions if is_careless(self.image.image.name(key))}
        check_history(self._history, excused=forgiven | careless)
        check_groups(self._history)
        check_transactions(self._history)
        check_isr_sizes(self._history, self.image.isr_sizes, self._without_controller)
        directories = self._directories()
        judged = {key: part for key, part in self.image.image.partitions.items() if key not in forgiven}
        raw_logs.check_logs(directories, judged, self.image.image.name, self.replicas.committed, self._history)
        self._check_producers(directories)
        logs = {
            self._cluster.name(id_): raw_logs.read_log(
                self._cluster.world.disk(self._cluster.config(id_).metadata_log_dir).files(), raw_logs.METADATA_FOLDER
            )
            for id_ in (CONTROLLER_ID, *self.brokers())
        }
        raw_logs.check_metadata_logs(logs, self.image, leader=self._cluster.name(CONTROLLER_ID))

    def _check_producers(self, directories: Iterable[raw_logs.RawDirectory]) -> None:
        brokers = self.brokers()
        for directory in directories:
            for key, log in directory.logs.items():
                where = f"{self.image.image.name(key)} in {directory.path}"
                check_snapshots(where, log)
                broker = brokers.get(directory.broker_id)
                partition = None if broker is None else broker.replicas._partitions.get(key)
                # A log that failed, or is still being written to, may know batches that are not in its file.
                if partition is None or partition.directory_id != directory.directory_id:
                    continue
                if partition.log.failure is None and partition.log.log_end_offset == log.end_offset:
                    known = {
                        producer_id: LastBatch(entry.epoch, entry.last_sequence, entry.last_offset)
                        for producer_id, entry in partition.log.producers.state.entries.items()
                    }
                    check_known(where, known, log, log.end_offset)

    # --- looking -------------------------------------------------------------------------------------------------

    def _every(self, interval_ns: int, check: Callable[[], object]) -> None:
        if not self._is_over:
            self._attach_to_new_nodes()
            self._guarded(check)
            loop = self._cluster.world.loop
            loop.call_at_ns(loop.now_ns + interval_ns, partial(self._every, interval_ns, check))

    def _happens(self, event: SimulatedEvent) -> None:
        if not self._is_over:
            # Check at once: a little later the replica whose log was created may have joined the ISR legitimately.
            self._guarded(lambda: self.replicas.happened(event))
            self._guarded(lambda: check_proposal(event, self.brokers()))
            self._guarded(lambda: check_compacted(event, self.brokers()))
            if event.node == self._cluster.name(CONTROLLER_ID):
                self._guarded(lambda: self._undisturbed.check_absence(event, self._cluster.env(CONTROLLER_ID)))
            if self._harmed is not None:
                self._guarded(partial(check_given_up, event, self._harmed))
            if event.name == "log_created":
                self._guarded(partial(self._check_new_log, event))
            if event.name == "log_dir_failure_acknowledged":
                self._unjudged.append((self._committed_offset(), event))
                self._guarded(self._judge_acknowledged)

            self._guarded(lambda: self.moves.happened(event, self.brokers(), self.image.image))

    def _check_new_log(self, event: SimulatedEvent) -> None:
        broker = self.brokers()[int(event.node.rpartition("-")[2])]
        path = event.fields["log_dir"]
        log_dir = next(each for each in broker.replicas._log_dirs.values() if each.path == path)
        assert isinstance(log_dir, SimulatedLogDir)
        # Not the disk that is at the path now: it may have been replaced.
        check_new_log(event.fields["partition"], path, log_dir.store)
        key = TopicIdPartition(
            TopicId(Uuid(bytes.fromhex(event.fields["topic_id"]))), int(event.fields["partition"].rpartition("-")[2])
        )
        directory_id = DirectoryId(uuid_from_text(event.fields["directory_id"]))
        self.cordons.created(broker.replicas._broker_id, broker, key, directory_id)

    def _operates(self, path: str, kind: str, name: str) -> None:
        if self._is_over:
            return
        if kind == "remove":
            now_ns = self._cluster.world.now_ns()
            self._guarded(lambda: self.moves.removed(path, name, self.brokers(), self.image.image, now_ns))
        elif kind == "rename":
            self._guarded(lambda: self.moves.renamed(path, name, self.brokers()))

    def _committed_offset(self) -> int:
        """Returns the end of the committed records. For a short time a new controller may know of committed records that it
        has not delivered to the checkers yet."""
        node = self._cluster.nodes.get(CONTROLLER_ID)
        driver = None if node is None else _driver_of(node)
        return self.image.next_offset if driver is None else max(driver.high_watermark, self.image.next_offset)

    def _judge_acknowledged(self) -> None:
        """Judges each acknowledgement of a directory failure once the image contains everything that was committed when the
        broker logged the acknowledgement."""
        while self._unjudged and self._unjudged[0][0] <= self.image.next_offset:
            _, event = self._unjudged.popleft()
            check_acknowledged(event, self.image.image)

    def _look_at_bounds(self) -> None:
        """Checks the rules with a time limit."""
        if self._requests.violation is not None:
            raise self._requests.violation
        now_ns = self._cluster.world.now_ns()
        if not self._is_controller_well() or self._is_a_broker_cut_off():
            self._without_controller.append(now_ns)
        self._requests.check_open(now_ns, self._running())
        brokers = {id_: each for id_, each in self.brokers().items() if not self._cluster.env(id_).is_paused}
        self.replicas.look_at_offline_directories(brokers, now_ns)
        self.detection.look(brokers, now_ns)
        self.detection.look_at_suspicions(brokers, now_ns)
        self._undisturbed.look_at_creations(brokers, now_ns)
        # A slow metadata disk may take longer to commit a record than the rules allow.
        is_controller_well = self._is_controller_well() and self._cluster.world.disk(self._metadata_dir).is_well
        self._undisturbed.look_at_failures(brokers, self.image.image, now_ns, is_controller_well=is_controller_well)
        self._undisturbed.look_at_sessions(
            [broker_id for broker_id in self._cluster.broker_ids if self._cluster.env(broker_id).is_dead],
            self.image.image,
            now_ns,
            session_timeout_ns=self._session_timeout_ns,
            is_controller_well=is_controller_well,
        )

    def _look_at_platters(self) -> None:
        """Checks the data directories of the brokers and the controller's metadata directory. A broker's metadata directory
        is only a copy of the controller's and is left out."""
        in_use = {
            path
            for broker in self.brokers().values()
            if broker.replicas._is_loaded and not broker.replicas._reconciliation._is_stopped
            for path in broker._directories.known.online.values()
        }
        for broker_id in self._cluster.broker_ids:
            for path in self._log_dirs[broker_id]:
                disk = self._cluster.world.disk(path)
                # Check the platter as it is now, and as a power cut at this moment might leave it.
                for files in (disk.durable_files(), disk.files_after_a_power_cut(self._power_cuts)):
                    self._directory_ids.check(disk, files)
                    if not disk.is_rotten:
                        check_recovery_points(path, files, self._cluster.compacts)
                    if path in in_use:
                        check_no_marker(path, files)
                        check_owner(path, files, broker_id)
        controller = self.controller()
        if controller is not None and self._is_controller_well():
            disk = self._cluster.world.disk(self._metadata_dir)
            for files in (disk.durable_files(), disk.files_after_a_power_cut(self._power_cuts)):
                check_metadata(files, committed=self.image.next_offset, epoch=controller.leader.epoch)

    def _look_at_replicas(self) -> None:
        brokers = self.brokers()
        # A leader may have the answer of a new controller before the checkers have its first records (seed 17090).
        self.replicas.look(brokers, is_image_complete=self.image.next_offset >= self._committed_offset())
        awake = {id_: each for id_, each in brokers.items() if not self._cluster.env(id_).is_paused}
        self.moves.look(awake, self.image.image, self._cluster.world.now_ns())
        self.copies.look(brokers, self.image.image, self._cluster.world.now_ns())
        self.cordons.look(brokers)
        self.deletions.look(brokers, self.image.image, self._cluster.world.now_ns())
        for broker_id, broker in brokers.items():
            for partition in broker.replicas._partitions.values():
                log = partition.log
                if (known := known_beyond(log.log_end_offset, log.producers)) is not None:
                    raise InvariantViolated("I2", f"{partition.name} on broker {broker_id}: {known}")

    def _look_at_logs(self) -> None:
        """I3: the committed records are the same in the files of all loaded replicas."""
        loaded: dict[TopicIdPartition, list[tuple[int, Partition]]] = {}
        for broker_id, broker in self.brokers().items():
            for key, partition in hosted(broker):
                if partition.gone is ErrorCode.NONE and not partition.is_restructuring:
                    loaded.setdefault(key, []).append((broker_id, partition))
        for replicas in loaded.values():
            if is_careless(replicas[0][1].name):
                # A replica may not have noticed yet that an unclean election has taken away its committed records.
                continue
            logs: dict[int, raw_logs.RawLog] = {}
            for broker_id, partition in replicas:
                files = self._cluster.world.disk(partition.log.log_dir.path).files_in(partition.log.name)
                # The broker may not have noticed yet that this disk is damaged. The checks of detection
                # and `at_end` decide whether it notices in time.
                with suppress(raw_logs.UnreadableLog):
                    logs[broker_id] = raw_logs.read_log(files, partition.log.name, self._cluster.compacts)
            committed = min(partition.high_watermark for _, partition in replicas)
            raw_logs.check_equal(replicas[0][1].name, logs, committed)

    def _attach_to_new_nodes(self) -> None:
        for node_id, node in self._cluster.nodes.items():
            driver = _driver_of(node)
            if driver is not None and self._attached.get(node_id) is not node:
                self._attached[node_id] = node
                driver.register(_Listener(self, self._cluster.name(node_id)))
                self._requests.forget(self._cluster.name(node_id))
                for watched in _servers_of(self._cluster.name(node_id), node):
                    self._requests.watch(watched)

    def committed(self, node: str, batch: CommittedBatch) -> None:
        """Receives a batch that a node's metadata log delivered."""
        if not self._is_over:
            self._guarded(partial(self._check_batch, node, batch))

    def loaded(self, node: str, snapshot: LoadedSnapshot) -> None:
        """Receives a snapshot that a node's metadata log loaded."""
        self._guarded(partial(self.image.loaded, node, snapshot.end_offset, snapshot.records))

    def _check_batch(self, node: str, batch: CommittedBatch) -> None:
        is_news = self.image.committed(node, batch.base_offset, batch.last_offset, batch.epoch, batch.records)
        self._judge_acknowledged()
        if is_news and batch.records:
            self.moves.committed(self.image.image)
            self.replicas.committed_batch(batch.records, self.brokers())
            self._look_at_replicas()

    def _guarded(self, check: Callable[[], object]) -> None:
        """Runs a check. A violation is raised in a separate callback and ends the run, so no daemon code can swallow it."""
        try:
            check()
        except InvariantViolated as violation:
            if not self._is_over:
                self._is_over = True
                self._cluster.world.loop.call_soon(_raise, violation)

    def _unsettled(self) -> InvariantViolated | None:
        problem = next(problems(self.controller(), self.brokers(), self.image.image), None)
        if problem is not None:
            return InvariantViolated(*problem)
        try:
            raw_logs.check_directories(self._directories(), self.image.image)
        except InvariantViolated as violation:
            # The broker may still be deleting this folder.
            return violation
        return None

    # --- the state of the cluster --------------------------------------------------------------------------------

    def _running(self) -> list[str]:
        """Returns the nodes that are alive and not paused."""
        envs = {node_id: self._cluster.env(node_id) for node_id in self._cluster.nodes}
        return [self._cluster.name(id_) for id_, env in envs.items() if not env.is_dead and not env.is_paused]

    def _is_controller_well(self) -> bool:
        controller = self.controller()
        return controller is not None and controller.is_active and self._cluster.name(CONTROLLER_ID) in self._running()

    def _is_a_broker_cut_off(self) -> bool:
        network, controller = self._cluster.world.network, self._cluster.name(CONTROLLER_ID)
        brokers = map(self._cluster.name, self._cluster.broker_ids)
        return any(network.is_cut(controller, broker) or network.is_cut(broker, controller) for broker in brokers)

    def brokers(self) -> dict[int, BrokerDaemon]:
        """Returns the brokers that are alive."""
        found = {}
        for broker_id in self._cluster.broker_ids:
            node = self._cluster.nodes.get(broker_id)
            if node is not None and node.broker is not None and not self._cluster.env(broker_id).is_dead:
                found[broker_id] = node.broker
        return found

    def _directories(self) -> list[raw_logs.RawDirectory]:
        """Reads every online data directory from its files."""
        return [
            raw_logs.read_directory(broker_id, path, self._cluster.world.disk(path).files(), self._cluster.compacts)
            for broker_id, broker in self.brokers().items()
            for path in broker._directories.known.online.values()
        ]

    def controller(self) -> QuorumController | None:
        """Returns the controller, or None if its node has not started it."""
        node = self._cluster.nodes.get(CONTROLLER_ID)
        return None if node is None or node.controller is None else node.controller.controller


class _Listener:
    """The MetadataListener that passes one node's committed batches to the checkers."""

    def __init__(self, checkers: Checkers, node: str) -> None:
        self._checkers = checkers
        self._node = node

    def handle_commit(self, batch: CommittedBatch) -> None:
        self._checkers.committed(self._node, batch)

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self._checkers.loaded(self._node, snapshot)

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Does nothing: the epochs of the batches show which node led."""


def _driver_of(node: Node) -> QuorumDriver | None:
    if node.controller is not None:
        driver = node.controller.controller._driver
        assert isinstance(driver, QuorumDriver)
        return driver
    return None if node.broker is None else node.broker._driver


def _servers_of(name: str, node: Node) -> list[WatchedServer]:
    found = []
    if node.controller is not None:
        found += [WatchedServer(name, server, node.controller.controller) for server in node.controller._servers]
    if node.broker is not None:
        found += [WatchedServer(name, server) for server in node.broker._servers.values()]
    return found


def _raise(violation: InvariantViolated) -> None:
    raise violation
