"""The table of docs/DESIGN.md, "Disks": the verdict on every kind of disk error."""

import errno

import pytest

from common.environment.disk_errors import FSYNC_STEP, OPERATIONS, Verdict, classify
from common.environment.interface import LogDir, LogDirError


@pytest.mark.parametrize(
    "code",
    ["EIO", "EROFS", "ENODEV", "ENXIO", "EUCLEAN", "ESTALE", "EACCES", "EPERM", "EDQUOT", "ETIMEDOUT", "ENOENT", "ELOOP"],
)
def test_disk_errors_and_unknown_ones_fail_the_directory(code: str) -> None:
    """Every errno of a dying disk, and any unknown one, takes the directory offline, even from a read."""
    for operation in ("append", "read", "open", "probe"):
        assert classify(LogDirError("/d", operation, getattr(errno, code))) is Verdict.DIRECTORY_FAILED


@pytest.mark.parametrize("code", ["ENOSPC", "EIO", "EINVAL", "ENOMEM"])
@pytest.mark.parametrize("operation", ["fsync", "fsync_dir", "fsync_folders", "sync_and_forget", "replace_file", "probe"])
def test_any_error_of_an_fsync_is_final(code: str, operation: str) -> None:
    """After a failed fsync the next one may succeed although data is lost. So a failed fsync is final with any errno."""
    assert classify(LogDirError("/d", operation, getattr(errno, code), detail=FSYNC_STEP)) is Verdict.DIRECTORY_FAILED


def test_a_full_disk_is_told_from_a_dead_one() -> None:
    """A write that fails with ENOSPC loses no older data, so the directory goes offline as full and not as failed."""
    assert classify(LogDirError("/d", "append", errno.ENOSPC)) is Verdict.DIRECTORY_FULL
    assert classify(LogDirError("/d", "replace_file", errno.ENOSPC)) is Verdict.DIRECTORY_FULL


@pytest.mark.parametrize("code", ["EMFILE", "ENFILE", "ENOMEM"])
def test_limits_of_the_process_are_not_the_disks_fault(code: str) -> None:
    """A process without descriptors or memory must not take its disks offline, even if it could not start an fsync."""
    for operation in ("open", "fsync", "fsync_dir", "fsync_folders", "sync_and_forget"):
        assert classify(LogDirError("/d", operation, getattr(errno, code))) is Verdict.PROCESS_TROUBLE


@pytest.mark.parametrize("code", ["ENOSPC", "EIO", "ETIMEDOUT"])
def test_an_fsync_that_the_disk_did_not_do_is_final(code: str) -> None:
    """An fsync that failed, or that missed its deadline, has made nothing durable."""
    for operation in ("fsync", "fsync_dir", "fsync_folders", "sync_and_forget"):
        assert classify(LogDirError("/d", operation, getattr(errno, code))) is Verdict.DIRECTORY_FAILED


@pytest.mark.parametrize("code", ["EINVAL", "EBADF", "EFBIG"])
def test_senseless_calls_are_our_bug(code: str) -> None:
    """These errors mean that our call was invalid. They are a bug of the daemon and say nothing about the disk."""
    assert classify(LogDirError("/d", "append", getattr(errno, code))) is Verdict.OUR_BUG


def test_every_operation_of_a_directory_is_listed() -> None:
    """The metrics show each operation in OPERATIONS from the start. What is left out cannot fail once a node has started."""
    at_start = {"attach", "lock"}
    cannot_fail = {
        "awaited_sync_age_ns",
        "close_file",
        "give_up_regions",
        "oldest_operation_age_ns",
        "read_cached",
        "release_lock_now",
        "silence_ns",
        "take_offline",
    }
    other_names = {"start_append", "examine", "read_around_cache"}
    assert LogDir.__abstractmethods__ - at_start - cannot_fail - other_names == {*OPERATIONS} - {"load"}
