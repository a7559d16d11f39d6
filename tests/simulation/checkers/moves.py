"""Checks the moves of replicas between the directories of a broker (I15).

Shell of the tests. At the end of a move the checker compares what is durable on the disks, not what the broker believes.
After a power cut at that moment there must be exactly one current log, and it must have the leader epochs of the old log. It
must also end where the old log ended: followers may have every record of the old log, acknowledged or not. When the removal
of a -delete folder begins, and the metadata places the replica there, the broker must have a current log of the replica on a
disk that it takes for healthy, or did a moment ago, when the removal of the first file had to wait for its turn. Otherwise
the folder may be the only copy.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from broker.daemon import BrokerDaemon
from common.ids import BrokerId, TopicId, TopicIdPartition, Uuid, uuid_from_text
from common.protocol.errors import ErrorCode
from common.storage.log import Log
from common.storage.names import DELETED_SUFFIX
from common.time_units import NS_PER_MS, NS_PER_S
from tests.simulation.checkers.image import ImageModel
from tests.simulation.checkers.raw_logs import UnreadableLog, topic_id_line
from tests.simulation.disk import SimulatedDisk
from tests.simulation.disk_store import FileNode, FolderNode
from tests.simulation.environment import SimulatedEvent
from tests.simulation.violations import InvariantViolated

LEADER_EPOCHS = "leader-epoch-checkpoint"
# Within this time after a directory has failed, the broker must have taken back every assignment to the directory.
REVERTED_BOUND_NS = 1 * NS_PER_S
# So long the removal of a file may wait for its turn.
TURN_BOUND_NS = 20 * NS_PER_MS

# The id of a broker, and a partition of which it has a replica.
Replica = tuple[int, TopicIdPartition]


_FOLDER = re.compile(r"[^/]+-(?P<index>\d+)(\.[0-9a-f]{32}-(?P<mark>delete|future|stray))?")


@dataclass(frozen=True, slots=True)
class _Folder:
    """A partition's folder. `mark` is the suffix after the last hyphen ("delete", "future" or "stray"), or empty for a
    current log."""

    name: str
    mark: str
    key: TopicIdPartition


@dataclass(slots=True)
class _Move:
    """A move whose copy has caught up."""

    # The current log when the checker last looked. When the move has ended, this is the old log.
    old: Log
    # The directories that the metadata has named since the copy caught up.
    named: set[Uuid]


class MoveChecker:
    """Checks moves as the module docstring describes. `disk_at` returns the disk at a path."""

    def __init__(self, disk_at: Callable[[str], SimulatedDisk]) -> None:
        self._disk_at = disk_at
        self._moves: dict[Replica, _Move] = {}
        self._wrong_since: dict[tuple[BrokerDaemon, TopicIdPartition], int] = {}
        # The -delete folders whose removal is not looked at, because it has begun before or the replica had left the broker:
        # the path of the directory, and the folder.
        self._unwatched: set[tuple[str, str]] = set()
        # When the directories of each node went offline last, by their paths.
        self._offline_ns: dict[str, dict[str, int]] = {}

    # --- acknowledgement and swap --------------------------------------------------------------------------------

    def happened(self, event: SimulatedEvent, brokers: Mapping[int, BrokerDaemon], image: ImageModel) -> None:
        """Checks a move when its copy has caught up, and again when it has finished. Notes which logs are deleted because
        their replica has left the broker, and which directories go offline. Raises InvariantViolated."""
        if event.name not in ("move_caught_up", "move_finished", "log_deleted", "log_dir_offline"):
            return
        if event.name == "log_dir_offline":
            self._offline_ns.setdefault(event.node, {})[event.fields["log_dir"]] = event.at_ns
            return
        broker_id = int(event.node.rpartition("-")[2])
        if event.name == "log_deleted":
            self._note_deleted(event.fields["log_dir"], event.fields["folder"], broker_id, image)
            return
        broker = brokers[broker_id]
        key = next(key for key, each in broker.replicas._partitions.items() if each.name == event.fields["partition"])
        target = uuid_from_text(event.fields["directory_id"])
        where = f"{event.fields['partition']} on broker {broker_id}"
        if event.name == "move_caught_up":
            self._begin(where, broker_id, broker, key, target, image)
        else:
            self._finish(where, broker.replicas._partitions[key].log, event, self._moves.pop((broker_id, key), None), target)

    def _begin(
        self, where: str, broker_id: int, broker: BrokerDaemon, key: TopicIdPartition, target: Uuid, image: ImageModel
    ) -> None:
        known = broker.state.partition(*key)
        if known is not None and broker_id in known.replicas and known.directory(BrokerId(broker_id)) == target:
            raise InvariantViolated(
                "I15", f"{where}: an older assignment names the target, and the copy may replace the log"
            )
        self._moves[broker_id, key] = _Move(broker.replicas._partitions[key].log, set())
        self.committed(image)

    def committed(self, image: ImageModel) -> None:
        """Records which directories the committed metadata names for the moving replicas."""
        for (broker_id, key), move in self._moves.items():
            part = image.partitions.get(key)
            if part is not None and broker_id in part.replicas:
                move.named.add(part.directory(broker_id))

    def _finish(self, where: str, log: Log, event: SimulatedEvent, move: _Move | None, target: Uuid) -> None:
        if move is None or target not in move.named:
            raise InvariantViolated(
                "I15", f"{where}: the copy became the current log before the metadata named its directory"
            )
        placed = self._disk_at(event.fields["target"])
        if not isinstance(placed.store.find(event.fields["partition"], durable=True), FolderNode):
            raise InvariantViolated("I15", f"{where}: the new log is in use; a power cut would take its name away")
        if move.old.name.endswith("-delete"):
            if move.old.log_end_offset != log.log_end_offset:
                raise InvariantViolated(
                    "I15",
                    f"{where}: the new log ends at {log.log_end_offset}, the old one ended at {move.old.log_end_offset}",
                )
            self._check_epochs(where, move.old, log, placed)

    def _check_epochs(self, where: str, old: Log, new: Log, disk: SimulatedDisk) -> None:
        """Checks that the new log has taken over the history of leader epochs, including epochs without records."""
        stored = disk.find(f"{new.name}/{LEADER_EPOCHS}")
        lines = bytes(stored.content).decode().splitlines()[2:] if isinstance(stored, FileNode) else []
        found = {(int(epoch), int(start)) for epoch, start in map(str.split, lines)}
        lost = [entry for entry in old.leader_epochs.entries if entry[1] > new.log_start_offset and entry not in found]
        if lost:
            raise InvariantViolated("I15", f"{where}: the new log lacks the leader epochs {lost}")

    def renamed(self, path: str, old_name: str, brokers: Mapping[int, BrokerDaemon]) -> None:
        """Checks that a copy which has got the partition's name is the only log of that name that a power cut would leave.
        Raises InvariantViolated."""
        parsed = _FOLDER.fullmatch(old_name)
        if parsed is None or parsed["mark"] != "future":
            return
        name = old_name.rpartition(".")[0]
        got_name = _partition_folder(self._disk_at(path), name)
        paths = next((found for broker in brokers.values() if path in (found := _online(broker))), [])
        for other in paths:
            if (
                got_name is not None
                and other != path
                and _durable_topic(self._disk_at(other), name) == got_name.key.topic_id
            ):
                raise InvariantViolated(
                    "I15", f"the copy {path}/{old_name} gets its name; on the platter {other} has a {name} too"
                )

    # --- looking -------------------------------------------------------------------------------------------------

    def look(self, brokers: Mapping[int, BrokerDaemon], image: ImageModel, now_ns: int) -> None:
        """Checks the brokers that are alive and not paused. Raises InvariantViolated."""
        before, self._wrong_since = self._wrong_since, {}
        for broker_id, broker in brokers.items():
            offline = {each.directory_id for each in broker._directories.known.offline} - {None}
            if not offline and not self._moves:
                continue
            for key, partition in broker.replicas._partitions.items():
                move = self._moves.get((broker_id, key))
                if move is not None and key in broker.replicas._known.movement:
                    move.old = partition.log
                if partition.gone is ErrorCode.NONE and _reported(broker, broker_id, key) in offline:
                    since_ns = self._wrong_since[broker, key] = before.get((broker, key), now_ns)
                    if now_ns - since_ns > REVERTED_BOUND_NS:
                        raise InvariantViolated(
                            "I15",
                            f"broker {broker_id} serves {partition.name} and reports it in a directory that is offline",
                        )

    # --- deletion of the only copy -------------------------------------------------------------------------------

    def _note_deleted(self, path: str, name: str, broker_id: int, image: ImageModel) -> None:
        """Notes the folder of a replica that has left the broker. If the replica comes back, it gets a new log, perhaps only
        after the files of the old one are gone."""
        folder = _partition_folder(self._disk_at(path), name)
        if folder is not None and not _is_placed(image, broker_id, folder.key):
            self._unwatched.add((path, name))

    def removed(self, path: str, name: str, brokers: Mapping[int, BrokerDaemon], image: ImageModel, now_ns: int) -> None:
        """Checks that the file or folder `name` may be removed from the disk at `path`. Raises InvariantViolated. Files that
        have left their log are no part of it, and may go at any time."""
        if name.endswith(DELETED_SUFFIX):
            return
        folder = _partition_folder(self._disk_at(path), name.partition("/")[0])
        if folder is None or folder.mark != "delete" or (path, folder.name) in self._unwatched:
            return
        self._unwatched.add((path, folder.name))
        for broker_id, broker in brokers.items():
            online = _online(broker)
            if path not in online or not _is_placed(image, broker_id, folder.key):
                continue
            known = broker.state.partition(*folder.key)
            if known is None or broker_id not in known.replicas:
                # The replica has left the broker and comes back, which the broker does not know yet. It will start empty.
                continue
            lost = self._offline_ns.get(f"broker-{broker_id}", {}).items()
            online += [other for other, offline_ns in lost if now_ns - offline_ns <= TURN_BOUND_NS]
            found = [each for other in online for each in _partition_folders(self._disk_at(other))]
            marks = {each.mark for each in found if each.key == folder.key and each.name != folder.name}
            # In the middle of a swap the old log has lost its name and the copy does not have it yet. A start would promote
            # the copy.
            if "" not in marks and not marks >= {"future", "delete"}:
                raise InvariantViolated(
                    "I15",
                    f"broker {broker_id} removes {path}/{folder.name} and has no other log of {image.name(folder.key)}",
                )


def _online(broker: BrokerDaemon) -> list[str]:
    return list(broker._directories.known.online.values())


def _reported(broker: BrokerDaemon, broker_id: int, key: TopicIdPartition) -> Uuid | None:
    """Returns the directory that the broker asks the controller to assign. If it asks for none, returns the one that the
    metadata names."""
    wish = broker.replicas._known._wishes.get(key)
    known = broker.state.partition(*key)
    if wish is not None or known is None or broker_id not in known.replicas:
        return wish
    return known.directory(BrokerId(broker_id))


def _is_placed(image: ImageModel, broker_id: int, key: TopicIdPartition) -> bool:
    part = image.partitions.get(key)
    return part is not None and broker_id in part.replicas


def _durable_topic(disk: SimulatedDisk, folder: str) -> TopicId | None:
    """Returns the topic id in a folder on the platter; None without a folder of this name or a topic id in it."""
    node = disk.store.find(f"{folder}/partition.metadata", durable=True)
    if not isinstance(node, FileNode) or not node.durable:
        return None
    return TopicId(uuid_from_text(topic_id_line(bytes(node.durable))))


def _partition_folders(disk: SimulatedDisk) -> Iterator[_Folder]:
    """Yields each partition folder that has a partition.metadata."""
    for name in disk.store.top_folders():
        folder = _partition_folder(disk, name)
        if folder is not None:
            yield folder


def _partition_folder(disk: SimulatedDisk, name: str) -> _Folder | None:
    """Returns the partition folder of this name. Returns None if there is none, or if it has no partition.metadata that can
    be read, as after a power cut."""
    parsed, metadata = _FOLDER.fullmatch(name), disk.find(f"{name}/partition.metadata")
    if parsed is None or not isinstance(metadata, FileNode) or not metadata.content:
        return None
    try:
        topic_id = TopicId(uuid_from_text(topic_id_line(bytes(metadata.content))))
    except (UnreadableLog, ValueError):
        # No topic id, or zeros in its place.
        return None
    return _Folder(name, parsed["mark"] or "", TopicIdPartition(topic_id, int(parsed["index"])))
