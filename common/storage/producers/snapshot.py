"""The content of a producer snapshot file, in Kafka's format (core).

Counterpart of `readSnapshot` and `writeSnapshot` in Kafka's ProducerStateManager; its generated ProducerSnapshot message
describes the same bytes. All numbers are big-endian:

    int16 version (1), uint32 CRC-32C of everything after it, int32 number of entries, and for each entry
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 last minus first offset of the last batch,
    int64 timestamp, int32 coordinator epoch, int64 first offset of the current transaction or -1

Kafka writes one entry for each producer id, with the last batch only. After a restart it therefore refuses the retry of an
older batch as out of order, which is fatal for a librdkafka producer. Here each of the older batches that a client may retry
has an entry of its own, before the producer's last one. Kafka reads such a file as well: of the entries with one producer id
it uses the last.
"""

import struct
from collections.abc import Generator, Iterator, Mapping
from typing import Final

from crc32c import crc32c

from common.records.batch import NO_SEQUENCE
from common.storage.producers.sequences import sequence_before
from common.storage.producers.state import BATCHES_KEPT, NO_OFFSET, ProducedBatch, ProducerEntry

VERSION: Final = 1

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptProducerSnapshot(Exception):
    """The bytes are not a producer snapshot of a known version."""


def encode_producer_snapshot(entries: Mapping[int, ProducerEntry]) -> bytes:
    """Returns the content of the file."""
    body = bytearray()
    for producer_id, entry in entries.items():
        for batch in entry.batches[:-1]:
            body += _encoded(producer_id, entry, batch, batch.timestamp, NO_OFFSET)
        last = entry.batches[-1] if entry.batches else None
        body += _encoded(producer_id, entry, last, entry.last_timestamp, entry.transaction_first_offset)
    counted = _COUNT.pack(len(body) // _ENTRY.size) + body
    return _HEAD.pack(VERSION, crc32c(counted)) + counted


def _encoded(
    producer_id: int, entry: ProducerEntry, batch: ProducedBatch | None, timestamp: int, transaction_first_offset: int
) -> bytes:
    return _ENTRY.pack(
        producer_id,
        entry.epoch,
        NO_SEQUENCE if batch is None else batch.last_sequence,
        NO_OFFSET if batch is None else batch.last_offset,
        0 if batch is None else batch.last_offset - batch.first_offset,
        timestamp,
        entry.coordinator_epoch,
        transaction_first_offset,
    )


def decode_producer_snapshot(content: bytes) -> Generator[None, None, dict[int, ProducerEntry]]:
    """Yields after each entry, of which there may be 100,000s. Returns the state by producer id. Raises
    CorruptProducerSnapshot."""
    entries: dict[int, ProducerEntry] = {}
    for producer_id, entry in decode_producer_snapshot_entries(content):
        earlier = entries.get(producer_id)
        if earlier is None:
            entries[producer_id] = entry
        elif _continues(earlier, entry):
            batches = [*earlier.batches[1 - BATCHES_KEPT :], *entry.batches]
            entries[producer_id] = entry._replace(batches=batches)
        else:
            raise CorruptProducerSnapshot(f"the producer snapshot has entries of producer {producer_id} that contradict")
        yield
    return entries


def _continues(earlier: ProducerEntry, entry: ProducerEntry) -> bool:
    return (
        entry.epoch == earlier.epoch
        and len(entry.batches) == 1
        and NO_OFFSET < earlier.last_offset < entry.batches[0].first_offset
    )


def decode_producer_snapshot_entries(content: bytes) -> Iterator[tuple[int, ProducerEntry]]:
    """Returns the entries as they are in the file, each with its producer id. Raises CorruptProducerSnapshot."""
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
    return (_decoded(*fields) for fields in _ENTRY.iter_unpack(content[start:]))


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
