"""What an errno from a log directory means for the directory, the process or our own code (core).

The table in docs/DESIGN.md, "Disks", is the rule; `org.apache.kafka.server.log.LogDirFailureChannel` is Apache Kafka's
simpler answer. The easy thing to get wrong: the errno alone does not decide. ENOSPC from a write says that the directory is
full and nothing is lost; ENOSPC from an fsync says that the kernel dropped dirty pages, and a second fsync may succeed over
the loss.
"""

import errno
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from common.environment.interface import LogDirError

FSYNC_STEP: Final = "fsync"
"""`LogDirError.detail` when the kernel's fsync failed, in an operation of several steps too."""

_FSYNC_OPERATIONS: Final = ("fsync", "fsync_dir", "sync_and_forget")
_PROCESS_LIMITS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_OUR_BUGS: Final = (errno.EINVAL, errno.EBADF, errno.EFBIG)


class Verdict(Enum):
    """Who is in trouble."""

    DIRECTORY_FAILED = "failed"
    """The directory goes offline, for good."""

    DIRECTORY_FULL = "full"
    """The directory goes offline with the cause "full"; what it holds is sound."""

    PROCESS_TROUBLE = "process"
    """The process ran into a limit of its own; the disk did nothing wrong."""

    OUR_BUG = "bug"
    """The operation made no sense; the daemon must stop rather than guess."""


def classify(error: "LogDirError") -> Verdict:
    """The verdict on an error that a LogDir reported. An errno that is not named takes the directory offline."""
    # An fsync may be refused before the kernel hears of it: its folder could not be opened, or too much was queued.
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
