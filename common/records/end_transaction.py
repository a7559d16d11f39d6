"""The marker that ends a transaction in a partition (core, KIP-98).

Counterpart of Kafka's EndTransactionMarker and MemoryRecords.withEndTransactionMarker. A marker is a control batch with one
record. The batch has the transactional bit, the producer's id and epoch, and no sequence number.

    key     int16 version (0), int16 type: 0 ABORT, 1 COMMIT
    value   int16 version (0), int32 epoch of the transaction coordinator

A later version of the value may append fields, so only a value that is too short is an error, as in Kafka.
"""

import struct
from dataclasses import dataclass, field
from typing import Final

from common.parts import Buffer
from common.records.batch import CONTROL_BIT, PRODUCER_EPOCH_MAX, TRANSACTIONAL_BIT, InvalidRecordBatch, read_header
from common.records.record import Record, encode_batch, iterate_records

_ABORT: Final = 0
_COMMIT: Final = 1
_EPOCH_BUMP_VERSION: Final = 2
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """Ends the producer's transaction. `coordinator_epoch` is the leader epoch of the coordinator's partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    # Tells the leader by which rule to judge the epoch. Not in the log.
    transaction_version: int = field(default=0, compare=False)

    @property
    def has_own_epoch(self) -> bool:
        """Whether the epoch was raised for this marker, so that no batch of its transaction has it (KIP-890, KIP-1228).

        The greatest epoch counts as not raised. No transaction may follow with it, and a coordinator of Apache Kafka may
        have begun the one that the marker ends with it (KAFKA-20090)."""
        return self.transaction_version >= _EPOCH_BUMP_VERSION and self.producer_epoch < PRODUCER_EPOCH_MAX


def encode_marker_batch(marker: EndTransactionMarker, *, timestamp_ms: int) -> bytearray:
    """Returns the control batch of a marker. The append sets its offset and leader epoch."""
    key = _KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    return encode_batch(
        [Record(key, _VALUE.pack(0, marker.coordinator_epoch), timestamp_ms)],
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )


def decode_end_transaction(batch: Buffer) -> EndTransactionMarker | None:
    """Returns the marker of a whole control batch. None: its record is of another type, or compaction has removed it.

    Raises InvalidRecordBatch. The caller verifies the checksum."""
    header = read_header(batch)
    record = next(iterate_records(batch), None)
    if record is None:
        return None
    if record.key is None or len(record.key) < _KEY.size:
        raise InvalidRecordBatch("the key of a control record is missing or too short")
    key_version, record_type = _KEY.unpack_from(record.key)
    if key_version < 0:
        raise InvalidRecordBatch(f"a control record has key version {key_version}")
    if record_type not in (_ABORT, _COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise InvalidRecordBatch("the value of a transaction marker is missing or too short")
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise InvalidRecordBatch(f"a transaction marker has version {version}")
    return EndTransactionMarker(
        header.producer_id, header.producer_epoch, coordinator_epoch, is_commit=record_type == _COMMIT
    )
