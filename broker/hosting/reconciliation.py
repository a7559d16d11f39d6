"""Carries out what the core decides about each replica (shell, KIP-858).

`reconcile` compares one replica with the newest metadata and with what the directories hold: the core (`HostedReplicas`)
decides, and the replica is created, led or followed, or deleted, and what the controller is to know about it is queued. It
may be called at any time, and calling it again changes nothing.

`handle_directory_offline` does the same for all replicas of a directory that has failed. Until it comes to a replica,
`Hosted.served` does not return it any more, and `reconcile` closes it first.
"""

from collections.abc import Callable, Iterator, Sequence

from broker.core.hosted_replicas import HostedReplicas
from broker.core.reconcile import Action, Decision
from broker.hosting.fetchers import Fetchers
from broker.hosting.hosted import Hosted
from broker.hosting.log_deletion import LogDeletion
from broker.hosting.moves import Moves
from broker.hosting.named_timers import NamedTimers
from broker.hosting.partition import Partition
from broker.hosting.replica_creation import ReplicaCreation
from common.environment.interface import Environment
from common.ids import DirectoryId, TopicIdPartition, uuid_text
from common.log_dirs.log_directories import LogDirectories
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_MS

_WISHES_DELAY_NS = 10 * NS_PER_MS


class Reconciliation:
    """See the module docstring. `wishes_changed` is called when there is something else to report to the controller."""

    def __init__(
        self,
        env: Environment,
        *,
        state: MetadataState,
        directories: LogDirectories,
        known: HostedReplicas,
        hosted: Hosted,
        creation: ReplicaCreation,
        deletion: LogDeletion,
        moves: Moves,
        fetchers: Fetchers,
        timers: NamedTimers,
        wishes_changed: Callable[[], None],
    ) -> None:
        self._env = env
        self._state = state
        self._log_directories = directories
        self._known = known
        self._hosted = hosted
        self._creation = creation
        self._deletion = deletion
        self._moves = moves
        self._fetchers = fetchers
        self._timers = timers
        self._wishes_changed = wishes_changed
        # Whether the broker shuts down. Set once; from then on nothing is decided.
        self._is_stopped = False

    def stop(self) -> None:
        """Ends all decisions, because the broker shuts down."""
        self._is_stopped = True

    def reconcile(self, key: TopicIdPartition) -> None:
        """Decides about one replica and carries out the decision. Idempotent; may be called at any time."""
        self._creation.note_kind(key)
        if self._is_stopped:
            return
        registration = self._known.placed_here(key)
        if self._creation.is_under_way(key):
            self._expect(key, registration)
            return
        if registration is None:
            self._creation.drop_unfinished(key)
        partition = self._hosted.partitions.get(key)
        if partition is not None and not self._log_directories.is_online(partition.directory_id):
            self._close_offline(partition)
            partition = None
        decision = self._known.decide(key, None if partition is None else partition.directory_id)
        directory = None
        if decision.action is Action.CREATE and registration is not None:
            directory = self._creation.directory_for(key, registration, decision.directory)
            if directory is None:
                decision = self._decide_unplaceable(key, decision.directory)
            else:
                self._known.has_place(key)
        self._note_wish(key, decision.wish)
        if decision.action is Action.DELETE:
            if partition is not None:
                self._delete(partition)
        elif partition is not None and registration is not None:
            partition.apply(registration)
            self._moves.assignment_changed(key)
        elif directory is not None:
            self._creation.begin(key, directory)
            self._expect(key, registration)
        elif partition is None:
            self._fetchers.forget(key)

    def _expect(self, key: TopicIdPartition, registration: PartitionRegistration | None) -> None:
        """Lets the leader be notified if the disk hangs on which the replica's log is being created."""
        directory_id = self._creation.creating_in(key)
        if registration is None or directory_id is None:
            self._fetchers.forget(key)
        else:
            self._fetchers.expect(key, registration, directory_id)

    def _decide_unplaceable(self, key: TopicIdPartition, wanted: DirectoryId | None) -> Decision:
        """Decides what becomes of a replica for which no directory has room, and looks at it again later."""
        if self._known.has_no_place(key):
            reason = self._creation.why_no_room if wanted is None else "its directory is offline"
            self._env.log.error("replica_not_placeable", partition=self._name(key), reason=reason)
            self._wishes_changed()
        self._creation.try_again_later(key)
        return self._known.decide_unplaceable(key)

    def _note_wish(self, key: TopicIdPartition, wish: DirectoryId | None) -> None:
        if not self._known.note_wish(key, wish):
            return
        if wish is not None:
            self._env.log.info("assignment_queued", partition=self._name(key), directory_id=uuid_text(wish))
        if "wishes" not in self._timers:
            # Wishes come in bursts, one for each log that is created. Notify once per burst.
            self._timers.after("wishes", _WISHES_DELAY_NS, self._wishes_changed)

    def _name(self, key: TopicIdPartition) -> str:
        topic = self._state.topics.get(key.topic_id)
        return f"{uuid_text(key.topic_id) if topic is None else topic.name}-{key.partition}"

    # --- deleting ------------------------------------------------------------------------------------------------

    def _delete(self, partition: Partition) -> None:
        self._hosted.remove_partition(partition)
        self._fetchers.unfollow(partition)
        self._moves.removed(partition)
        # A partition that has moved to other brokers still exists, so its clients must look for the new leader.
        is_moved = self._state.partition(*partition.key) is not None
        partition.leave(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_moved else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        directory = self._hosted.directory_of(partition)
        if directory is not None:
            directory.replicas.remove(partition.key)
            # Capture the log now: if a swap is under way, `partition.log` may be the other log when the job runs.
            log, delay_ms = partition.log, partition.config.file_delete_delay_ms
            directory.work.submit(lambda: self._deletion.delete(log, partition.key, delay_ms, directory))

    # --- failing directories -------------------------------------------------------------------------------------

    def handle_directory_offline(self, directory_id: DirectoryId) -> Iterator[None]:
        """Handles a directory that went offline, without touching its disk. Its replicas answer KAFKA_STORAGE_ERROR. Logs
        that were being created there are created elsewhere (KAFKA-8526).

        Ends at once what is under way in the directory: its jobs, fetchers, creations and moves. The rest of the work,
        which grows with the number of replicas, is returned and yields after each."""
        assert not self._log_directories.is_online(directory_id), "LogDirectories is stepped first"
        self._hosted.stop(directory_id)
        self._fetchers.stop_directory(directory_id)
        homeless = self._creation.directory_offline(directory_id)
        self._moves.target_offline(directory_id)
        self._moves.source_offline(directory_id)
        return self._close_directory_offline(directory_id, homeless)

    def _close_directory_offline(self, directory_id: DirectoryId, homeless: Sequence[TopicIdPartition]) -> Iterator[None]:
        partitions = self._hosted.in_directory(directory_id)[::-1]
        while partitions:
            # Take each replica from the list, so that its files are freed in its own slice: freeing all of them takes long.
            partition = partitions.pop()
            # A replica that left meanwhile has been closed, or is in the directory that it was moving to.
            if self._hosted.partitions.get(partition.key) is partition and partition.directory_id == directory_id:
                self._close_offline(partition)
                yield
        offline = self._known.offline_in(directory_id)
        self._env.log.warning("replicas_offline", directory_id=uuid_text(directory_id), replicas=len(offline))
        for key in (*homeless, *offline):
            self.reconcile(key)
            yield

    def _close_offline(self, partition: Partition) -> None:
        self._hosted.remove_partition(partition)
        self._known.log_went_offline(partition.key, partition.directory_id)
        self._fetchers.unfollow(partition)
        partition.leave(ErrorCode.KAFKA_STORAGE_ERROR)
        partition.log.lose_directory()
