"""The content of a producer snapshot file, in Kafka's format (core).

Counterpart of `readSnapshot` and `writeSnapshot` in Kafka's ProducerStateManager; its generated ProducerSnapshot message
describes the same bytes. All numbers are big-endian:

    int16 version (1), uint32 CRC-32C of everything after it, int32 number of entries, and for each entry
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 last minus first offset of the last batch,
    int64 timestamp, int32 coordinator epoch, int64 first offset of the current transaction or -1

A snapshot has only the last batch of each producer. After a restart, a retry of an older batch is refused as out of order.
"""

import struct
from collections.abc import Mapping
from typing import Final

from crc32c import crc32c

from common.records.batch import NO_SEQUENCE
from common.storage.producers.sequences import sequence_before
from common.storage.producers.state import NO_OFFSET, ProducedBatch, ProducerEntry

VERSION: Final = 1

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptProducerSnapshot(Exception):
    """The bytes are not a producer snapshot of a known version."""


def encode_producer_snapshot(entries: Mapping[int, ProducerEntry]) -> bytes:
    """Returns the content of the file."""
    body = bytearray(_COUNT.pack(len(entries)))
    for producer_id, entry in entries.items():
        last = entry.batches[-1] if entry.batches else None
        body += _ENTRY.pack(
            producer_id,
            entry.epoch,
            NO_SEQUENCE if last is None else last.last_sequence,
            NO_OFFSET if last is None else last.last_offset,
            0 if last is None else last.last_offset - last.first_offset,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_producer_snapshot(content: bytes) -> dict[int, ProducerEntry]:
    """Returns the entries by producer id. Raises CorruptProducerSnapshot."""
    if len(content) < _HEAD.size + _COUNT.size:
        raise CorruptProducerSnapshot(f"a producer snapshot has at least 10 bytes, these are {len(content)}")
    version, crc = _HEAD.unpack_from(content)
    if version != VERSION:
        raise CorruptProducerSnapshot(f"the producer snapshot has version {version}, only {VERSION} is known")
    computed = crc32c(content[_HEAD.size :])
    if computed != crc:
        raise CorruptProducerSnapshot(f"the producer snapshot has CRC {crc:#010x}, its bytes give {computed:#010x}")
    (count,) = _COUNT.unpack_from(content, _HEAD.size)
    start = _HEAD.size + _COUNT.size
    if len(content) - start != count * _ENTRY.size:
        raise CorruptProducerSnapshot(f"the producer snapshot counts {count} entries in {len(content) - start} bytes")
    return dict(_decoded(*fields) for fields in _ENTRY.iter_unpack(content[start:]))


def _decoded(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> tuple[int, ProducerEntry]:
    batches = []
    if last_offset >= 0:
        first_sequence = NO_SEQUENCE if last_sequence == NO_SEQUENCE else sequence_before(last_sequence, offset_delta)
        batches.append(ProducedBatch(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp))
    # Kafka takes any negative offset for "no transaction".
    transaction = max(transaction_first_offset, NO_OFFSET)
    return producer_id, ProducerEntry(epoch, batches, timestamp, coordinator_epoch, transaction)
