"""Tests the list of disks: what is counted on each disk, how far moves are, and how both are shown."""

from dataclasses import replace
from typing import Any

from admin.log_dirs import LogDirInfo, ReplicaInfo
from admin.partitions import TopicPartition
from common.protocol.errors import ErrorCode
from tools.disk_overview import COLUMNS, Disk, DiskMove, as_json, as_row, disks

T_0, T_1, U_0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def holds(size: int, *, is_future: bool = False) -> ReplicaInfo:
    return ReplicaInfo(size, 0, is_future)


def log_dir(replicas: dict[TopicPartition, ReplicaInfo], total: int | None = 1000, usable: int | None = 250) -> LogDirInfo:
    return LogDirInfo(ErrorCode.NONE, replicas, total, usable)


def disk(**fields: Any) -> Disk:
    usual: dict[str, Any] = {
        "broker_id": 1,
        "path": "/a",
        "directory_id": "id",
        "state": "online",
        "total_bytes": 1000,
        "used_bytes": 750,
        "partitions": 2,
        "leaders": 1,
        "moves": (),
    }
    return Disk(**usual | fields)


def test_each_disk_has_its_partitions_leaders_and_moves() -> None:
    """A replica that moves counts where its current log is, and its move where it goes. A broker leads where it is the
    leader, whatever other brokers' disks hold of the partition."""
    log_dirs = {
        2: {"/a": log_dir({T_0: holds(10)})},
        1: {
            "/b": log_dir({U_0: holds(30, is_future=True), T_1: holds(20, is_future=True)}, None, None),
            "/a": replace(log_dir({T_0: holds(10), T_1: holds(80), U_0: holds(40)}), is_cordoned=True),
            "/c": LogDirInfo(ErrorCode.KAFKA_STORAGE_ERROR, {}, None, None),
            "/d": LogDirInfo(ErrorCode.LOG_DIR_NOT_FOUND, {}, None, None),
        },
    }
    found = disks(log_dirs, {T_0: 1, T_1: 2, U_0: 1}, {(1, "/a"): "one"})
    moves = (DiskMove(T_1, "/a", 20, 80), DiskMove(U_0, "/a", 30, 40))
    nothing: dict[str, Any] = {
        "directory_id": None,
        "total_bytes": None,
        "used_bytes": None,
        "partitions": 0,
        "leaders": 0,
    }
    assert found == [
        disk(path="/b", moves=moves, **nothing),
        disk(directory_id="one", partitions=3, leaders=2, is_cordoned=True),
        disk(path="/c", state="offline", **nothing),
        disk(path="/d", state="LOG_DIR_NOT_FOUND", **nothing),
        disk(broker_id=2, directory_id=None, partitions=1, leaders=0),
    ]


def test_progress_is_never_more_than_all() -> None:
    """The log may be empty, and its end may be below the copy's after a truncation. A copy may be all that is left."""
    assert DiskMove(T_0, "/a", 20, 80).progress == 0.25
    assert DiskMove(T_0, "/a", 0, 0).progress == 1.0
    assert DiskMove(T_0, "/a", 90, 80).progress == 1.0
    (found,) = disks({1: {"/b": log_dir({T_0: holds(7, is_future=True)})}}, {}, {})
    assert found.moves == (DiskMove(T_0, None, 7, 7),)


def test_a_row_for_people() -> None:
    """Sizes with units, the used part in percent, and a bar for each move. Of an offline disk only the path is known."""
    moves = (DiskMove(T_1, "/a", 20, 80), DiskMove(U_0, None, 1, 1))
    row = as_row(disk(total_bytes=5 << 40, used_bytes=3 << 30, moves=moves))
    assert len(row) == len(COLUMNS)
    assert row[:8] == ("1", "/a", "id", "online", "5.0 TiB", "3.0 GiB (0 %)", "2", "1")
    assert row[8].splitlines() == ["██░░░░░░░░  25 % t-1 from /a", "██████████ 100 % u-0 from ?"]
    offline = disk(directory_id=None, state="offline", total_bytes=None, used_bytes=None)
    assert as_row(offline) == ("1", "/a", "-", "offline", "-", "-", "-", "-", "")
    assert as_row(disk(is_cordoned=True))[3:8] == ("online, cordoned", "1000 B", "750 B (75 %)", "2", "1")
    assert as_row(disk(total_bytes=1000, used_bytes=999))[4:6] == ("1000 B", "999 B (100 %)")


def test_json_for_programs() -> None:
    move = DiskMove(T_1, "/b", 1, 3)
    assert as_json([disk(moves=(move,)), disk(path="/b"), disk(broker_id=2)]) == {
        "brokers": [
            {
                "broker": 1,
                "disks": [
                    {
                        "path": "/a",
                        "directory_id": "id",
                        "state": "online",
                        "cordoned": False,
                        "total_bytes": 1000,
                        "used_bytes": 750,
                        "partitions": 2,
                        "leaders": 1,
                        "moves": [
                            {"partition": "t-1", "from": "/b", "copied_bytes": 1, "total_bytes": 3, "progress": 0.3333}
                        ],
                    },
                    as_json([disk(path="/b")])["brokers"][0]["disks"][0],
                ],
            },
            {"broker": 2, "disks": as_json([disk()])["brokers"][0]["disks"]},
        ]
    }
