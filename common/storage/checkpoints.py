"""Reads and writes the offset checkpoint files of a log directory (shell).

Counterpart of Kafka's OffsetCheckpointFile: recovery-point-offset-checkpoint, replication-offset-checkpoint (high
watermarks), log-start-offset-checkpoint and cleaner-offset-checkpoint (first dirty offsets), with one line per partition.
One file holds all partitions of the directory, so storing always writes all of them. A missing file means that nothing is
known; it is not an error.
"""

from collections.abc import Awaitable, Mapping

from common.environment.interface import LogDir
from common.storage.names import (
    CLEANER_CHECKPOINT_FILE,
    HIGH_WATERMARK_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
)
from common.storage.text_checkpoint import (
    MalformedCheckpoint,
    TopicPartition,
    format_offset_checkpoint,
    parse_offset_checkpoint,
)

__all__ = [
    "CLEANER_CHECKPOINT_FILE",
    "HIGH_WATERMARK_CHECKPOINT_FILE",
    "LOG_START_OFFSET_CHECKPOINT_FILE",
    "RECOVERY_POINT_CHECKPOINT_FILE",
    "MalformedCheckpoint",
    "TopicPartition",
    "load_offset_checkpoint",
    "store_offset_checkpoint",
]


async def load_offset_checkpoint(log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
    """Returns the offsets, empty if the file is missing. Raises LogDirError or MalformedCheckpoint, which names the file."""
    content = await log_dir.read_file(name)
    if content is None:
        return {}
    try:
        return parse_offset_checkpoint(content)
    except MalformedCheckpoint as error:
        raise MalformedCheckpoint(f"{log_dir.path}/{name}: {error}") from error


def store_offset_checkpoint(log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, int]) -> Awaitable[None]:
    """Replaces the whole file. The new content is durable when the returned awaitable completes."""
    return log_dir.replace_file(name, format_offset_checkpoint(offsets))
