"""Positions in the metadata log and the names of its files (core).

Counterpart of Kafka's OffsetAndEpoch and Snapshots. A snapshot is named by its *exclusive* end offset and the epoch of the
last record that it covers. So (0, 0) is the position before the first record, and `bootstrap.checkpoint` serves as the
snapshot at that position.
"""

from typing import NamedTuple

from common.ids import LeaderEpoch, Offset
from common.storage.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, parse_snapshot_file, snapshot_file

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
METADATA_LOG_FOLDER = "__cluster_metadata-0"
QUORUM_STATE_FILE = f"{METADATA_LOG_FOLDER}/quorum-state"

_PARTIAL_SUFFIX = ".part"


class OffsetAndEpoch(NamedTuple):
    """An exclusive end offset and the epoch of the record before it. Ordered by offset, then by epoch."""

    offset: Offset
    epoch: LeaderEpoch


ORIGIN = OffsetAndEpoch(Offset(0), LeaderEpoch(0))


def snapshot_path(snapshot_id: OffsetAndEpoch) -> str:
    """Returns the path of a snapshot, relative to the log directory."""
    return f"{METADATA_LOG_FOLDER}/{snapshot_file(snapshot_id.offset, snapshot_id.epoch)}"


def partial_snapshot_path(snapshot_id: OffsetAndEpoch, attempt: int) -> str:
    """Returns the path of a snapshot that is still being written. It is renamed once it is complete. Each attempt of a node
    has its own number, because a node may write and download the same snapshot at the same time."""
    return f"{snapshot_path(snapshot_id).removesuffix(SNAPSHOT_SUFFIX)}-{attempt}{SNAPSHOT_SUFFIX}{_PARTIAL_SUFFIX}"


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """Parses the id of a snapshot from its file name. Returns None for any other file, half-written snapshots included."""
    parsed = parse_snapshot_file(name)
    return None if parsed is None else OffsetAndEpoch(Offset(parsed[0]), LeaderEpoch(parsed[1]))


def is_leftover(name: str) -> bool:
    """Whether the name is that of a snapshot that was half written or half deleted when the node died."""
    return name.endswith((SNAPSHOT_SUFFIX + _PARTIAL_SUFFIX, SNAPSHOT_SUFFIX + DELETED_SUFFIX))
