"""Decides whether the records of one operation need a metadata transaction (core; KIP-868).

Atomic records that fit into one batch are appended as one batch. Otherwise they become a metadata transaction
(metadata.version 13): followers hold back everything between its begin and end records, so all of the change still takes
effect at the same time. The order of the records is kept, so a broker's partition changes stay before its registration
change. Below 13 there are no transactions, and the records are appended as several batches. Operations therefore order their
records so that any prefix is safe to apply.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.metadata.metadata_version import TRANSACTIONS_LEVEL
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

# The most records in one batch, as in Kafka's controller.
RECORDS_PER_BATCH_MAX = 10_000
# The largest estimated size of one batch: half the limit of the metadata log, because the estimate may be too low.
BYTES_PER_BATCH_MAX = 4 * 1024 * 1024
# The estimated size of a record and its frame, without the lists and texts that `_estimated_size` adds.
RECORD_BYTES = 64


@dataclass(frozen=True, slots=True)
class Append:
    """Records to append in this order, as one batch if `is_atomic`, otherwise as any number of batches."""

    records: Sequence[ApiMessageAndVersion]
    is_atomic: bool


def plan_append(
    records: Sequence[ApiMessageAndVersion],
    *,
    is_atomic: bool,
    level: int,
    name: str,
    batch_max: int = RECORDS_PER_BATCH_MAX,
) -> Append:
    """Returns the records as they should be appended. A transaction gets `name` in its begin record."""
    if not is_atomic or (len(records) <= batch_max and _estimated_size(records) <= BYTES_PER_BATCH_MAX):
        return Append(records, is_atomic)
    if level < TRANSACTIONS_LEVEL:
        return Append(records, is_atomic=False)
    begin = ApiMessageAndVersion(BeginTransactionRecord(name=name), 0)
    end = ApiMessageAndVersion(EndTransactionRecord(), 0)
    return Append([begin, *records, end], is_atomic=False)


def _estimated_size(records: Sequence[ApiMessageAndVersion]) -> int:
    """Returns RECORD_BYTES per record, plus the parts that can be large: lists of replicas and directories, and texts."""
    size = RECORD_BYTES * len(records)
    for written in records:
        record = written.record
        if isinstance(record, PartitionChangeRecord):
            # Replicas that are added or removed occur twice.
            size += 5 * len(record.isr or ()) + 10 * len(record.replicas or ()) + 16 * len(record.directories or ())
        elif isinstance(record, PartitionRecord):
            size += 10 * len(record.replicas) + 16 * len(record.directories)
        elif isinstance(record, ConfigRecord):
            size += 4 * (len(record.resource_name) + len(record.name) + len(record.value or ""))
        elif isinstance(record, TopicRecord):
            size += len(record.name)
    return size
