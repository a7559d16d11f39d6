"""Finds records by time: the first one at or after a timestamp, and the newest of all (shell).

Answers to what Kafka's ListOffsets asks with a timestamp and with -3. Easy to get wrong: timestamps are not ordered, so the
answer is the first record *in offset order* that is new enough, in the first segment that has one. In a compressed batch
single records can be told apart only by whoever can decompress; without that the answer is the batch's first offset, from
which a consumer misses nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from common.ids import LeaderEpoch, Offset
from common.records.batch import BatchHeader, Buffer, CompressedBatch, iterate_records
from common.storage.segment import Segment

Decompress = Callable[[int, memoryview], Buffer]


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record's time and place, and the epoch of the leader that wrote it."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


async def first_at_or_after(
    segment: Segment, timestamp: int, *, from_offset: int, decompress: Decompress | None
) -> TimestampOffset | None:
    """The first record of the segment, at or behind `from_offset`, that is not older than `timestamp`."""
    times = await segment.load_time_index()
    start = await segment.find_batch(max(times.offset_for(timestamp), from_offset))
    if start is None:
        return None
    scan = segment.scan(start[1])
    while (found := await scan.next()) is not None:
        header, position = found
        if header.max_timestamp < timestamp:
            continue
        record = await _in_batch(
            segment, header, position, timestamp=timestamp, from_offset=from_offset, decompress=decompress
        )
        if record is not None:
            return record
    return None


async def newest(segment: Segment, *, decompress: Decompress | None) -> TimestampOffset | None:
    """The first record that has the greatest timestamp of the segment."""
    newest_timestamp = await segment.load_max_timestamp()
    if newest_timestamp < 0:
        return None
    return await first_at_or_after(segment, newest_timestamp, from_offset=segment.base_offset, decompress=decompress)


async def _in_batch(
    segment: Segment,
    header: BatchHeader,
    position: int,
    *,
    timestamp: int,
    from_offset: int,
    decompress: Decompress | None,
) -> TimestampOffset | None:
    epoch = LeaderEpoch(header.partition_leader_epoch)
    batch = await segment.read(position, header.size)
    try:
        for record in iterate_records(batch, decompress=decompress):
            if record.timestamp_ms >= timestamp and record.offset >= from_offset:
                return TimestampOffset(record.timestamp_ms, Offset(record.offset), epoch)
    except CompressedBatch:
        return TimestampOffset(header.max_timestamp, Offset(max(header.base_offset, from_offset)), epoch)
    return None
