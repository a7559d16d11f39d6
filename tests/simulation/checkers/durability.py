"""Checks what must be on the platters at any moment, so that a power cut cannot lose it: I1, I5 and I9.

Shell of the tests. Everything below a recovery point is on the platter. A new log is on the platter before the broker uses
it. Every committed metadata record is on the controller's platter. A disk never changes its directory.id. The checkpoint
file is read from the platter too, and an entry whose folder does not exist (a deleted topic) promises nothing.
"""

import json
from collections.abc import Iterable, Mapping

from tests.simulation.checkers.raw_logs import METADATA_FOLDER, Compacts, UnreadableLog, by_folder, properties, read_log
from tests.simulation.disk import SimulatedDisk
from tests.simulation.disk_store import DiskStore, FileNode
from tests.simulation.history import is_compacted
from tests.simulation.violations import InvariantViolated

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
MARKER = ".kafka_cleanshutdown"
QUORUM_STATE = f"{METADATA_FOLDER}/quorum-state"


class DirectoryIds:
    """Remembers the directory.id of each disk, wherever it is mounted (I9)."""

    def __init__(self) -> None:
        # Keeps a reference to each store, because Python reuses the id() of a freed object.
        self._known: dict[int, tuple[DiskStore, str]] = {}

    def check(self, disk: SimulatedDisk, files: Mapping[str, bytes]) -> None:
        """Raises InvariantViolated when a disk's id has changed."""
        found = properties(files.get("meta.properties", b"")).get("directory.id")
        if found is None:
            return
        _, first = self._known.setdefault(id(disk.store), (disk.store, found))
        if first != found:
            raise InvariantViolated("I9", f"the disk at {disk.path} had directory.id {first}, it has {found} now")


def check_recovery_points(path: str, files: Mapping[str, bytes], compacts: Compacts = is_compacted) -> None:
    """I1: the platter has whole batches up to every recovery point, which a restart would trust. Raises
    InvariantViolated."""
    folders = by_folder(files)
    for folder, recovery_point in recovery_points(files.get(RECOVERY_POINTS, b"")):
        found = folders.get(folder, {})
        if not any(name.endswith(".log") for name in found):
            continue
        end = _durable_end(found, folder, compacts)
        if end < recovery_point:
            raise InvariantViolated(
                "I1", f"{path}/{folder}: the recovery point is {recovery_point}, the platter has whole batches below {end}"
            )


def check_new_log(partition: str, path: str, store: DiskStore) -> None:
    """I1: the platter has the folder of a log that the broker is about to use, with everything in it. Raises
    InvariantViolated."""
    durable = {name: node for name, node in store.walk(durable=True) if name.startswith(f"{partition}/")}
    names = {name.removeprefix(f"{partition}/") for name in durable}
    metadata = durable.get(f"{partition}/{PARTITION_METADATA}")
    if not any(name.endswith(".log") for name in names) or not isinstance(metadata, FileNode) or not metadata.durable:
        raise InvariantViolated("I1", f"{path}/{partition} is in use; after a power cut only {sorted(names)} may be there")


def check_no_marker(path: str, files: Mapping[str, bytes]) -> None:
    """I1: a directory that a broker writes to has no clean shutdown marker. Raises InvariantViolated."""
    if MARKER in files:
        raise InvariantViolated("I1", f"{path} is in use, and its platter says that it was left in order")


def check_owner(path: str, files: Mapping[str, bytes], broker_id: int) -> None:
    """I9: a broker does not use a directory of another node. Raises InvariantViolated."""
    owner = properties(files.get("meta.properties", b"")).get("node.id")
    if owner is not None and owner != str(broker_id):
        raise InvariantViolated("I9", f"broker {broker_id} uses {path}, which belongs to node {owner}")


def check_metadata(files: Mapping[str, bytes], *, committed: int, epoch: int) -> None:
    """I5: the platter of the only voter has every committed record, and the epoch in which it leads."""
    end = _durable_end(files, METADATA_FOLDER, is_compacted)
    if end < committed:
        raise InvariantViolated("I5", f"offsets below {committed} are committed, the controller's platter ends at {end}")
    stored = json.loads(files.get(QUORUM_STATE, b"{}")).get("leaderEpoch", -1)
    if stored < epoch:
        raise InvariantViolated("I5", f"the controller leads in epoch {epoch}, its platter knows epoch {stored}")


def recovery_points(content: bytes) -> Iterable[tuple[str, int]]:
    """Yields the folder and the offset of each line of a checkpoint."""
    for line in content.decode().splitlines()[2:]:
        topic, index, offset = line.split()
        yield f"{topic}-{index}", int(offset)


def _durable_end(files: Mapping[str, bytes], folder: str, compacts: Compacts) -> int:
    """Returns the offset where the whole batches of a log end. Any bytes may follow them."""
    try:
        return read_log(files, folder, compacts).end_offset
    except UnreadableLog as error:
        return error.end_offset
