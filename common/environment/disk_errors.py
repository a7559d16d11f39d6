"""Decides from a LogDirError whether the directory, the process or our own code is at fault (core).

The rule is the table in docs/DESIGN.md, "Disks". Kafka's LogDirFailureChannel makes no such distinction: any IOException
takes the directory offline. The errno alone is not enough. ENOSPC from a write means that the directory is full and nothing
is lost. ENOSPC from an fsync means that the kernel has dropped dirty pages, and a second fsync may succeed in spite of the
loss.
"""

import errno
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from common.environment.interface import LogDirError

FSYNC_STEP: Final = "fsync"
"""`LogDirError.detail` when an fsync call failed, on its own or as one step of an operation."""

OPERATIONS: Final = (
    "append",
    "close",
    "create_folders",
    "fsync",
    "fsync_dir",
    "fsync_folders",
    "list",
    "load",
    "mkdir",
    "open",
    "probe",
    "read",
    "read_file",
    "region",
    "remove",
    "rename",
    "replace_file",
    "stat",
    "statvfs",
    "sync_and_forget",
    "truncate",
    "write_back",
)
"""What `LogDirError.operation` may be once a node has started."""

_FSYNC_OPERATIONS: Final = ("fsync", "fsync_dir", "fsync_folders", "sync_and_forget", "write_back")
_PROCESS_LIMITS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_OUR_BUGS: Final = (errno.EINVAL, errno.EBADF, errno.EFBIG)


class Verdict(Enum):
    """What is at fault, and what follows from it."""

    DIRECTORY_FAILED = "failed"
    """The directory goes offline for good."""

    DIRECTORY_FULL = "full"
    """The directory goes offline with the cause "full". Its data is intact."""

    PROCESS_TROUBLE = "process"
    """The process ran into one of its own limits. The disk is not at fault."""

    OUR_BUG = "bug"
    """The operation was invalid. The daemon must stop rather than guess."""


def classify(error: "LogDirError") -> Verdict:
    """Returns the verdict on an error that a LogDir reported. An errno that no rule names takes the directory offline."""
    # If the process ran into one of its limits, the operation failed before its fsync call: the folder could not be opened,
    # or too much was queued.
    is_fsync = error.operation in _FSYNC_OPERATIONS and error.errno_code not in _PROCESS_LIMITS
    if is_fsync or error.detail == FSYNC_STEP:
        return Verdict.DIRECTORY_FAILED
    if error.errno_code == errno.ENOSPC:
        return Verdict.DIRECTORY_FULL
    if error.errno_code in _PROCESS_LIMITS:
        return Verdict.PROCESS_TROUBLE
    if error.errno_code in _OUR_BUGS:
        return Verdict.OUR_BUG
    return Verdict.DIRECTORY_FAILED
