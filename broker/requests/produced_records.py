"""Checks the single records that a client sends (shell of Produce, without I/O).

Counterpart of the part of Kafka's LogValidator that needs the records. Single records are decoded for two reasons only. In a
compacted topic a record without a key could never be replaced, and a broken one would stop the compaction of the log. And
their timestamps count where message.timestamp.before.max.ms is set, or where the header names one that is too far in the
future. Where compression.type is not producer, a batch of another codec is compressed again.
"""

from common.protocol.messages.produce import BatchIndexAndErrorMessage
from common.records.batch import COMPRESSION_MASK, NO_TIMESTAMP, BatchHeader, InvalidRecordBatch, assemble_batch, read_header
from common.records.compression import compress
from common.records.record import timestamp_sum
from common.storage.compaction.record_spans import record_spans

_SHOWN_MAX = 3
# How many records an answer names. The client drops the whole batch, whatever their number.
_NAMED_MAX = 1000


def keyless_records(header: BatchHeader, payload: memoryview) -> list[int]:
    """Returns the numbers of the records without a key. Raises InvalidRecordBatch if the records are broken or do not have
    consecutive offsets."""
    keyless: list[int] = []
    for number, span in enumerate(record_spans(header, payload)):
        if span.offset_delta != number:
            raise InvalidRecordBatch(f"record {number} has the offset delta {span.offset_delta}")
        if span.key is None:
            keyless.append(number)
    return keyless


def recompressed(header: BatchHeader, payload: memoryview, code: int, level: int | None) -> tuple[BatchHeader, memoryview]:
    """Returns the batch with its records, of which `payload` is the plain form, compressed by another codec, and everything
    else as it was."""
    compressed = compress(code, payload, level)
    batch = assemble_batch(header._replace(attributes=header.attributes & ~COMPRESSION_MASK | code), compressed)
    return read_header(batch), memoryview(batch)


def record_errors(partition: str, keyless: list[int]) -> list[BatchIndexAndErrorMessage]:
    """Returns the errors of the first records without a key, in Kafka's words."""
    message = f"Compacted topic cannot accept message without key in topic partition {partition}."
    return [
        BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message) for number in keyless[:_NAMED_MAX]
    ]


def untimely_records(header: BatchHeader, payload: memoryview, *, earliest_ms: int, latest_ms: int) -> list[int]:
    """Returns the numbers of the records with a timestamp before `earliest_ms` or after `latest_ms`. Records without a
    timestamp are never among them. Raises InvalidRecordBatch if the records are broken."""
    return [
        number
        for number, span in enumerate(record_spans(header, payload))
        if (timestamp := timestamp_sum(header.base_timestamp, span.timestamp_delta)) != NO_TIMESTAMP
        and not earliest_ms <= timestamp <= latest_ms
    ]


def timestamp_errors(untimely: list[int], *, earliest_ms: int, latest_ms: int) -> list[BatchIndexAndErrorMessage]:
    """Returns the errors of the first records whose timestamp is out of range."""
    message = f"Timestamp of message is out of range. The timestamp should be within [{earliest_ms}, {latest_ms}]"
    return [
        BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message) for number in untimely[:_NAMED_MAX]
    ]


def summary(errors: list[BatchIndexAndErrorMessage], count: int) -> str:
    """Returns the message for the whole batch, in which `count` records have an error, in Kafka's words."""
    shown = ", ".join(
        f"RecordError(batchIndex={each.batch_index}, message='{each.batch_index_error_message}')"
        for each in errors[:_SHOWN_MAX]
    )
    return (
        f"One or more records have been rejected due to {count} record errors in total, and only showing the first "
        f"three errors at most: [{shown}]"
    )
