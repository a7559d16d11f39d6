"""Finds records by time: the first one at or after a timestamp, and the newest one (shell).

This serves ListOffsets requests with a timestamp and with -3 (the maximum timestamp). Timestamps are not ordered, so the
result is the first record *in offset order* that is new enough, in the first segment that has one. If a batch cannot be
decompressed, or would become too large, the result is its first offset: a consumer that starts there misses nothing.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from common.ids import LeaderEpoch, Offset
from common.records.batch import NO_TIMESTAMP, BatchHeader
from common.records.decompression import NotDecompressed, decompress
from common.records.record import Record, iterate_records
from common.storage.log_segments import LogSegments
from common.storage.segment import Segment

# A search does not decompress a batch that would be larger than this.
OPENED_BYTES_MAX = 16 << 20
# Even a batch of few bytes can hold millions of records. Each time it has read this many, the search lets the event loop run
# other tasks.
_RECORDS_AT_ONCE = 1000
# How many headers of a segment a search remembers, to open the batches of those that name the latest times.
_CLAIMS_MAX = 1000


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record's timestamp and offset, and the epoch of the leader that wrote it."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


class _Claim(NamedTuple):
    """The largest timestamp that a batch has according to its header."""

    timestamp: int
    position: int
    header: BatchHeader


async def first_at_or_after(segments: LogSegments, timestamp: int, *, from_offset: Offset) -> TimestampOffset | None:
    """Returns the first record, in offset order from `from_offset` on, whose timestamp is at least `timestamp`.

    Returns None if no record is that new.

    Raises LogDirError and BatchError.
    """
    for segment in segments.while_unchanged(from_offset):
        if await segment.load_max_timestamp() < timestamp:
            continue
        segments.note_index_use(segment)
        found = await _first_in_segment(segment, timestamp, from_offset=from_offset)
        if found is not None:
            return found
    return None


async def newest(segments: LogSegments, *, from_offset: Offset) -> TimestampOffset | None:
    """Returns the first record from `from_offset` on with the largest timestamp, None if no record has one. Raises
    LogDirError and BatchError."""
    generation = segments.generation
    timestamps: dict[Segment, int] = {}
    for segment in segments.while_unchanged(from_offset):
        timestamps[segment] = await segment.load_max_timestamp()
    while timestamps and generation == segments.generation:
        best = max(timestamps, key=timestamps.__getitem__)
        if timestamps[best] < 0 or best.file is None:
            return None
        with best.file.in_use():
            segments.note_index_use(best)
            found = await _first_in_segment(best, timestamps[best], from_offset=from_offset)
            if found is not None:
                return found
            timestamps[best] = await _newest_timestamp(best, below=timestamps[best], from_offset=from_offset)
    return None


async def _newest_timestamp(segment: Segment, *, below: int, from_offset: int) -> int:
    """Returns the largest timestamp below `below` of the records from `from_offset` on, -1 if there is none. A timestamp
    that is larger than its batch's header says counts as what the header says.

    For a segment in which no such record has the timestamp `below`, although the header of a batch says so: compaction has
    removed the record, it is below `from_offset`, or the producer did not tell the truth. So batches are opened, each at
    most once. Those that claim most come first: usually few claims are false."""
    newest_timestamp = NO_TIMESTAMP
    largest: list[_Claim] = []
    async for claim in _claims(segment, from_offset=from_offset):
        if len(largest) < _CLAIMS_MAX:
            heapq.heappush(largest, claim)
        else:
            heapq.heappushpop(largest, claim)
    largest.sort(reverse=True)
    for claim in largest:
        if claim.timestamp <= newest_timestamp:
            return newest_timestamp
        in_batch = await _newest_in_batch(segment, claim, below=below, from_offset=from_offset)
        newest_timestamp = max(newest_timestamp, in_batch)
    if len(largest) < _CLAIMS_MAX:
        return newest_timestamp
    # So many false claims are an attack, or a clock that was wrong for long. The other batches are taken as they come.
    async for claim in _claims(segment, from_offset=from_offset):
        if newest_timestamp < claim.timestamp and claim < largest[-1]:
            in_batch = await _newest_in_batch(segment, claim, below=below, from_offset=from_offset)
            newest_timestamp = max(newest_timestamp, in_batch)
    return newest_timestamp


async def _claims(segment: Segment, *, from_offset: int) -> AsyncIterator[_Claim]:
    scan = segment.scan(0)
    while (found := await scan.next()) is not None:
        header, position = found
        if header.last_offset >= from_offset:
            yield _Claim(header.record_timestamp_max, position, header)


async def _first_in_segment(segment: Segment, timestamp: int, *, from_offset: int) -> TimestampOffset | None:
    start = await segment.find_batch(max(await segment.offset_for_timestamp(timestamp), from_offset))
    if start is None:
        return None
    scan = segment.scan(start[1])
    while (found := await scan.next()) is not None:
        header, position = found
        if header.max_timestamp < timestamp:
            continue
        record = await _in_batch(segment, header, position, timestamp=timestamp, from_offset=from_offset)
        if record is not None:
            return record
    return None


async def _in_batch(
    segment: Segment, header: BatchHeader, position: int, *, timestamp: int, from_offset: int
) -> TimestampOffset | None:
    epoch = LeaderEpoch(header.partition_leader_epoch)
    batch = await segment.read(position, header.size)
    try:
        for number, record in enumerate(_records(batch)):
            if record.timestamp_ms >= timestamp and record.offset >= from_offset:
                return TimestampOffset(record.timestamp_ms, Offset(record.offset), epoch)
            if number % _RECORDS_AT_ONCE == _RECORDS_AT_ONCE - 1:
                await asyncio.sleep(0)
    except NotDecompressed:
        return TimestampOffset(header.max_timestamp, Offset(max(header.base_offset, from_offset)), epoch)
    return None


async def _newest_in_batch(segment: Segment, claim: _Claim, *, below: int, from_offset: int) -> int:
    newest_timestamp = NO_TIMESTAMP
    batch = await segment.read(claim.position, claim.header.size)
    try:
        for number, record in enumerate(_records(batch)):
            timestamp = min(record.timestamp_ms, claim.timestamp)
            if record.offset >= from_offset and timestamp < below:
                newest_timestamp = max(newest_timestamp, timestamp)
            if number % _RECORDS_AT_ONCE == _RECORDS_AT_ONCE - 1:
                await asyncio.sleep(0)
    except NotDecompressed:
        # Its first offset is the result for what it claims.
        return claim.timestamp if claim.timestamp < below else NO_TIMESTAMP
    return newest_timestamp


def _records(batch: bytes) -> Iterator[Record]:
    return iterate_records(batch, decompress=partial(decompress, size_max=OPENED_BYTES_MAX))
