"""Errors for requests that a log refuses (core). Disk errors are not among them; they are LogDirErrors."""

from collections.abc import Sequence

from common.ids import Offset


class OffsetOutOfRange(Exception):
    """The offset is below the log's start or above its end."""

    def __init__(self, offset: int, log_start_offset: Offset, log_end_offset: Offset) -> None:
        super().__init__(f"offset {offset} is outside {log_start_offset} to {log_end_offset}")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class UnexpectedOffset(Exception):
    """The batches do not continue the follower's log: one starts below the log's end or overlaps the batch before it."""


class LogClosed(Exception):
    """The log is closed or being deleted."""


class LogExists(Exception):
    """The folders of these names, for new logs, exist already."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"{', '.join(names)} exists already")
        self.names = names
