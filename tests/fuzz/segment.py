"""Target for a partition's folder on a simulated disk: its log loads and can be used, whatever bytes its files contain."""

import struct
from functools import partial

from common.environment.interface import LogDir
from common.ids import Offset
from common.records.batch import BatchError, CorruptBatch, split_batches
from common.storage.errors import OffsetOutOfRange
from common.storage.leader_epochs import LeaderEpochs
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.names import INDEX_SUFFIX, LEADER_EPOCH_CHECKPOINT_FILE, TIME_INDEX_SUFFIX, segment_file
from common.storage.offset_index import OffsetIndex
from common.storage.read_limits import ReadLimits
from common.storage.time_index import TimeIndex
from tests.fuzz.records import put_right
from tests.fuzz.target import Target
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import FOLDER, PATH, all_offsets, append, attached, batch

_CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=150)
_CLEAN, _REPAIRED, _TWO_SEGMENTS = 1, 2, 4
# The input starts with flags, the base offset of the second segment and the recovery point. The sizes of the offset index,
# the time index, the leader epoch checkpoint and the first segment follow.
_HEAD = struct.Struct(">BHBBBBH")
_INT64_MAX = 2**63 - 1


def _files(data: bytes) -> tuple[int, int, dict[str, bytes]]:
    """Returns flags, recovery point and files encoded in the input."""
    flags, second, recovery_point, *sizes = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"))
    position = _HEAD.size
    parts = []
    for size in sizes:
        parts.append(data[position : position + size])
        position += size
    index, times, epochs, first = parts
    rest = data[position:]
    if not flags & _TWO_SEGMENTS:
        first, rest = first + rest, b""
    if flags & _REPAIRED:
        first, rest = put_right(first), put_right(rest)
    files = {segment_file(0): first}
    if flags & _TWO_SEGMENTS:
        files[segment_file(second)] = rest
    newest = second if flags & _TWO_SEGMENTS else 0
    optional = {
        segment_file(newest, INDEX_SUFFIX): index,
        segment_file(newest, TIME_INDEX_SUFFIX): times,
        LEADER_EPOCH_CHECKPOINT_FILE: epochs,
    }
    return flags, recovery_point, files | {name: content for name, content in optional.items() if content}


def _check_segments(data: bytes) -> None:
    """A log left by a crash loads, holds only complete batches, can be appended to, and loads again without loss.

    Loading trusts a log that was closed cleanly, and any log below its recovery point. A read may then be the first to
    notice damage: it raises BatchError, or OffsetOutOfRange after a batch whose header claims too many offsets.
    """
    flags, recovery_point, files = _files(data)
    SimulatedWorld(1).run(partial(_scenario, files=files, recovery_point=recovery_point, clean=bool(flags & _CLEAN)))


async def _scenario(world: SimulatedWorld, *, files: dict[str, bytes], recovery_point: int, clean: bool) -> None:
    log_dir = await attached(world)
    for name, content in files.items():
        world.disk(PATH).write(f"{FOLDER}/{name}", content)
    log = await Log.load(log_dir, FOLDER, _CONFIG, recovery_point=Offset(recovery_point), clean=clean)
    if clean or recovery_point:
        try:
            await _check_whole(log)
        except (BatchError, OffsetOutOfRange):
            return
        finally:
            await log.close()
        return
    before = await _check_whole(log)
    assert log.log_end_offset == (before[-1][1] + 1 if before else log.log_start_offset)
    if log.log_end_offset < _INT64_MAX - 10:
        await _check_grows(log_dir, log, before)
    await log.close()


async def _check_whole(log: Log) -> list[tuple[int, int]]:
    offsets: list[tuple[int, int]] = []
    end = log.log_start_offset
    while data := await log.read_bytes(end, ReadLimits(max_bytes=300)):
        for header, _ in split_batches(data):
            if not end <= header.base_offset <= header.last_offset:
                raise CorruptBatch(f"offsets {header.base_offset} to {header.last_offset} follow {end}")
            offsets.append((header.base_offset, header.last_offset))
            end = Offset(header.next_offset)
    # The last segment of a trusted log may be empty and start after a gap.
    assert end <= log.log_end_offset <= _INT64_MAX
    return offsets


async def _check_grows(log_dir: LogDir, log: Log, before: list[tuple[int, int]]) -> None:
    epoch = max(log.leader_epochs.latest_epoch, 0)
    for _ in range(3):
        append(log, epoch=epoch)
    await log.flush()
    more = [*before, *((log.log_end_offset - left, log.log_end_offset - left) for left in (3, 2, 1))]
    assert await all_offsets(log) == more
    again = await Log.load(log_dir, FOLDER, _CONFIG)
    assert not again.recovery.lost_anything
    assert await all_offsets(again) == more
    assert again.leader_epochs.entries == log.leader_epochs.entries


def _segment_seeds() -> list[bytes]:
    first = b"".join(bytes(batch(1 + number % 3, offset=10 * number, epoch=number // 2)[1]) for number in range(4))
    second = b"".join(bytes(batch(2, offset=40 + 2 * number, epoch=2)[1]) for number in range(3))
    index = OffsetIndex(0)
    index.append(20, 2 * len(first) // 4)
    times = TimeIndex(0)
    times.maybe_append(1002, 20)
    epochs = LeaderEpochs([(0, 0), (1, 20)]).format()
    seeds = []
    for flags in range(8):
        for files in ((b"", b"", b""), (index.to_bytes(), times.to_bytes(), epochs)):
            head = _HEAD.pack(flags, 40, 0, *map(len, files), len(first))
            seeds += [head + b"".join(files) + first + second, head + b"".join(files) + first[:-5]]
    return seeds


TARGETS = (Target(name="segments", check=_check_segments, seeds=_segment_seeds, bytes_at_least=4_000_000),)
