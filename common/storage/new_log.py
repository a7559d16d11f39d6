"""Creates the folders of new logs (shell).

A new log needs several syncs, and a hundred new logs need hardly more if they share them. The folder gets its name and its
files at once, and only then is all of it synced: the files, the folder, and last the directory with the folder's name. A
crash before that may leave any part of the folder. It holds no record, and the next start removes it or loads an empty log.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from common.environment.interface import LogDir, NewFolder
from common.ids import Offset, TopicId
from common.storage.errors import LogExists
from common.storage.log_config import LogSettings
from common.storage.names import PARTITION_METADATA_FILE, segment_file
from common.storage.partition_metadata import format_partition_metadata
from common.storage.segment import Segment, SegmentFile

FIRST_OFFSET = Offset(0)
LOGS_PER_CREATION_MAX = 64
"""How many logs should be created at once. More would save little, and the first of them would be served later."""

# How many folders one operation syncs. All syncs of the operation must end before its deadline, on a busy disk too.
_FOLDERS_PER_SYNC = 16


@dataclass(frozen=True, slots=True)
class NewLog:
    """An empty log to create. `name` is that of its folder."""

    name: str
    config: LogSettings
    topic_id: TopicId
    start_offset: Offset = FIRST_OFFSET

    def folder(self) -> NewFolder:
        """Returns the folder with all files of the log."""
        files = {
            segment_file(self.start_offset): b"",
            PARTITION_METADATA_FILE: format_partition_metadata(self.topic_id),
        }
        return NewFolder(self.name, files)


async def create_first_segments(log_dir: LogDir, new: Sequence[NewLog]) -> list[Segment]:
    """Creates the folders of the logs, durable when this returns. Returns the segment of each log, with its open file.

    Raises LogExists, then without creating any folder, and LogDirError."""
    segments = [Segment(log_dir, each.name, each.start_offset) for each in new]
    existing = await log_dir.create_folders([each.folder() for each in new])
    if existing:
        raise LogExists(existing)
    handles = await asyncio.gather(*(log_dir.open(segment.path()) for segment in segments))
    # No caller gets a log before this has ended. A log without a durable name would lose all its records in a power cut,
    # even those that a later sync of its files has covered.
    await make_durable(log_dir, [each.name for each in new])
    for segment, handle in zip(segments, handles, strict=True):
        segment.file = SegmentFile(log_dir, handle)
    return segments


async def make_durable(log_dir: LogDir, folders: Sequence[str]) -> None:
    """Syncs the folders of logs, with all their files and their names. Raises LogDirError."""
    # Queue all operations at once, so that the disk does not wait for the event loop in between.
    firsts = range(0, len(folders), _FOLDERS_PER_SYNC)
    syncs = [log_dir.fsync_folders(folders[first : first + _FOLDERS_PER_SYNC]) for first in firsts]
    # Wait for all, even if one fails: the caller may remove the folders then, and none of the others may miss one.
    for outcome in await asyncio.gather(*syncs, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
