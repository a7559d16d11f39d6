"""Names of folders and files inside a log directory (core).

Counterpart of the naming in Kafka's UnifiedLog, LocalLog and LogFileUtils, and in Snapshots for the metadata log. The folder
of a partition's current log is `<topic>-<partition>`. The folders of other logs add `.<32 hex>-delete`, `.<32 hex>-future`
or `.<32 hex>-stray`. A topic may contain '-' and '.', so a folder name is parsed from its end. In -delete and -stray names,
the topic is cut so that the name fits into 255 bytes. Do not take the topic from such a name; partition.metadata holds the
topic's id.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

FILE_NAME_MAX = 255
# The limits of the protocol. A name with a larger number was not written by a broker.
PARTITION_MAX: Final = 2**31 - 1
EPOCH_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SNAPSHOT_SUFFIX = ".checkpoint"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"

META_PROPERTIES_FILE = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
PARTITION_METADATA_FILE = "partition.metadata"
MOVE_ORIGIN_FILE = "moved-from"
LEADER_EPOCH_CHECKPOINT_FILE = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT_FILE = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT_FILE = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT_FILE = "cleaner-offset-checkpoint"


class FolderKind(Enum):
    """The kind of a partition's folder. The value is the suffix after the 32 hex digits."""

    CURRENT = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """A parsed folder name. `unique` holds the 32 hex digits, "" for a current log."""

    topic: str
    partition: int
    kind: FolderKind = FolderKind.CURRENT
    unique: str = ""


_MARKED: Final = re.compile(r"(?P<rest>.+)\.(?P<unique>[0-9a-f]{32})(?P<suffix>-delete|-future|-stray)", re.DOTALL)
_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})", re.DOTALL)
_SEGMENT: Final = re.compile(r"(?P<offset>[0-9]{20})(?P<suffix>\.log|\.index|\.timeindex|\.txnindex)")
_PRODUCER_SNAPSHOT: Final = re.compile(r"(?P<offset>[0-9]{20})\.snapshot")
_SNAPSHOT: Final = re.compile(r"(?P<offset>[0-9]{20})-(?P<epoch>[0-9]{10})\.checkpoint")


def partition_folder(topic: str, partition: int) -> str:
    """Returns the folder name of a partition's current log."""
    return f"{topic}-{partition}"


def marked_partition_folder(topic: str, partition: int, kind: FolderKind, unique: bytes) -> str:
    """Returns the folder name of a future or stray log, or of one that is being deleted.

    `unique` is 16 bytes long. The name of a future log is never cut, because the topic is parsed from it later; the caller
    refuses names over 255 bytes.
    """
    rest = f"-{partition}.{unique.hex()}{kind.value}"
    if kind is not FolderKind.FUTURE:
        topic = topic[: FILE_NAME_MAX - len(rest)]
    return topic + rest


def parse_partition_folder(name: str) -> PartitionFolder | None:
    """Parses the name of a partition's folder, of any kind. Returns None for anything else, such as lost+found."""
    kind, unique, rest = FolderKind.CURRENT, "", name
    if marked := _MARKED.fullmatch(name):
        kind, unique, rest = FolderKind(marked["suffix"]), marked["unique"], marked["rest"]
    match = _PARTITION.fullmatch(rest)
    if match is None or int(match["partition"]) > PARTITION_MAX:
        return None
    return PartitionFolder(match["topic"], int(match["partition"]), kind, unique)


def segment_file(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """Returns the name of a segment's file: its base offset in twenty digits, and the suffix."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Returns the base offset and suffix of a .log, .index, .timeindex or .txnindex file, None for any other name."""
    match = _SEGMENT.fullmatch(name)
    if match is None or int(match["offset"]) > OFFSET_MAX:
        return None
    return int(match["offset"]), match["suffix"]


def producer_snapshot_file(offset: int) -> str:
    """Returns the name of the file with the producers of a log as of `offset`."""
    return f"{offset:020d}{PRODUCER_SNAPSHOT_SUFFIX}"


def parse_producer_snapshot_file(name: str) -> int | None:
    """Returns the offset from the name of a producer snapshot, None for any other name."""
    match = _PRODUCER_SNAPSHOT.fullmatch(name)
    return None if match is None or int(match["offset"]) > OFFSET_MAX else int(match["offset"])


def snapshot_file(end_offset: int, epoch: int) -> str:
    """Returns the file name of the metadata snapshot that covers everything below `end_offset`."""
    return f"{end_offset:020d}-{epoch:010d}{SNAPSHOT_SUFFIX}"


def parse_snapshot_file(name: str) -> tuple[int, int] | None:
    """Returns the end offset and epoch from a snapshot's file name, None for any other name."""
    match = _SNAPSHOT.fullmatch(name)
    if match is None or int(match["offset"]) > OFFSET_MAX or int(match["epoch"]) > EPOCH_MAX:
        return None
    return int(match["offset"]), int(match["epoch"])
