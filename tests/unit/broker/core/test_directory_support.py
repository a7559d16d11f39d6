"""Which brokers have to end because a directory is offline that the controller cannot know."""

import errno

import pytest

from broker.core.directory_support import reason_to_end
from common.environment.interface import LogDirError
from common.ids import DirectoryId, Uuid
from common.log_dirs.log_directories import LogDirectories, LogDirectory
from common.metadata.metadata_version import DIRECTORY_ASSIGNMENT_LEVEL, MINIMUM_LEVEL

BELOW = DIRECTORY_ASSIGNMENT_LEVEL - 1


def directories(count: int, *, metadata_dir: str = "/d1", dead_at_start: bool = False) -> LogDirectories:
    paths = [f"/d{number}" for number in range(1, count + 1)]
    found = [LogDirectory(path=path, directory_id=DirectoryId(Uuid(path.encode().ljust(16)))) for path in paths]
    if dead_at_start:
        found[-1] = LogDirectory(path=paths[-1], directory_id=None, cause="EIO")
    if metadata_dir not in paths:
        found.append(LogDirectory(path=metadata_dir, directory_id=DirectoryId(Uuid(b"metadata".ljust(16)))))
    return LogDirectories(found, data_dirs=paths, metadata_dir=metadata_dir)


def failed(known: LogDirectories, path: str) -> LogDirectories:
    known.step(LogDirError(path, "append", errno.EIO))
    return known


@pytest.mark.parametrize("level", [MINIMUM_LEVEL, BELOW])
def test_one_of_several_is_lost(level: int) -> None:
    """It does not matter whether the directory failed or was dead at the start, of which the broker registers only the
    others."""
    for known in (failed(directories(2), "/d2"), directories(2, dead_at_start=True), failed(directories(3), "/d2")):
        reason = reason_to_end(known, level)
        assert reason is not None
        assert reason.startswith("log directory /d2 is offline, and at metadata.version 3.")
        assert reason.endswith("raise metadata.version to 3.7-IV2 or later, then start this broker again")


def test_the_controller_knows_directories() -> None:
    """From 3.7-IV2 on, the broker reports the failure and goes on."""
    assert reason_to_end(failed(directories(2), "/d2"), DIRECTORY_ASSIGNMENT_LEVEL) is None


def test_every_directory_works() -> None:
    """A broker that has several of them after an unsafe downgrade goes on. A separate metadata directory is none of them."""
    assert reason_to_end(directories(2), BELOW) is None
    assert reason_to_end(directories(1), BELOW) is None
    assert reason_to_end(failed(directories(1, metadata_dir="/metadata"), "/d1"), BELOW) is None
