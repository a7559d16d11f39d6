"""The state of a node's directories: the effects that each event returns, and the state after it."""

import errno

import pytest

from common.environment.interface import LogDirError, SpaceStat
from common.ids import DirectoryId
from common.log_dirs.log_directories import (
    CameOnline,
    DirectoryGained,
    HaltNode,
    LogDirectories,
    LogDirectory,
    SpaceSeen,
    Trouble,
    WentOffline,
)
from tests.unit.common.metadata.builders import directory

D1, D2, D3, META = directory(1), directory(2), directory(3), directory(9)
SPACE = SpaceStat(total_bytes=1000, usable_bytes=10, free_inodes=5)


def directories(*, metadata_dir: str = "/m", unreadable: str = "") -> LogDirectories:
    """Builds the state of a node with data directories /d1 and /d2, and with an `unreadable` one if given.

    The metadata directory is the separate /m by default, or one of the data directories.
    """
    found = [LogDirectory(path="/d1", directory_id=D1), LogDirectory(path="/d2", directory_id=D2)]
    if metadata_dir == "/m":
        found.append(LogDirectory(path="/m", directory_id=META))
    if unreadable:
        found.append(LogDirectory(path=unreadable, directory_id=None, cause="EIO"))
    data_dirs = [each.path for each in found if each.path != "/m"]
    return LogDirectories(found, data_dirs=data_dirs, metadata_dir=metadata_dir)


def test_the_first_report_of_a_directory_wins() -> None:
    """Later failures of the same directory change nothing."""
    known = directories()
    error = LogDirError("/d1", "append", errno.EIO)
    assert known.step(error) == [WentOffline("/d1", D1, str(error), is_full=False, is_data_dir=True)]
    assert known.step(LogDirError("/d1", "fsync", errno.EROFS)) == []
    assert known.online == {D2: "/d2"}
    assert known.offline == (LogDirectory(path="/d1", directory_id=D1, cause=str(error)),)
    assert known.any_offline
    assert not known.is_online(D1)


def test_the_last_data_directory_takes_the_node_with_it() -> None:
    """The node halts when its last data directory fails. It also halts when the metadata directory fails, even if all data
    directories are online."""
    known = directories()
    known.step(LogDirError("/d1", "append", errno.EIO))
    assert [type(effect) for effect in known.step(LogDirError("/d2", "read", errno.EIO))] == [WentOffline, HaltNode]
    assert [type(effect) for effect in directories().step(LogDirError("/m", "fsync", errno.ENOSPC))] == [
        WentOffline,
        HaltNode,
    ]


def test_a_metadata_directory_that_holds_data_too_halts_once() -> None:
    """By default, metadata.log.dir is the first of log.dirs, so one failure has two reasons to halt."""
    known = directories(metadata_dir="/d1")
    assert [type(effect) for effect in known.step(LogDirError("/d1", "append", errno.EIO))] == [WentOffline, HaltNode]
    assert known.step(LogDirError("/d1", "append", errno.EIO)) == []


@pytest.mark.parametrize(
    ("operation", "code", "kinds"),
    [
        ("append", errno.EMFILE, [Trouble]),
        ("open", errno.ENOMEM, [Trouble]),
        ("append", errno.EBADF, [HaltNode]),
        ("append", errno.ENOSPC, [WentOffline]),
        ("fsync", errno.ENOSPC, [WentOffline]),
        ("probe", errno.ENOSPC, [Trouble]),
        ("probe", errno.ESTALE, [WentOffline]),
        ("read", errno.ETIMEDOUT, [WentOffline]),
        ("read", errno.EUCLEAN, [WentOffline]),
    ],
)
def test_whose_fault_an_error_is(operation: str, code: int, kinds: list[type]) -> None:
    """There is one case for each class of errno and operation."""
    assert [type(effect) for effect in directories().step(LogDirError("/d1", operation, code))] == kinds


def test_a_full_directory_goes_offline_with_that_cause() -> None:
    """An append that finds no free space takes the directory offline. A probe that finds no free space does not."""
    known = directories()
    known.step(LogDirError("/d1", "probe", errno.ENOSPC))
    assert known.is_online(D1)
    known.step(LogDirError("/d1", "append", errno.ENOSPC))
    assert [(each.path, each.is_full) for each in known.offline] == [("/d1", True)]


def test_the_order_of_the_configuration_whatever_is_online() -> None:
    """Directories are listed in the order of the configuration. A directory that could not be read at start has only a path
    and a cause."""
    known = directories(unreadable="/d3")
    assert [each.path for each in known.data_dirs] == ["/d1", "/d2", "/d3"]
    assert list(known.online.items()) == [(D1, "/d1"), (D2, "/d2")]
    assert known.any_offline
    assert known.at("/d3") == LogDirectory(path="/d3", directory_id=None, cause="EIO")
    assert known.at("/m").is_online
    assert not known.is_online(META), "it holds no replicas"


def test_space_is_what_the_last_look_said() -> None:
    """The state keeps the free space that the last probe reported. A report is ignored if the directory went offline during
    the probe."""
    known = directories()
    assert known.space(D1) is None
    assert known.step(SpaceSeen(D1, SPACE)) == []
    assert known.space(D1) == SPACE
    known.step(LogDirError("/d2", "append", errno.EIO))
    assert known.step(SpaceSeen(D2, SPACE)) == []
    assert known.at("/d2").space is None


@pytest.mark.parametrize("path", ["/d1", "/d3"])
def test_a_directory_can_be_gained(path: str) -> None:
    """A new disk replaces one that failed, or that could not be read at start. It comes online with its own id, keeps
    the path's place in the configuration, and may fail like any other. The id that failed stays offline."""
    known = directories(unreadable="/d3")
    known.step(LogDirError("/d1", "append", errno.EIO))
    assert known.step(DirectoryGained(path, D3)) == [CameOnline(path, D3)]
    assert list(known.online.items()) == ([(D3, "/d1"), (D2, "/d2")] if path == "/d1" else [(D2, "/d2"), (D3, "/d3")])
    assert known.any_offline
    assert not known.is_online(D1)
    assert known.at(path) == LogDirectory(path=path, directory_id=D3)
    error = LogDirError(path, "append", errno.EIO)
    assert known.step(error) == [WentOffline(path, D3, str(error), is_full=False, is_data_dir=True)]


def test_gaining_the_last_missing_directory_leaves_none_offline() -> None:
    """Two data directories are online again, so the next failure does not halt the node."""
    known = directories()
    known.step(LogDirError("/d1", "append", errno.EIO))
    known.step(DirectoryGained("/d1", D3))
    assert not known.any_offline
    assert known.offline == ()
    assert [type(effect) for effect in known.step(LogDirError("/d2", "append", errno.EIO))] == [WentOffline]


@pytest.mark.parametrize(
    ("path", "directory_id", "why"),
    [
        ("/d2", D3, "online"),
        ("/d1", D1, "stays offline for the whole incarnation"),
        ("/d1", D2, "another directory"),
        ("/d1", META, "another directory"),
        ("/m", D3, "log.dirs"),
    ],
)
def test_what_cannot_be_gained(path: str, directory_id: DirectoryId, why: str) -> None:
    """These cannot be gained: a path that is online, an id that failed in this incarnation or is in use elsewhere, and the
    metadata directory."""
    known = directories()
    known.step(LogDirError("/d1", "append", errno.EIO))
    with pytest.raises(AssertionError, match=why):
        known.step(DirectoryGained(path, directory_id))
