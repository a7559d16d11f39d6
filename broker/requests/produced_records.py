"""Checks the single records that a client sends (shell of Produce, without I/O).

Counterpart of the part of Kafka's LogValidator that needs the records. Single records are decoded for two reasons only. In a
compacted topic a record without a key could never be replaced, and a broken one would stop the compaction of the log. And
their timestamps count where message.timestamp.before.max.ms is set, or where the header names one that is too far in the
future. Where compression.type is not producer, a batch of another codec is compressed again.
"""

from common.protocol.messages.produce import BatchIndexAndErrorMessage
from common.records.batch import (
    COMPRESSION_MASK,
    NO_TIMESTAMP,
    BatchHeader,
    InvalidRecordBatch,
    read_header,
    replace_records,
    timestamp_sum,
)
from common.records.compression import compress
from common.storage.compaction.record_spans import opened_payload, record_spans

_SHOWN_MAX = 3


def keyless_records(header: BatchHeader, view: memoryview) -> list[int]:
    """Returns the numbers of the records without a key. Raises InvalidRecordBatch if the records are broken or do not have
    consecutive offsets."""
    keyless: list[int] = []
    for number, span in enumerate(record_spans(header, opened_payload(header, view))):
        if span.offset_delta != number:
            raise InvalidRecordBatch(f"record {number} has the offset delta {span.offset_delta}")
        if span.key is None:
            keyless.append(number)
    return keyless


def recompressed(header: BatchHeader, view: memoryview, code: int, level: int | None) -> tuple[BatchHeader, memoryview]:
    """Returns the batch with its records compressed by another codec, and everything else as it was. Raises
    InvalidRecordBatch if they cannot be decompressed."""
    payload = compress(code, opened_payload(header, view), level)
    batch = replace_records(header._replace(attributes=header.attributes & ~COMPRESSION_MASK | code), payload)
    return read_header(batch), memoryview(batch)


def record_errors(partition: str, keyless: list[int]) -> list[BatchIndexAndErrorMessage]:
    """Returns the error of each record without a key, in Kafka's words."""
    message = f"Compacted topic cannot accept message without key in topic partition {partition}."
    return [BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message) for number in keyless]


def untimely_records(header: BatchHeader, view: memoryview, *, earliest_ms: int, latest_ms: int) -> list[int]:
    """Returns the numbers of the records with a timestamp before `earliest_ms` or after `latest_ms`. Records without a
    timestamp are never among them. Raises InvalidRecordBatch if the records are broken."""
    return [
        number
        for number, span in enumerate(record_spans(header, opened_payload(header, view)))
        if (timestamp := timestamp_sum(header.base_timestamp, span.timestamp_delta)) != NO_TIMESTAMP
        and not earliest_ms <= timestamp <= latest_ms
    ]


def timestamp_errors(untimely: list[int], *, earliest_ms: int, latest_ms: int) -> list[BatchIndexAndErrorMessage]:
    """Returns the error of each record whose timestamp is out of range."""
    message = f"Timestamp of message is out of range. The timestamp should be within [{earliest_ms}, {latest_ms}]"
    return [BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message) for number in untimely]


def summary(errors: list[BatchIndexAndErrorMessage]) -> str:
    """Returns the message for the whole batch, in Kafka's words."""
    shown = ", ".join(
        f"RecordError(batchIndex={each.batch_index}, message='{each.batch_index_error_message}')"
        for each in errors[:_SHOWN_MAX]
    )
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the first "
        f"three errors at most: [{shown}]"
    )
