"""Reads the log of a coordinated partition into a shard (shell).

Counterpart of Kafka's CoordinatorLoaderImpl. The log is read in chunks of bounded size, and the event loop gets a turn after
a bounded number of batches and of records: the partition may hold millions of them, and this broker leads other partitions
too.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from broker.coordinator.shard import Shard
from broker.hosting.partition import Partition
from common.environment.interface import LogDirError
from common.ids import Offset
from common.parts import Buffer
from common.protocol.errors import ProtocolError
from common.records.batch import BatchError, BatchHeader, TruncatedBatch, read_header, validate_integrity
from common.records.decompression import NotDecompressed, decompress
from common.records.end_transaction import decode_end_transaction
from common.records.record import Record, iterate_records
from common.storage.errors import LogClosed, OffsetOutOfRange
from common.storage.read_limits import ReadLimits

_CHUNK_BYTES = 1024 * 1024
_RECORDS_AT_ONCE = 200
# A batch takes time even if it has no records for the shard: a compacted log may consist of transaction markers.
_BATCHES_AT_ONCE = 200
_OPENED_BYTES_MAX = 64 * 1024 * 1024


class NotReplayed(Exception):
    """The log could not be read to its end, or holds a record that the shard does not take. The text says which."""


@dataclass(slots=True)
class Replayed:
    """The figures of a load."""

    records: int = 0
    size_bytes: int = 0


async def replay_log(partition: Partition, shard: Shard, end_offset: Offset) -> Replayed:
    """Feeds every record below `end_offset` to the shard. Raises NotReplayed."""
    replayed = Replayed()
    offset = partition.log.log_start_offset
    while offset < end_offset:
        log = partition.log
        try:
            chunk = await log.read_bytes(offset, ReadLimits(max_bytes=_CHUNK_BYTES, upper_offset=end_offset))
        except OffsetOutOfRange:
            if offset >= partition.log.log_start_offset:
                raise NotReplayed(f"the log ends before offset {offset}") from None
            # The beginning of the log was deleted meanwhile.
            offset = partition.log.log_start_offset
            continue
        except (LogDirError, LogClosed, BatchError) as error:
            if partition.log is not log:
                # The replica has moved to another directory. The new log holds the same records.
                continue
            raise NotReplayed(str(error)) from error
        if not chunk:
            # What lay up to the end was removed by compaction.
            break
        replayed.size_bytes += len(chunk)
        offset = await _replay_chunk(shard, chunk, offset, replayed)
    return replayed


async def _replay_chunk(shard: Shard, chunk: bytes, from_offset: Offset, replayed: Replayed) -> Offset:
    next_offset = from_offset
    try:
        for number, (header, view) in enumerate(_batches(chunk), start=1):
            if number % _BATCHES_AT_ONCE == 0:
                await asyncio.sleep(0)
            validate_integrity(header, view)
            next_offset = Offset(header.next_offset)
            if header.is_control:
                marker = decode_end_transaction(view)
                if marker is not None:
                    shard.replay_marker(marker)
                continue
            for record in _records(view):
                if record.offset < from_offset:
                    continue
                if header.is_transactional:
                    shard.replay_transactional(header.producer_id, _bytes(record.key), _bytes(record.value))
                else:
                    shard.replay(_bytes(record.key), _bytes(record.value))
                replayed.records += 1
                if replayed.records % _RECORDS_AT_ONCE == 0:
                    await asyncio.sleep(0)
    except (BatchError, NotDecompressed, ProtocolError) as error:
        raise NotReplayed(f"in the batch that ends before offset {next_offset}: {error}") from error
    return next_offset


def _batches(chunk: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Splits the chunk as it is replayed: it may hold thousands of batches."""
    view, position = memoryview(chunk), 0
    while position < len(view):
        header = read_header(view, position)
        batch_end = position + header.size
        if batch_end > len(view):
            raise TruncatedBatch(f"record batch of {header.size} bytes, {len(view) - position} are left")
        yield header, view[position:batch_end]
        position = batch_end


def _records(view: memoryview) -> Iterator[Record]:
    return iterate_records(view, decompress=partial(decompress, size_max=_OPENED_BYTES_MAX))


def _bytes(field: Buffer | None) -> bytes | None:
    return None if field is None else bytes(field)
