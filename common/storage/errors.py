"""What a log refuses to do (core). Errors of the disk are LogDirError and none of these."""

from common.ids import Offset


class OffsetOutOfRange(Exception):
    """The offset is below the log's start or above its end."""

    def __init__(self, offset: int, log_start_offset: Offset, log_end_offset: Offset) -> None:
        super().__init__(f"offset {offset} is outside {log_start_offset} to {log_end_offset}")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class UnexpectedOffset(Exception):
    """Batches for a follower do not continue its log: one begins below the log's end or within its predecessor."""


class LogClosed(Exception):
    """The log was closed, or is about to be deleted."""


class LogExists(Exception):
    """A log is to be created in a folder that is there already."""
