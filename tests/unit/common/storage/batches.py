"""Helpers that build batches and logs for the storage tests."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from common import slices
from common.environment.interface import LogDir
from common.ids import LeaderEpoch, Offset, TopicId, Uuid
from common.parts import FileRegion
from common.records.batch import BatchHeader, read_header, split_batches
from common.records.record import Record, encode_batch
from common.storage.append_pipeline import AwaitedAppend
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.log_segments import LogRead
from common.storage.read_limits import ReadLimits
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedWorld
from tests.simulation.log_dir import SimulatedRegion

TOPIC_ID = TopicId(Uuid(bytes(range(16))))
FOLDER = "t-0"
PATH = "/d"
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150)


def batch(
    records: int = 1, *, timestamp: int = 1000, size: int = 30, offset: int = 0, epoch: int = -1
) -> tuple[BatchHeader, memoryview]:
    """Returns a batch of equal records with consecutive timestamps."""
    encoded = encode_batch(
        [Record(None, bytes(size), timestamp + number) for number in range(records)], base_offset=offset, leader_epoch=epoch
    )
    return read_header(encoded), memoryview(encoded)


class Awaited(NamedTuple):
    """The offsets of an append, and a future that is done when the append is written or has failed."""

    first_offset: Offset
    last_offset: Offset
    written: "asyncio.Future[None]"


def append_batches(log: Log, batches: Sequence[tuple[BatchHeader, memoryview]], *, epoch: int) -> Awaited:
    """Appends batches as leader."""
    end = AwaitedAppend()
    appended = log.append_as_leader(batches, leader_epoch=LeaderEpoch(epoch), on_written=end.written, on_failed=end.failed)
    return Awaited(*appended, end.ended)


def append(log: Log, *, epoch: int = 0, records: int = 1, timestamp: int = 1000, size: int = 30) -> Awaited:
    """Appends one batch as leader."""
    return append_batches(log, [batch(records, timestamp=timestamp, size=size)], epoch=epoch)


def append_fetched(log: Log, view: memoryview) -> Awaited:
    """Appends batches as follower."""
    end = AwaitedAppend()
    return Awaited(
        *log.append_as_follower(split_batches(view), view, on_written=end.written, on_failed=end.failed), end.ended
    )


async def fill(log: Log, batches: int, *, epoch: int = 0, records: int = 1, size: int = 30) -> None:
    """Appends one more than `batches` batches and waits until they are written.

    The timestamp of each batch is ten times its first offset.
    """
    for _ in range(batches):
        append(log, epoch=epoch, records=records, timestamp=log.log_end_offset * 10, size=size)
    await append(log, epoch=epoch, records=records, timestamp=log.log_end_offset * 10, size=size).written


async def attached(world: SimulatedWorld, *, node: str = "a") -> LogDir:
    """Returns the directory at PATH, attached by this node. Creates its simulated disk if needed."""
    world.disk(PATH)
    log_dir = world.node(node).log_dir(PATH, operation_timeout_ns=10**10)
    await log_dir.attach()
    return log_dir


async def created(world: SimulatedWorld, config: LogConfig = SMALL) -> Log:
    """Creates an empty log on a new disk."""
    return await Log.create(await attached(world), FOLDER, config, TOPIC_ID)


def read_in_one_step(log: Log, offset: int, *, max_bytes: int) -> LogRead | None:
    """Returns the result of `read`, or None if the read has to wait for the disk."""
    reading = log.read(offset, ReadLimits(max_bytes=max_bytes))
    try:
        reading.send(None)
    except StopIteration as returned:
        found: LogRead = returned.value
        return found
    reading.close()
    return None


def content(read: LogRead) -> bytes:
    """Returns the bytes that a reader would get."""
    return b"".join(region_bytes(part) for part in read.parts)


def region_bytes(region: FileRegion) -> bytes:
    assert isinstance(region, SimulatedRegion)
    return region.content()


def offsets_in(data: bytes) -> list[tuple[int, int]]:
    """Returns the (first, last) offsets of each whole batch in the bytes."""
    found = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        assert position + header.size <= len(data)
        found.append((header.base_offset, header.last_offset))
        position += header.size
    return found


async def all_offsets(log: Log, *, max_bytes: int = 300) -> list[tuple[int, int]]:
    """Reads the whole log in pieces and returns the (first, last) offsets of every batch."""
    found: list[tuple[int, int]] = []
    offset = log.log_start_offset
    while True:
        data = await log.read_bytes(offset, ReadLimits(max_bytes=max_bytes))
        if not data:
            return found
        found += offsets_in(data)
        offset = Offset(found[-1][1] + 1)


def log_files(disk: SimulatedDisk) -> dict[str, bytes]:
    """Returns the files of the log's folder, by name relative to the folder."""
    return {name.partition("/")[2]: data for name, data in disk.files().items() if name.startswith(f"{FOLDER}/")}


def concatenated(batches: Sequence[tuple[BatchHeader, memoryview]]) -> memoryview:
    """Joins batches into one view, as a follower gets them."""
    return memoryview(b"".join(view for _, view in batches))


def crash_after(world: SimulatedWorld, operation: int, ending: str) -> asyncio.Event:
    """Ends node "a" with a kill or a power cut right after this disk operation, counted from 0. Returns what is set then."""
    crashed = asyncio.Event()
    done = 0

    def count(_path: str, _kind: str, _name: str) -> None:
        nonlocal done
        if done == operation:
            (world.crash if ending == "kill" else world.power_cut)("a")
            crashed.set()
        done += 1

    world.operation_watchers.append(count)
    return crashed


def watched_pauses(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Returns a list that gets an entry with each pause between two slices of long work."""
    pauses: list[None] = []
    pause = slices.pause

    async def counted() -> None:
        pauses.append(None)
        await pause()

    monkeypatch.setattr(slices, "pause", counted)
    return pauses
