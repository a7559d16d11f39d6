"""Carries out AlterReplicaLogDirs for one replica at a time (shell, KIP-113).

Counterpart of Kafka's ReplicaManager.alterReplicaLogDirs. The core decides (`decide_alteration`): the replica begins or ends
a move (`Moves`), or the directory is remembered for a replica that is not here yet.
"""

from broker.core.alter_log_dir import Alteration, AlterationWanted, decide_alteration
from broker.core.cordoned_directories import is_cordoned
from broker.core.current_configuration import CurrentConfiguration
from broker.core.hosted_replicas import HostedReplicas
from broker.hosting.hosted import Hosted
from broker.hosting.moves import Moves
from broker.hosting.replica_creation import ReplicaCreation
from common.ids import ZERO_UUID, DirectoryId, TopicId, TopicIdPartition
from common.log_dirs.log_directories import LogDirectories
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.storage.names import FILE_NAME_MAX, FolderKind, marked_partition_folder

# Stands for the id of a topic that the metadata does not contain: no partition has this id.
_UNKNOWN_TOPIC = TopicId(ZERO_UUID)


class LogDirAlteration:
    """See the module docstring."""

    def __init__(
        self,
        *,
        state: MetadataState,
        directories: LogDirectories,
        known: HostedReplicas,
        hosted: Hosted,
        creation: ReplicaCreation,
        moves: Moves,
        configuration: CurrentConfiguration,
    ) -> None:
        self._configuration = configuration
        self._state = state
        self._log_directories = directories
        self._known = known
        self._hosted = hosted
        self._creation = creation
        self._moves = moves

    def alter(self, topic: str, index: int, destination: str) -> ErrorCode:
        """Starts moving a replica to the directory at this path, remembers the directory for a replica that is not here yet,
        or cancels a move. Returns the error to answer."""
        topic_id = self._state.topic_ids.get(topic)
        if topic_id is None:
            # Still check the path, because Kafka reports its errors first.
            topic_id = _UNKNOWN_TOPIC
        key = TopicIdPartition(topic_id, index)
        wanted = self._alteration_wanted(key, topic, destination)
        decision = decide_alteration(wanted)
        match decision.alteration:
            case Alteration.PREFER | Alteration.FORGET_PREFERENCE:
                if wanted.exists:
                    self._known.preferred.prefer(key, wanted.directory_id)
                else:
                    self._known.preferred.prefer_by_name(topic, index, wanted.directory_id)
            case Alteration.CANCEL:
                self._moves.cancel(key)
            case Alteration.MOVE:
                self._begin_move(key, wanted.directory_id)
            case Alteration.NOTHING:
                pass
        return decision.error

    def _alteration_wanted(self, key: TopicIdPartition, topic: str, destination: str) -> AlterationWanted:
        partition = self._hosted.served(key)
        directory = next((each for each in self._log_directories.data_dirs if each.path == destination), None)
        directory_id = None if directory is None else directory.directory_id
        future = marked_partition_folder(topic, key.partition, FolderKind.FUTURE, bytes(16))
        return AlterationWanted(
            destination=destination,
            directory_id=directory_id,
            is_configured=directory is not None,
            is_cordoned=is_cordoned(destination, self._configuration, self._state),
            is_online=directory is not None and directory.is_online,
            exists=self._state.partition(*key) is not None,
            is_placed_here=self._known.placed_here(key) is not None,
            is_changing_place=self._creation.is_under_way(key) or (partition is not None and partition.is_swapping),
            current=None if partition is None else partition.directory_id,
            target=self._known.movement.target(key),
            is_name_too_long=len(future.encode()) > FILE_NAME_MAX,
            has_room=partition is None
            or directory_id is None
            or self._moves.has_room(directory_id, partition.log.size_bytes),
        )

    def _begin_move(self, key: TopicIdPartition, directory_id: DirectoryId | None) -> None:
        partition = self._hosted.partitions[key]
        source = self._hosted.directory_of(partition)
        target = None if directory_id is None else self._hosted.online_directory(directory_id)
        assert source is not None and target is not None, "the decision requires both directories to be online"
        self._moves.begin(partition, source, target)
        self._creation.note_kind(key)
