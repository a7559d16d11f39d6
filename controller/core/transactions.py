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
from common.records.metadata_records import BeginTransactionRecord, EndTransactionRecord

# As Kafka's controller. The largest records of this kind are some 300 bytes, so that a batch stays well below 8 MiB.
RECORDS_PER_BATCH_MAX = 10_000


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
    if not is_atomic or len(records) <= batch_max:
        return Append(records, is_atomic)
    if level < TRANSACTIONS_LEVEL:
        return Append(records, is_atomic=False)
    begin = ApiMessageAndVersion(BeginTransactionRecord(name=name), 0)
    end = ApiMessageAndVersion(EndTransactionRecord(), 0)
    return Append([begin, *records, end], is_atomic=False)
