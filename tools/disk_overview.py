"""The disks of a cluster by broker: what is on each of them, and what moves there (core).

The sizes are those of the file systems, so two directories on one disk show the same figures. A move belongs to the disk
that it goes to; its progress is the size of the copy against that of the log that it copies.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from admin.log_dirs import LogDirInfo
from admin.partitions import TopicPartition
from common.protocol.errors import error_name


@dataclass(frozen=True, slots=True)
class DiskMove:
    """A replica on its way to another directory of its broker."""

    partition: TopicPartition
    source: str | None
    """None if no online directory has the current log."""
    copied_bytes: int
    total_bytes: int

    @property
    def progress(self) -> float:
        """From 0 to 1. The log grows while it is copied, and the copy may be longer where the log was truncated."""
        return min(1.0, self.copied_bytes / self.total_bytes) if self.total_bytes > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Disk:
    """One log directory of a broker. Of an offline one, only the path is known."""

    broker_id: int
    path: str
    directory_id: str | None
    state: str
    """`online`, `offline`, or the name of another error."""
    total_bytes: int | None
    used_bytes: int | None
    partitions: int
    leaders: int
    moves: tuple[DiskMove, ...]
    is_cordoned: bool = False
    """Whether it gets no new replicas."""


Paths = Mapping[str, LogDirInfo]


def disks(
    log_dirs: Mapping[int, Paths],
    leaders: Mapping[TopicPartition, int | None],
    directory_ids: Mapping[tuple[int, str], str],
) -> list[Disk]:
    """Returns the disks of all brokers, in the order of the brokers and of their log.dirs."""
    return [
        _disk(broker_id, path, paths, leaders, directory_ids.get((broker_id, path)))
        for broker_id, paths in sorted(log_dirs.items())
        for path in paths
    ]


def _disk(
    broker_id: int,
    path: str,
    paths: Paths,
    leaders: Mapping[TopicPartition, int | None],
    directory_id: str | None,
) -> Disk:
    log_dir = paths[path]
    current = [partition for partition, info in log_dir.replica_infos.items() if not info.is_future]
    total, usable = log_dir.total_bytes, log_dir.usable_bytes
    return Disk(
        broker_id=broker_id,
        path=path,
        directory_id=directory_id,
        state=_state(log_dir),
        total_bytes=total,
        used_bytes=None if total is None or usable is None else total - usable,
        partitions=len(current),
        leaders=sum(leaders.get(partition) == broker_id for partition in current),
        moves=tuple(
            _move(partition, info.size, paths)
            for partition, info in sorted(log_dir.replica_infos.items(), key=lambda item: item[0])
            if info.is_future
        ),
        is_cordoned=log_dir.is_cordoned,
    )


def _state(log_dir: LogDirInfo) -> str:
    if log_dir.is_online:
        return "online"
    name = error_name(log_dir.error_code)
    return "offline" if name == "KAFKA_STORAGE_ERROR" else name


def _move(partition: TopicPartition, copied_bytes: int, paths: Paths) -> DiskMove:
    for path, log_dir in paths.items():
        info = log_dir.replica_infos.get(partition)
        if info is not None and not info.is_future:
            return DiskMove(partition, path, copied_bytes, info.size)
    return DiskMove(partition, None, copied_bytes, copied_bytes)


# --- showing ---------------------------------------------------------------------------------------------------------


def as_json(found: Iterable[Disk]) -> dict[str, Any]:
    """Returns the disks by broker, for --format json."""
    brokers: dict[int, list[dict[str, Any]]] = {}
    for disk in found:
        brokers.setdefault(disk.broker_id, []).append(
            {
                "path": disk.path,
                "directory_id": disk.directory_id,
                "state": disk.state,
                "cordoned": disk.is_cordoned,
                "total_bytes": disk.total_bytes,
                "used_bytes": disk.used_bytes,
                "partitions": disk.partitions,
                "leaders": disk.leaders,
                "moves": [
                    {
                        "partition": str(move.partition),
                        "from": move.source,
                        "copied_bytes": move.copied_bytes,
                        "total_bytes": move.total_bytes,
                        "progress": round(move.progress, 4),
                    }
                    for move in disk.moves
                ],
            }
        )
    return {"brokers": [{"broker": broker_id, "disks": rows} for broker_id, rows in brokers.items()]}


COLUMNS = ("broker", "disk", "directory id", "state", "total", "used", "partitions", "leaders", "moving here")
BAR_CELLS = 10


def as_row(disk: Disk) -> tuple[str, ...]:
    """Returns the cells of a disk, in the order of COLUMNS."""
    return (
        str(disk.broker_id),
        disk.path,
        disk.directory_id or "-",
        f"{disk.state}, cordoned" if disk.is_cordoned else disk.state,
        _size(disk.total_bytes),
        _used(disk),
        str(disk.partitions) if disk.state == "online" else "-",
        str(disk.leaders) if disk.state == "online" else "-",
        "\n".join(map(_progress, disk.moves)),
    )


def _size(size: int | None) -> str:
    if size is None:
        return "-"
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _used(disk: Disk) -> str:
    if disk.used_bytes is None or not disk.total_bytes:
        return "-"
    return f"{_size(disk.used_bytes)} ({100 * disk.used_bytes / disk.total_bytes:.0f} %)"


def _progress(move: DiskMove) -> str:
    done = int(move.progress * BAR_CELLS)
    return (
        f"{'█' * done}{'░' * (BAR_CELLS - done)} {int(move.progress * 100):3} % {move.partition} from {move.source or '?'}"
    )
