"""Finds the numbering of reserved directory ids in a node's metadata directory, without changing anything (shell).

The metadata log decides. Until it has records, the bootstrap records do, which the first controller will write.
"""

from common.environment.interface import LogDir, LogDirError
from common.metadata.metadata_version import UnknownMetadataVersion, numbering_of
from common.metadata.record_reader import MetadataRecordReader
from common.protocol.numbering import Numbering
from common.raft.bootstrap import read_bootstrap_checkpoint
from common.raft.core.offsets import BOOTSTRAP_CHECKPOINT, METADATA_LOG_FOLDER, parse_snapshot_name, snapshot_path
from common.raft.core.record_batches import UnreadableBatch, decode_values
from common.raft.core.snapshot_content import InvalidSnapshot, parse_snapshot
from common.records.batch import BatchError, split_batches
from common.storage.names import LOG_SUFFIX

# The feature records are among the first of a log.
_HEAD_BYTES = 64 * 1024


async def stored_numbering(log_dir: LogDir) -> Numbering | None:
    """Returns the numbering; None if the directory does not say it, or what it says cannot be read."""
    try:
        if any(entry.name == METADATA_LOG_FOLDER for entry in await log_dir.list()):
            found = await _numbering_of_log(log_dir)
            if found is not None:
                return found
        content = await log_dir.read_file(BOOTSTRAP_CHECKPOINT)
        return None if content is None else numbering_of([entry.record for entry in read_bootstrap_checkpoint(content)])
    except (LogDirError, UnreadableBatch, InvalidSnapshot, BatchError, UnknownMetadataVersion):
        return None


async def _numbering_of_log(log_dir: LogDir) -> Numbering | None:
    names = [entry.name for entry in await log_dir.list(METADATA_LOG_FOLDER)]
    snapshots = [each for each in map(parse_snapshot_name, names) if each is not None]
    reader = MetadataRecordReader()
    if snapshots:
        content = await log_dir.read_file(snapshot_path(max(snapshots)))
        return None if content is None else numbering_of(parse_snapshot(content).records(reader))
    segments = sorted(name for name in names if name.endswith(LOG_SUFFIX))
    if not segments:
        return None
    file = await log_dir.open(f"{METADATA_LOG_FOLDER}/{segments[0]}")
    try:
        head = await log_dir.read(file, 0, _HEAD_BYTES)
    finally:
        log_dir.close_file(file)
    batches = [batch for batch in split_batches(head, allow_partial_tail=True) if not batch[0].is_control]
    return numbering_of(record for header, view in batches for record in decode_values(header, view, reader))
