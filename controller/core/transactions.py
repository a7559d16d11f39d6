"""Splits what one operation writes into batches (core).

Atomic records that fit one batch are appended as one. More than that become a metadata transaction (metadata.version 13):
followers hold back everything between its begin and end records, so that the change still appears at once. Their order is
kept, so a broker's partition changes stay before its registration change. Easy to get wrong: below 13 there is nothing to
hold them together; the order is then all there is, and it is chosen so that a half is safe.
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

# As Kafka's controller.
RECORDS_PER_BATCH_MAX = 10_000
# Half of what a batch of the metadata log takes, because sizes are only estimated here.
BYTES_PER_BATCH_MAX = 4 * 1024 * 1024
# A record without what is counted below, its frame included.
RECORD_BYTES = 64


@dataclass(frozen=True, slots=True)
class Append:
    """Records to be appended in this order, as one batch if `is_atomic`, else in as many as it takes."""

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
    """How these records go into the log; `name` says in the log what a transaction is about."""
    if not is_atomic or (len(records) <= batch_max and _estimated_size(records) <= BYTES_PER_BATCH_MAX):
        return Append(records, is_atomic)
    if level < TRANSACTIONS_LEVEL:
        return Append(records, is_atomic=False)
    begin = ApiMessageAndVersion(BeginTransactionRecord(name=name), 0)
    end = ApiMessageAndVersion(EndTransactionRecord(), 0)
    return Append([begin, *records, end], is_atomic=False)


def _estimated_size(records: Sequence[ApiMessageAndVersion]) -> int:
    """What in these records can be large: lists of replicas and directories, and text."""
    size = RECORD_BYTES * len(records)
    for written in records:
        record = written.record
        if isinstance(record, PartitionChangeRecord):
            size += 5 * len(record.isr or ()) + 16 * len(record.directories or ())
        elif isinstance(record, PartitionRecord):
            size += 10 * len(record.replicas) + 16 * len(record.directories)
        elif isinstance(record, ConfigRecord):
            size += 4 * (len(record.resource_name) + len(record.name) + len(record.value or ""))
        elif isinstance(record, TopicRecord):
            size += len(record.name)
    return size
